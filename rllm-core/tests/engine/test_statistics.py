import itertools
import math

import pytest

from rllm.engine.statistics import pass_at_k, percentile, summarize, wilson_interval
from rllm.types import Episode, EpisodeStatus, ErrorInfo, Task


def episode(task: str, reward: float | None, *, status: EpisodeStatus = EpisodeStatus.GRADED) -> Episode:
    error = None if status is EpisodeStatus.GRADED else ErrorInfo(kind="InfraError", message="x")
    correct = None if reward is None else reward >= 1
    return Episode(
        task_id=task, reward=reward, is_correct=correct, status=status, error=error, metrics={"seconds": 1.0}
    )


def test_wilson_interval_matches_the_published_values() -> None:
    low, high = wilson_interval(8, 10)
    assert (round(low, 4), round(high, 4)) == (0.4902, 0.9433)
    assert wilson_interval(0, 5)[0] == 0.0
    assert wilson_interval(5, 5)[1] == 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 1), (4, 2, 2), (5, 0, 3), (5, 5, 2), (6, 2, 4)])
def test_pass_at_k_is_the_share_of_subsets_with_a_success(n: int, c: int, k: int) -> None:
    subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert math.isclose(pass_at_k(n, c, k), sum(any(s) for s in subsets) / len(subsets))


def test_failures_are_counted_apart_and_never_as_zeros() -> None:
    summary = summarize(
        [
            episode("a", 1.0),
            episode("b", 0.0),
            episode("c", None, status=EpisodeStatus.INFRA_ERROR),
            episode("d", None, status=EpisodeStatus.TIMEOUT),
        ]
    )
    assert summary.accuracy == 0.5
    assert summary.accuracy_with_failures == 0.25
    assert summary.mean_reward == 0.5
    assert summary.statuses == {"graded": 2, "infra_error": 1, "timeout": 1}
    assert summary.errors == {"InfraError": 2}


def test_nothing_graded_gives_no_accuracy() -> None:
    summary = summarize([episode("a", None, status=EpisodeStatus.AGENT_ERROR)])
    assert summary.accuracy is None
    assert summary.mean_reward is None
    assert summarize([]).episodes == 0


def test_pass_at_k_averages_over_tasks_not_over_their_names() -> None:
    episodes = [
        episode("math:1", 1.0),
        episode("math:1", 0.0),
        episode("math:2", 0.0),
        episode("math:2", 0.0),
    ]
    assert summarize(episodes).pass_at == {1: 0.25, 2: 0.5}


def test_categories_are_reported_when_there_are_several() -> None:
    first, second = episode("a", 1.0), episode("b", 0.0)
    first.task = Task(id="a", instruction="", category="x")
    second.task = Task(id="b", instruction="", category="y")
    assert summarize([first, second]).categories == {"x": 1.0, "y": 0.0}
    assert summarize([first]).categories == {}


def test_percentile_interpolates() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([1.0, 2.0], 90) == pytest.approx(1.9)
