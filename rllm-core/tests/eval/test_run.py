"""An evaluation: every attempt exactly once, whatever stops it on the way."""

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import rllm
from rllm.errors import ConfigError, DataError, GatewayError, InfraError, ModelError, StoreError
from rllm.eval.run import Evaluation
from rllm.plugins.listeners import Events
from rllm.store import RunStore
from rllm.testing import ScriptedModelServer
from rllm.types import AgentConfig, Episode, EpisodeStatus, EvalOutput, Task

ROWS = [{"id": f"q:{i}/x", "question": f"say {i}", "answer": str(i)} for i in range(7)]


async def ask(task: Task, config: AgentConfig) -> None:
    body = {"model": config.model, "messages": [{"role": "user", "content": task.instruction}]}
    headers = {"Authorization": f"Bearer {config.api_key}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{config.base_url}/chat/completions", json=body, headers=headers) as response,
    ):
        response.raise_for_status()


def digits(task: Task, episode: Episode) -> EvalOutput:
    text = episode.final_text()
    return EvalOutput(reward=sum(c.isdigit() for c in text), is_correct=any(c.isdigit() for c in text))


def evaluation(config: Any, flow: Any = ask, grade: Any = digits, **settings: Any) -> Evaluation:
    return Evaluation(config, agent_flow=flow, evaluator=grade, dataset=ROWS, **settings)


def stored(path: Path) -> dict[tuple[str, int], Episode]:
    with RunStore.open(path) as store:
        episodes = list(store.episodes(split="eval"))
    found = {(each.task_id, each.attempt): each for each in episodes}
    assert len(found) == len(episodes)
    return found


def run_folders(runs: Path) -> list[Path]:
    return [path for path in runs.iterdir() if (path / "run.json").is_file()]


def replies(path: Path) -> dict[tuple[str, int], str]:
    return {key: episode.final_text() for key, episode in stored(path).items()}


async def test_every_task_is_attempted_as_often_as_asked_and_summarised(configure: Any, tmp_path: Path) -> None:
    result = await evaluation(configure(attempts=3)).run_async(runs=tmp_path)
    assert set(stored(result.path)) == {(row["id"], attempt) for row in ROWS for attempt in range(3)}
    summary = result.summary
    assert (summary.episodes, summary.tasks, summary.graded) == (21, 7, 21)
    assert summary.accuracy == summary.correct / 21
    assert summary.calls["exact"] == 21
    assert set(summary.pass_at) == {1, 2}
    with RunStore.open(result.path) as store:
        assert store.manifest["status"] == "finished"
        assert store.events("summary")[-1]["data"]["episodes"] == 21


async def test_the_same_seed_gives_the_same_replies(configure: Any, tmp_path: Path) -> None:
    first = await evaluation(configure(concurrency=1)).run_async(runs=tmp_path)
    second = await evaluation(configure(concurrency=7)).run_async(runs=tmp_path)
    other = await evaluation(configure(seed=1)).run_async(runs=tmp_path)
    assert replies(first.path) == replies(second.path) != replies(other.path)


