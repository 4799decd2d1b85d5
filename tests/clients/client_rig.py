"""What the tests of real agents share: the served model, the programs' surroundings, and what a trace must hold."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gateway_toy import ScriptedSampler, Toy

from rllm.gateway import Gateway, Renderer, SessionSpec, TokenUpstream, Trace, load_renderer
from rllm.gateway.rendering.renderer import Turn
from rllm.gateway.session import Session
from rllm.interfaces.sampler import DeltaListener, Sample, SamplingParams
from rllm.trainer.rows import trajectory_rows
from rllm.types import CapturedCall, Exactness, Step, Trajectory, tokens_of

CLIENTS = Path(os.environ.get("RLLM_CACHE", Path.home() / ".cache/rllm")) / "clients"
TURN = "<|im_start|>assistant\n"
END = "<|im_end|>"
ODD = "Let me run it — é ✓.\n\n"
"""Text with what clients are known to trim or to re-encode."""


def installed(name: str, path: str) -> Path:
    """A program that tools/clients.sh has put in place."""
    found = CLIENTS / name / path
    if not found.exists():
        raise FileNotFoundError(f"{found} is missing: run tools/clients.sh")
    return found


def call_text(name: str, arguments: dict[str, Any], *, odd: bool = False) -> str:
    """A tool call as the toy model writes it; `odd` spells its JSON as nobody would."""
    written = json.dumps(arguments, ensure_ascii=False)
    if odd:
        written = json.dumps(arguments, ensure_ascii=False, separators=(" ,  ", " :  ")).replace("{", "{ ", 1)
    return f'<tool_call>\n{{"name": "{name}", "arguments": {written}}}\n</tool_call>'


class Model(ScriptedSampler):
    """Says what `script(prompt text)` says; every token of every sample has a log-probability of its own."""

    def __init__(self, toy: Toy, script: Callable[[str], str], context_length: int) -> None:
        super().__init__(lambda prompt, params: toy.ids(script(toy.text(prompt)) + END), context_length=context_length)

    async def sample(self, prompt_ids: Any, params: SamplingParams, *, on_delta: DeltaListener | None = None) -> Sample:
        sample = await super().sample(prompt_ids, params, on_delta=on_delta)
        sample.logprobs[:] = -len(self.samples) - np.arange(sample.ids.size, dtype=np.float32) / 4096
        return sample


def turns(*replies: str, needs_tools: bool = True) -> Callable[[str], str]:
    """Replies by the number of replies that the conversation holds already; `ok` to requests beside the agent's own,
    which offer no tools."""

    def script(prompt: str) -> str:
        if needs_tools and '"parameters"' not in prompt:
            return "ok"
        return replies[min(prompt.count(TURN) - 1, len(replies) - 1)]

    return script


@dataclass
class Rig:
    """A served model and one session."""

    gateway: Gateway
    session: Session
    model: Model
    renderer: Renderer

    @property
    def base(self) -> str:
        """The session's URL, without a version."""
        return self.session.url

    @property
    def key(self) -> str:
        return self.session.agent_config().api_key

    async def finish(self) -> Trace:
        """The session's trace, proven complete and exact."""
        trace = await self.session.close()
        check(trace, self.model, self.renderer)
        return trace


@asynccontextmanager
async def served(
    model_dir: Path, script: Callable[[str], str], *, context_length: int = 400_000, spec: SessionSpec | None = None
) -> AsyncIterator[Rig]:
    model = Model(Toy(model_dir), script, context_length)
    renderer = load_renderer(model_dir, "toy")
    async with Gateway(TokenUpstream(model, renderer, "toy")) as gateway:
        spec = spec or SessionSpec(sampling={"temperature": 1.0}, default_max_tokens=4000)
        yield Rig(gateway, gateway.open_session(spec), model, renderer)


@dataclass
class Ran:
    """What became of a program."""

    status: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit status {self.status}\n--- stdout\n{self.out[-6000:]}\n--- stderr\n{self.err[-6000:]}"


@dataclass
class Workspace:
    """A home and a git repository that belong to one program."""

    root: Path
    home: Path = field(init=False)
    repository: Path = field(init=False)

    def __post_init__(self) -> None:
        self.home = self.root / "home"
        self.repository = self.root / "work"
        for folder in (self.home, self.repository):
            folder.mkdir()
        subprocess.run(["git", "init", "-q", str(self.repository)], check=True)

    def write(self, path: str, value: Any) -> None:
        """A file below the home; JSON unless it is text."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value if isinstance(value, str) else json.dumps(value))

    async def run(self, *command: str | Path, timeout_s: float = 90.0, **environment: str) -> Ran:
        """Run to the end; a program that does not come to one is killed with its children."""
        path = f"{installed('node', 'node_modules/node/bin')}:{os.environ['PATH']}"
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            cwd=self.repository,
            env={"HOME": str(self.home), "PATH": path, "TERM": "dumb", "LANG": "C.UTF-8", **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(timeout_s):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))

    def made(self, name: str) -> str:
        """A file that the agent's tool was to write."""
        path = self.repository / name
        return path.read_text() if path.exists() else ""


def check(trace: Trace, model: Model, renderer: Renderer) -> None:
    """Every sample is in the trace once, with its own log-probabilities, after the prompt that it was drawn from; that
    prompt is what rendering the recorded messages gives; and rows train each sampled token once and nothing else."""
    calls = trace.calls
    prompts = {float(sample.logprobs[0]): at for at, sample in enumerate(model.samples)}
    assert len(prompts) == len(model.samples) == len(calls), (len(model.samples), len(calls), trace.errors)
    by_id = {call.id: call for call in calls}
    for call in calls:
        at = prompts.pop(float(call.logprobs[0]))
        sample = model.samples[at]
        assert np.array_equal(call.response_ids, sample.ids)
        assert np.array_equal(call.logprobs, sample.logprobs)
        sampled_from = tokens_of(call, calls)[: -call.response_ids.size]
        assert np.array_equal(sampled_from, model.prompts[at])
        assert np.array_equal(rendered(call, by_id, renderer), model.prompts[at])
    trajectory = Trajectory(steps=[Step(call=call) for call in calls])
    rows = trajectory_rows(trajectory, 1.0, by_id, temperature=1.0, episode_id="e")
    trained = [row.logprobs[row.mask == 1] for row in rows]
    assert sorted(np.concatenate(trained)) == sorted(np.concatenate([sample.logprobs for sample in model.samples]))
    assert all((row.logprobs[row.mask == 0] == 0).all() for row in rows)


def rendered(call: CapturedCall, calls: dict[str, CapturedCall], renderer: Renderer) -> np.ndarray:
    """The prompt of a call, from what was recorded and nothing else."""
    if call.parent_id is None:
        return renderer.render(call.new_messages, call.tools)
    parent = calls[call.parent_id]
    before = rendered(parent, calls, renderer)
    history = history_of(parent, calls)
    turn = Turn(
        prompt_ids=before,
        response_ids=parent.response_ids,
        history=[*history, parent.reply],
        new_messages=call.new_messages,
        tools=call.tools,
    )
    extension = renderer.extend(turn)
    assert extension is not None
    return np.concatenate([before, parent.response_ids, extension.ids])


def history_of(call: CapturedCall, calls: dict[str, CapturedCall]) -> list[dict[str, Any]]:
    """The messages of a call's prompt."""
    if call.parent_id is None:
        return list(call.new_messages)
    parent = calls[call.parent_id]
    return [*history_of(parent, calls), parent.reply, *call.new_messages]


def kinds(trace: Trace) -> list[Exactness]:
    return [call.exactness for call in trace.calls]
