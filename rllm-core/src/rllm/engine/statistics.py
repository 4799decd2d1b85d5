"""Statistics over finished episodes, unfiltered: a failure is counted as what it is, not dropped and not a zero."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

from rllm.types import Episode, EpisodeStatus

__all__ = ["Summary", "pass_at_k", "percentile", "summarize", "wilson_interval"]


@dataclass(frozen=True, slots=True)
class Summary:
    """What an evaluation, or one validation, came to."""

    episodes: int
    tasks: int
    graded: int
    correct: int
    accuracy: float | None
    """correct / graded; None when nothing was graded."""
    accuracy_interval: tuple[float, float] | None
    """95 % Wilson interval of `accuracy`."""
    accuracy_with_failures: float | None
    """correct / episodes: failures count as wrong."""
    mean_reward: float | None
    """Over graded episodes."""
    pass_at: dict[int, float]
    """k -> unbiased pass@k, mean over tasks with at least k graded attempts."""
    statuses: dict[str, int]
    terminations: dict[str, int]
    errors: dict[str, int]
    """Kind of error -> episodes."""
    categories: dict[str, float]
    """Category -> accuracy, when there is more than one."""
    tokens: dict[str, float]
    seconds: dict[str, float]
    """p50, p90 and p99 of one rollout."""
    turns: dict[str, float]
    calls: dict[str, int] = field(default_factory=dict)
    """Exactness -> model calls."""
    failure: str | None = None
    """Message of the first failure of the commonest kind; None without failures."""

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        data = asdict(self)
        data["pass_at"] = {str(k): value for k, value in self.pass_at.items()}
        return data


def wilson_interval(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Score interval for a proportion (Wilson 1927): (p + z²/2n ± z·sqrt(p(1−p)/n + z²/4n²)) / (1 + z²/n)."""
    if trials <= 0:
        raise ValueError(f"trials must be positive, got {trials}")
    p = successes / trials
    centre = p + z * z / (2 * trials)
    spread = z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def pass_at_k(attempts: int, correct: int, k: int) -> float:
    """Unbiased probability that one of k draws is correct: 1 − C(n−c, k) / C(n, k) (Chen et al. 2021)."""
    if not 0 < k <= attempts:
        raise ValueError(f"k must be in 1..{attempts}, got {k}")
    return 1.0 - math.comb(attempts - correct, k) / math.comb(attempts, k)


def percentile(values: Sequence[float], q: float) -> float:
    """Linear-interpolated percentile, q in 0..100, of a non-empty sequence."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * q / 100
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(slots=True)
class _Tally:
    """Sums over episodes; the episodes themselves are not kept."""

    episodes: int = 0
    rewards: list[float] = field(default_factory=list)
    by_task: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    tasks: set[str] = field(default_factory=set)
    categories: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[str] = field(default_factory=Counter)
    terminations: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)

    def add(self, episode: Episode) -> None:
        self.episodes += 1
        self.tasks.add(episode.task_id)
        self.statuses[episode.status.value] += 1
        self.terminations[episode.termination.value] += 1
        if episode.error is not None:
            self.errors[episode.error.kind] += 1
            self.messages.setdefault(episode.error.kind, episode.error.message)
        if episode.status is EpisodeStatus.GRADED and episode.reward is not None:
            self.rewards.append(episode.reward)
            self.by_task[episode.task_id].append(bool(episode.is_correct))
            category = episode.task.category if episode.task is not None else None
            if category is not None:
                self.categories[category].append(bool(episode.is_correct))
        for name, value in episode.metrics.items():
            if name.startswith("calls_"):
                self.calls[name.removeprefix("calls_")] += int(value)
        for name in ("prompt_tokens", "completion_tokens"):
            self.tokens[name] += int(episode.metrics.get(name, 0))
        self.seconds.append(episode.metrics.get("seconds", 0.0))
        self.turns.append(episode.metrics.get("calls", 0.0))


def summarize(episodes: Iterable[Episode]) -> Summary:
    """Summary of any number of finished episodes."""
    tally = _Tally()
    for episode in episodes:
        tally.add(episode)
    graded = len(tally.rewards)
    correct = sum(sum(verdicts) for verdicts in tally.by_task.values())
    return Summary(
        episodes=tally.episodes,
        tasks=len(tally.tasks),
        graded=graded,
        correct=correct,
        accuracy=correct / graded if graded else None,
        accuracy_interval=wilson_interval(correct, graded) if graded else None,
        accuracy_with_failures=correct / tally.episodes if tally.episodes else None,
        mean_reward=math.fsum(tally.rewards) / graded if graded else None,
        pass_at=_pass_at(tally.by_task),
        statuses=dict(sorted(tally.statuses.items())),
        terminations=dict(sorted(tally.terminations.items())),
        errors=dict(sorted(tally.errors.items())),
        categories=_categories(tally.categories),
        tokens={
            **{name: float(value) for name, value in tally.tokens.items()},
            "completion_per_episode": tally.tokens["completion_tokens"] / max(1, tally.episodes),
        },
        seconds=_spread(tally.seconds),
        turns=_spread(tally.turns),
        calls=dict(sorted(tally.calls.items())),
        failure=tally.messages[tally.errors.most_common(1)[0][0]] if tally.errors else None,
    )


def _pass_at(by_task: dict[str, list[bool]]) -> dict[int, float]:
    most = max((len(verdicts) for verdicts in by_task.values()), default=0)
    result: dict[int, float] = {}
    k = 1
    while k <= most:
        values = [pass_at_k(len(v), sum(v), k) for v in by_task.values() if len(v) >= k]
        result[k] = math.fsum(values) / len(values)
        k *= 2
    return result


def _categories(categories: dict[str, list[bool]]) -> dict[str, float]:
    if len(categories) < 2:
        return {}
    return {name: sum(verdicts) / len(verdicts) for name, verdicts in sorted(categories.items())}


def _spread(values: list[float]) -> dict[str, float]:
    return {f"p{q}": percentile(values, q) for q in (50, 90, 99)} if values else {}