async def test_a_server_is_evaluated_by_its_url_and_gets_its_key(
    configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROBE_KEY", "secret")
    async with ScriptedModelServer(["7"]) as server:
        config = configure(
            model__base_url=server.base_url("up"), model__api_key_env="PROBE_KEY", model__name="big", backend__name=None
        )
        result = await evaluation(config).run_async(runs=tmp_path)
        assert {(r.key, r.body["model"], r.body["max_tokens"]) for r in server.requests} == {("secret", "big", 6)}
    assert result.summary.accuracy == 1.0
    assert "secret" not in (result.path / "run.json").read_text()


@pytest.mark.parametrize("seed", range(4))
async def test_cancelled_anywhere_and_resumed_every_attempt_is_made_exactly_once(
    configure: Any, tmp_path: Path, seed: int
) -> None:
    config = configure(attempts=2)
    straight = await evaluation(config).run_async(runs=tmp_path / "straight")
    chance = random.Random(seed)
    made: Counter[tuple[str, int]] = Counter()
    path: Path | None = None
    stops = 0
    while True:
        left = chance.randint(1, 5)

        def count(episode: Episode) -> None:
            nonlocal left
            made[episode.task_id, episode.attempt] += 1
            left -= 1
            if left == 0:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

        before = sum(made.values())
        totals: list[int] = []
        attempt = evaluation(config, on_episode=count, on_start=totals.append)
        running = asyncio.create_task(attempt.run_async(runs=tmp_path / "stopped", resume=path))
        try:
            result = await running
            break
        except asyncio.CancelledError:
            stops += 1
            (path,) = run_folders(tmp_path / "stopped")
            assert json.loads((path / "run.json").read_text())["status"] == "interrupted"
        finally:
            assert totals == [14 - before]
    assert stops
    assert set(made.values()) == {1}
    assert replies(result.path) == replies(straight.path)
    assert result.summary.episodes == 14
    assert result.summary.accuracy == straight.summary.accuracy


async def test_infrastructure_failures_are_made_again_on_resume_and_nothing_else_is(
    configure: Any, tmp_path: Path
) -> None:
    broken = True
    made: list[str] = []

    async def flow(task: Task, config: AgentConfig) -> None:
        made.append(task.id)
        if task.id == "q:1/x" and broken:
            raise InfraError("the sandbox is gone")
        if task.id == "q:2/x":
            raise ValueError("a bug")
        await ask(task, config)

    first = await evaluation(configure(), flow).run_async(runs=tmp_path)
    assert first.summary.statuses == {"agent_error": 1, "graded": 5, "infra_error": 1}
    assert first.summary.accuracy_with_failures == first.summary.correct / 7
    broken = False
    made.clear()
    second = await evaluation(configure(), flow).run_async(resume=first.path)
    assert made == ["q:1/x"]
    assert second.summary.statuses == {"agent_error": 1, "graded": 6}
    assert stored(first.path)["q:1/x", 0].status is EpisodeStatus.GRADED


async def test_a_run_that_is_not_this_one_is_not_resumed(configure: Any, tmp_path: Path) -> None:
    result = await evaluation(configure(limit=1)).run_async(runs=tmp_path)
    manifest = json.loads((result.path / "run.json").read_text())
    (result.path / "run.json").write_text(json.dumps({**manifest, "kind": "train"}))
    with pytest.raises(ConfigError, match="rllm train"):
        await evaluation(configure()).run_async(resume=result.path)
    (result.path / "run.json").write_text(json.dumps({**manifest, "data_revision": "older"}))
    with pytest.raises(DataError, match="'older'"):
        await evaluation(configure()).run_async(resume=result.path)


async def test_more_inexact_calls_than_allowed_stop_the_run(configure: Any, tmp_path: Path) -> None:
    async with ScriptedModelServer(["7"]) as server:
        config = configure(
            model__base_url=server.base_url("up"), gateway__max_inexact=2, backend__name=None, concurrency=1
        )
        with pytest.raises(GatewayError, match=r"gateway\.max_inexact=2"):
            await evaluation(config).run_async(runs=tmp_path)
    (path,) = run_folders(tmp_path)
    assert len(stored(path)) == 3
    assert json.loads((path / "run.json").read_text())["status"] == "failed"


async def test_a_model_that_cannot_be_opened_is_one_error_and_a_failed_run(configure: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no model 'nothing'"):
        await evaluation(configure(model__name="nothing")).run_async(runs=tmp_path)
    (path,) = run_folders(tmp_path)
    with RunStore.open(path) as store:
        assert store.manifest["status"] == "failed"
        assert store.events("error")[0]["data"]["kind"] == "ModelError"


async def test_a_full_disk_is_one_error(configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rllm.store.writer import Writer

    commits = 0
    original = Writer._commit

    def commit(self: Writer, jobs: Any) -> None:
        nonlocal commits
        commits += 1
        if commits > 1:
            raise OSError(28, "No space left on device")
        original(self, jobs)

    monkeypatch.setattr(Writer, "_commit", commit)
    with pytest.raises(StoreError, match="No space left on device"):
        await evaluation(configure(attempts=4)).run_async(runs=tmp_path)
    (path,) = run_folders(tmp_path)
    assert json.loads((path / "run.json").read_text())["status"] == "failed"


async def test_events_are_told_in_order_and_the_status_is_recorded_before_the_last(
    configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def tell(self: Events, event: str, **arguments: Any) -> None:
        if event == "rllm_run_finished":
            (path,) = run_folders(tmp_path)
            assert json.loads((path / "run.json").read_text())["status"] == arguments["status"]
        if not told or told[-1] != event:
            told.append(event)

    monkeypatch.setattr(Events, "_tell", tell)
    await evaluation(configure()).run_async(runs=tmp_path)
    assert told == ["rllm_run_started", "rllm_rollout_finished", "rllm_evaluation_finished", "rllm_run_finished"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model__base_url": "http://127.0.0.1:1/v1"}, "backend.name"),
        ({"model__api_key_env": "PATH"}, "model.api_key_env"),
        ({"agent__name": "react"}, "agent.name"),
        ({"agent__options": {"turns": 3}}, "agent.options"),
        ({"tasks": ("q:99",)}, "'q:99'"),
    ],
)
def test_an_option_that_nothing_would_read_is_refused(configure: Any, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        evaluation(configure(**changes))


def test_the_wrong_kind_of_agent_is_one_error(configure: Any) -> None:
    with pytest.raises(ConfigError, match="expected an agent function"):
        Evaluation(configure(agent__name="json:decoder"), evaluator=digits, dataset=ROWS)


def test_nothing_to_evaluate_and_nothing_to_grade_with_are_said(configure: Any) -> None:
    with pytest.raises(ConfigError, match="nothing to evaluate"):
        Evaluation(configure(), agent_flow=ask, evaluator=digits)
    with pytest.raises(ConfigError, match="nothing grades"):
        Evaluation(configure(), agent_flow=ask, dataset=ROWS)


def test_evaluate_is_the_front_door(configure: Any, tmp_path: Path) -> None:
    result = rllm.evaluate(ask, evaluator=digits, dataset=ROWS, config=configure(), runs=tmp_path)
    assert result.summary.episodes == 7
    with pytest.raises(ConfigError, match="model was given twice"):
        rllm.evaluate(ask, evaluator=digits, dataset=ROWS, model="m", config=configure(), runs=tmp_path)


async def test_evaluate_inside_an_event_loop_says_what_to_do(configure: Any, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"await .*run_async"):
        rllm.evaluate(ask, evaluator=digits, dataset=ROWS, config=configure(), runs=tmp_path)
