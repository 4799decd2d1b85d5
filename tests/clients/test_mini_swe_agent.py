"""mini-swe-agent, which never streams: tool calls over three protocols, and commands as text."""

from __future__ import annotations

from pathlib import Path

import pytest
from client_rig import ODD, Rig, Workspace, call_text, installed, kinds, served, turns

from rllm.types import Exactness

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
WIRES = {
    "chat": ("openai/toy", ()),
    "text": ("openai/toy", ("-c", "mini_textbased.yaml", "-c", "model.model_class=litellm_textbased")),
    "responses": ("openai/toy", ("-c", "mini.yaml", "-c", "model.model_class=litellm_response")),
    "messages": ("anthropic/claude-toy", ()),
}


async def mini(rig: Rig, workspace: Workspace, wire: str) -> str:
    model, options = WIRES[wire]
    ran = await workspace.run(
        installed("mini", "bin/mini"), "--yolo", "--exit-immediately", *options, "-m", model, "-t", "Make the file",
        "-o", workspace.root / "trajectory.json",
        LITELLM_LOCAL_MODEL_COST_MAP="True", MSWEA_CONFIGURED="true", MSWEA_SILENT_STARTUP="1",
        MSWEA_COST_TRACKING="ignore_errors", OPENAI_API_KEY=rig.key, OPENAI_API_BASE=f"{rig.base}/v1",
        ANTHROPIC_API_KEY=rig.key, ANTHROPIC_API_BASE=rig.base,
    )  # fmt: skip
    assert ran.status == 0, ran
    return str(ran)


@pytest.mark.parametrize("wire", WIRES)
async def test_commands_are_run_until_the_agent_submits_and_the_trace_is_exact(
    wire: str, model_dir: Path, workspace: Workspace
) -> None:
    commands = ["echo hello > made.txt", SUBMIT]
    if wire == "text":
        replies = [f"{ODD}```mswea_bash_command\n{command}\n```" for command in commands]
        script = turns(*replies, needs_tools=False)
    else:
        thought = "<think>\nLet me think.\n</think>\n\n" + ODD
        script = turns(*(thought + call_text("bash", {"command": command}, odd=True) for command in commands))
    async with served(model_dir, script) as rig:
        ran = await mini(rig, workspace, wire)
        trace = await rig.finish()
    assert workspace.made("made.txt") == "hello\n", ran
    assert kinds(trace) == [Exactness.EXACT] * 2, ran
    assert trace.errors == []
