"""What real agents do when the model server fails, and what the record then holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from client_rig import Workspace, call_text, check, kinds, served, turns
from test_command_lines import AGENTS, DONE, arguments

from rllm.errors import ContextOverflow, UpstreamError
from rllm.gateway import SessionSpec
from rllm.types import Exactness, Termination

FAILURES: dict[str, Callable[[], Exception]] = {
    "429": lambda: UpstreamError("slow down", status=429, retry_after="1"),
    "500": lambda: UpstreamError("broken", status=500),
    "503": lambda: UpstreamError("overloaded", status=503),
}
RETRYING = ("claude", "codex", "pi-messages", "pi-chat")


def tool_then_done(agent: str) -> Callable[[str], str]:
    _, tool, key = AGENTS[agent]
    return turns(call_text(tool, arguments(tool, key, "echo hello >> made.txt")), DONE)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("agent", RETRYING)
async def test_a_failed_call_is_asked_again_and_is_in_the_record_as_an_error_only(
    agent: str, failure: str, model_dir: Path, workspace: Workspace
) -> None:
    async with served(model_dir, tool_then_done(agent)) as rig:
        sample, failed = rig.model.sample, []

        async def failing(*args: Any, **options: Any) -> Any:
            if len(rig.model.samples) == 1 and not failed:
                failed.append(True)
                raise FAILURES[failure]()
            return await sample(*args, **options)

        rig.model.sample = failing  # type: ignore[method-assign]
        ran = await AGENTS[agent][0](rig, workspace)
        trace = await rig.finish()
    assert (ran.status, workspace.made("made.txt")) == (0, "hello\n"), ran
    assert kinds(trace) == [Exactness.EXACT] * 2, ran
    assert [error.status for error in trace.errors] == [int(failure)]


@pytest.mark.parametrize("agent", ["claude", "codex", "pi-messages"])
async def test_a_stream_that_breaks_off_is_asked_for_again_and_none_of_it_is_recorded(
    agent: str, model_dir: Path, workspace: Workspace
) -> None:
    async with served(model_dir, tool_then_done(agent)) as rig:
        sample, failed = rig.model.sample, []

        async def failing(prompt: Any, params: Any, *, on_delta: Any = None) -> Any:
            if not failed and on_delta is not None:
                failed.append(True)
                on_delta(rig.model.script(prompt, params)[:0] or [104, 101])
                raise UpstreamError("cut", status=502)
            return await sample(prompt, params, on_delta=on_delta)

        rig.model.sample = failing  # type: ignore[method-assign]
        ran = await AGENTS[agent][0](rig, workspace)
        trace = await rig.session.close()
    check(trace, rig.model, rig.renderer)
    assert (ran.status, workspace.made("made.txt")) == (0, "hello\n"), ran
    assert len(trace.errors) == 1


async def test_claude_code_compacts_when_its_prompt_is_too_long_and_no_token_is_lost(
    model_dir: Path, workspace: Workspace
) -> None:
    command = "yes wordy | head -c 20000; echo hello > made.txt"
    replies = [
        call_text("Bash", {"command": command, "description": "d"}),
        "<summary>The user wants the command run, and it was.</summary>",
        DONE,
    ]
    async with served(model_dir, lambda prompt: replies.pop(0)) as rig:
        sample, refused = rig.model.sample, []

        async def limited(prompt: Any, params: Any, *, on_delta: Any = None) -> Any:
            if len(rig.model.samples) == 1 and not refused:
                refused.append(prompt.size)
                raise ContextOverflow("too long", prompt_tokens=int(prompt.size), limit_tokens=int(prompt.size) - 1)
            return await sample(prompt, params, on_delta=on_delta)

        rig.model.sample = limited  # type: ignore[method-assign]
        ran = await AGENTS["claude"][0](rig, workspace)
        trace = await rig.finish()
    assert (ran.status, DONE in ran.out, workspace.made("made.txt")) == (0, True, "hello\n"), ran
    # The summary is asked for without the tools, which the prompt shows first, and what follows is a new conversation.
    assert kinds(trace) == [Exactness.EXACT, Exactness.FORKED, Exactness.EXACT]
    assert [error.code for error in trace.errors] == ["context_length_exceeded"]
    assert trace.termination is None


@pytest.mark.parametrize("agent", ["claude", "codex", "pi-chat", "gemini"])
async def test_a_spent_budget_ends_an_agent_and_says_why(agent: str, model_dir: Path, workspace: Workspace) -> None:
    spec = SessionSpec(sampling={"temperature": 1.0}, default_max_tokens=4000, max_calls=1)
    async with served(model_dir, tool_then_done(agent), spec=spec) as rig:
        ran = await AGENTS[agent][0](rig, workspace)
        trace = await rig.finish()
    assert DONE not in ran.out, ran
    assert len(trace.calls) == 1, ran
    assert trace.termination is Termination.BUDGET
    assert {error.code for error in trace.errors} == {"session_budget_exceeded"}
