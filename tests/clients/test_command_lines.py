"""Agents on the command line, each in the protocols that it speaks: tools run, traces are complete and exact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from client_rig import ODD, Ran, Rig, Workspace, call_text, installed, kinds, served, turns

from rllm.types import Exactness

TASK = "Run the command please"
DONE = "All done."


async def claude(rig: Rig, workspace: Workspace) -> Ran:
    return await workspace.run(
        installed("claude", "node_modules/.bin/claude"), "-p", TASK, "--model", "toy", "--allowedTools", "Bash",
        ANTHROPIC_BASE_URL=rig.base, ANTHROPIC_API_KEY=rig.key, IS_SANDBOX="1",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )  # fmt: skip


async def codex(rig: Rig, workspace: Workspace) -> Ran:
    provider = f'{{name="gateway",base_url="{rig.base}/v1",env_key="GATEWAY_KEY",wire_api="responses"}}'
    quiet = [
        f"-c{name}=false"
        for name in ("analytics.enabled", "check_for_update_on_startup", "features.plugins", "features.apps")
    ]
    return await workspace.run(
        installed("codex", "node_modules/.bin/codex"), "exec", "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox", "-m", "toy", "-c", "model_provider=gateway",
        "-c", f"model_providers.gateway={provider}", *quiet, TASK,
        GATEWAY_KEY=rig.key,
    )  # fmt: skip


async def gemini(rig: Rig, workspace: Workspace) -> Ran:
    workspace.write(
        ".gemini/settings.json",
        {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False},
        },
    )
    return await workspace.run(
        installed("gemini", "node_modules/.bin/gemini"), "-p", TASK, "--yolo", "--skip-trust", "-m", "gemini-2.5-pro",
        GEMINI_API_KEY=rig.key, GOOGLE_GEMINI_BASE_URL=rig.base,
    )  # fmt: skip


def opencode(package: str, path: str) -> Any:
    async def run(rig: Rig, workspace: Workspace) -> Ran:
        model = {"name": "toy", "reasoning": True, "limit": {"context": 200000, "output": 8192}}
        options = {"baseURL": rig.base + path, "apiKey": rig.key}
        config = {
            "permission": "allow", "autoupdate": False, "share": "disabled", "model": "gateway/toy",
            "provider": {"gateway": {"npm": package, "options": options, "models": {"toy": model}}},
        }  # fmt: skip
        return await workspace.run(
            installed("opencode", "node_modules/.bin/opencode"), "run", "--title", "t", TASK,
            OPENCODE_CONFIG_CONTENT=json.dumps(config), OPENCODE_DISABLE_MODELS_FETCH="1",
            OPENCODE_DISABLE_AUTOUPDATE="1",
        )  # fmt: skip

    return run


def pi(api: str, path: str) -> Any:
    async def run(rig: Rig, workspace: Workspace) -> Ran:
        provider = {"baseUrl": rig.base + path, "api": api, "apiKey": rig.key}
        provider["models"] = [{"id": "toy", "reasoning": True}]
        workspace.write(".pi/agent/models.json", {"providers": {"gateway": provider}})
        return await workspace.run(
            installed("pi", "node_modules/.bin/pi"), "-p", TASK, "--provider", "gateway", "--model", "toy",
            PI_OFFLINE="1",
        )  # fmt: skip

    return run


AGENTS = {
    "claude": (claude, "Bash", "command"),
    "codex": (codex, "exec_command", "cmd"),
    "gemini": (gemini, "run_shell_command", "command"),
    "opencode-chat": (opencode("@ai-sdk/openai-compatible", "/v1"), "bash", "command"),
    "opencode-responses": (opencode("@ai-sdk/openai", "/v1"), "bash", "command"),
    "opencode-messages": (opencode("@ai-sdk/anthropic", "/v1"), "bash", "command"),
    "opencode-gemini": (opencode("@ai-sdk/google", "/v1beta"), "bash", "command"),
    "pi-chat": (pi("openai-completions", "/v1"), "bash", "command"),
    "pi-responses": (pi("openai-responses", "/v1"), "bash", "command"),
    "pi-messages": (pi("anthropic-messages", ""), "bash", "command"),
    "pi-gemini": (pi("google-generative-ai", "/v1beta"), "bash", "command"),
}


def arguments(name: str, key: str, command: str) -> dict[str, Any]:
    extra = {"Bash": {"description": "writes"}, "bash": {"description": "writes"}}
    return {key: command, **extra.get(name, {})}


@pytest.mark.parametrize("agent", AGENTS)
async def test_an_agent_runs_its_tool_and_finishes_and_its_trace_is_exact(
    agent: str, model_dir: Path, workspace: Workspace
) -> None:
    run, tool, key = AGENTS[agent]
    script = turns(call_text(tool, arguments(tool, key, "echo hello > made.txt")), DONE)
    async with served(model_dir, script) as rig:
        ran = await run(rig, workspace)
        trace = await rig.finish()
    assert (ran.status, workspace.made("made.txt")) == (0, "hello\n"), ran
    assert DONE in ran.out, ran
    assert kinds(trace) == [Exactness.EXACT] * 2, ran
    assert trace.errors == []


@pytest.mark.parametrize("agent", AGENTS)
async def test_reasoning_odd_text_and_parallel_calls_come_back_as_the_turn_that_was_sampled(
    agent: str, model_dir: Path, workspace: Workspace
) -> None:
    run, tool, key = AGENTS[agent]
    first = "<think>\nLet me think.\n</think>\n\n" + ODD
    first += call_text(tool, arguments(tool, key, "echo one > one.txt"), odd=True)
    first += "\n" + call_text(tool, arguments(tool, key, 'echo "é" > two.txt'), odd=True)
    second = "<think>\nAnd once more.\n</think>\n\n" + call_text(tool, arguments(tool, key, "cat one.txt two.txt"))
    async with served(model_dir, turns(first, second, DONE)) as rig:
        ran = await run(rig, workspace)
        trace = await rig.finish()
    assert (ran.status, workspace.made("one.txt"), workspace.made("two.txt")) == (0, "one\n", "é\n"), ran
    assert kinds(trace) == [Exactness.EXACT] * 3, ran
    assert trace.errors == []
