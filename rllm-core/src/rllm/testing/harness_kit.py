"""What every agent program promises, tried against a scripted model server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rllm.errors import AgentError, RllmError, boundary
from rllm.interfaces.harness import Harness
from rllm.interfaces.sandbox import Sandbox
from rllm.testing.model_server import ScriptedModelServer
from rllm.testing.promise import Kit, fill_in, promise
from rllm.types import AgentConfig, Episode, Task, Trajectory

__all__ = ["HarnessConformance"]

MakeHarness = Callable[[], Harness]


class HarnessConformance(Kit):
    """Subclass it and return, from the fixture `make_harness`, a function that makes the harness.

    The server speaks OpenAI's chat protocol. A harness that needs a sandbox overrides `env` as well, and one
    whose agent does not stop at a plain reply gives `replies` that end its run.
    """

    deadline_s = 60.0
    replies: Sequence[str | dict[str, Any]] = ("The answer is 4.",)
    """What the model says, in order; the last one repeats."""
    cancel_s = 5.0
    """Seconds in which a cancelled run must have ended."""

    @pytest.fixture
    def make_harness(self) -> MakeHarness:
        """Makes the harness under test."""
        fill_in("make_harness", "HarnessConformance", "a function that makes the harness")

    def env(self) -> Sandbox | None:
        """The sandbox that the agent gets; None unless the spec says `needs_sandbox`."""
        return None

    def task(self) -> Task:
        """The task that the promises are tried on."""
        return Task(id="kit/1", instruction="What is 2 + 2? Marker: kestrel-7041.")

    def config(self, server: ScriptedModelServer, session: str = "s1") -> AgentConfig:
        """How the agent reaches `server`."""
        return AgentConfig(
            base_url=server.base_url(session), model="kit-model", api_key=f"key-{session}", session_id=session
        )

    @promise
    async def test_returns_what_the_engine_takes(self, make_harness: MakeHarness) -> None:
        async with ScriptedModelServer(self.replies) as server:
            found = await make_harness().run(self.task(), self.config(server), self.env())
            taken = found is None or isinstance(found, Episode | Trajectory)
            if isinstance(found, list):
                taken = bool(found) and all(isinstance(each, Trajectory) for each in found)
            assert taken, f"run returned {found!r}; expected None, an Episode, a Trajectory or a list of them"

    @promise
    async def test_shows_the_model_the_instruction(self, make_harness: MakeHarness) -> None:
        async with ScriptedModelServer(self.replies) as server:
            await make_harness().run(self.task(), self.config(server), self.env())
            assert server.requests, "the harness never called the model"
            sent = json.dumps(server.requests[0].body.get("messages"))
            assert "kestrel-7041" in sent, f"the instruction is not in the first call's messages: {sent[:500]}"

    @promise
    async def test_uses_the_key_and_model_of_its_configuration(self, make_harness: MakeHarness) -> None:
        async with ScriptedModelServer(self.replies) as server:
            await make_harness().run(self.task(), self.config(server), self.env())
            used = {(each.key, each.body.get("model")) for each in server.requests}
            assert used == {("key-s1", "kit-model")}, f"key and model of the calls: {used!r}"

    @promise
    async def test_keeps_concurrent_runs_apart(self, make_harness: MakeHarness) -> None:
        async with ScriptedModelServer(self.replies) as server:
            harness = make_harness()
            names = [f"s{n}" for n in range(4)]
            tasks = [Task(id=name, instruction=f"Say hello. Marker: {name}-end.") for name in names]
            await asyncio.gather(
                *(
                    harness.run(task, self.config(server, name), self.env())
                    for task, name in zip(tasks, names, strict=True)
                )
            )
            for request in server.requests:
                text = json.dumps(request.body)
                assert request.key == f"key-{request.session}", f"session {request.session} used {request.key!r}"
                seen = [name for name in names if f"{name}-end" in text]
                assert seen == [request.session], f"session {request.session} asked about {seen}"
            assert {each.session for each in server.requests} == set(names), "a run made no call"

    @promise
    async def test_runs_again(self, make_harness: MakeHarness) -> None:
        async with ScriptedModelServer(self.replies) as server:
            harness = make_harness()
            counts = []
            for session in ("s1", "s2"):
                await harness.run(self.task(), self.config(server, session), self.env())
                counts.append(sum(each.session == session for each in server.requests))
            assert counts[1] > 0, "the second run of one harness made no call"
            last = next(each for each in server.requests if each.session == "s2")
            first = server.requests[0]
            assert last.body.get("messages") == first.body.get("messages"), "a run carries over what one before it said"

    @promise
    async def test_fails_when_the_model_refuses(self, make_harness: MakeHarness) -> None:
        async with ScriptedModelServer(refusal=403) as server:
            failed = False
            try:
                async with boundary(AgentError, "the harness"):
                    await make_harness().run(self.task(), self.config(server), self.env())
            except RllmError:
                failed = True
            assert failed, "the model refused every call, and run ended as if nothing had happened"

    @promise
    async def test_ends_every_call_when_cancelled(self, make_harness: MakeHarness) -> None:
        async with ScriptedModelServer(silent=True) as server:
            running = asyncio.ensure_future(make_harness().run(self.task(), self.config(server), self.env()))
            await server.arrived.wait()
            running.cancel()
            done, _ = await asyncio.wait([running], timeout=self.cancel_s)
            assert done, f"a cancelled run had not ended after {self.cancel_s} s"
            assert running.cancelled(), "a cancelled run ended as if it were complete"
            for _ in range(50):
                if not server.active:
                    break
                await asyncio.sleep(0.02)
            assert not server.active, "a call of a cancelled run is still open"

    @promise
    async def test_leaves_no_work_behind(self, make_harness: MakeHarness) -> None:
        async with ScriptedModelServer(self.replies) as server:
            harness = make_harness()
            before = asyncio.all_tasks()
            await harness.run(self.task(), self.config(server), self.env())
            served = len(server.requests)
            await asyncio.sleep(0.1)
            new = asyncio.all_tasks() - before
            left = [each for each in new if "RequestHandler" not in repr(each)]  # the server's own connections
            assert not left, f"still running after the run: {left!r}"
            assert len(server.requests) == served, "the model was called after the run had ended"

    @promise
    async def test_leaves_the_task_alone(self, make_harness: MakeHarness) -> None:
        async with ScriptedModelServer(self.replies) as server:
            task = self.task()
            await make_harness().run(task, self.config(server), self.env())
            assert task == self.task(), f"the harness changed the task to {task!r}"
