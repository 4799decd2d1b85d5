"""Chat completions as providers send them, whole or in chunks, made into one shape."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rllm.errors import UpstreamError
from rllm.types import FinishReason, JsonDict, Message, Usage

__all__ = ["Branch", "Completion", "from_body"]

_FINISH = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
    "abort": FinishReason.ABORT,
}


@dataclass(slots=True)
class Branch:
    """One choice as far as it has come."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, JsonDict] = field(default_factory=dict)
    finish: str | None = None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """Of each token that has a log-probability."""

    def message(self) -> Message:
        """The reply in OpenAI's shape."""
        text = "".join(self.content)
        message: Message = {"role": "assistant", "content": text}
        if self.calls:
            message["content"] = text or None
            message["tool_calls"] = [self.calls[at] for at in sorted(self.calls)]
        if reasoning := "".join(self.reasoning):
            message["reasoning_content"] = reasoning
        return message

    @property
    def finish_reason(self) -> FinishReason:
        return _FINISH.get(self.finish or "", FinishReason.STOP)

    def add(self, delta: JsonDict) -> None:
        """A message, whole or a piece of one."""
        if isinstance(text := delta.get("content"), str):
            self.content.append(text)
        for name in ("reasoning_content", "reasoning"):
            if isinstance(text := delta.get(name), str):
                self.reasoning.append(text)
                break
        for at, call in enumerate(delta.get("tool_calls") or ()):
            self._add_call(call, at)

    def _add_call(self, piece: JsonDict, at: int) -> None:
        index = piece.get("index")
        call = self.calls.setdefault(
            at if index is None else int(index),
            {"id": "", "type": "function", "function": {"name": "", "arguments": ""}},
        )
        if piece.get("id"):
            call["id"] = piece["id"]
        function = piece.get("function") or {}
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""

    def add_tokens(self, choice: JsonDict) -> None:
        """Token ids and log-probabilities, where the server sends them."""
        self.ids += choice.get("token_ids") or ()
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, dict):
            entries = logprobs.get("content") or ()
            self.logprobs += [float(entry["logprob"]) for entry in entries]
            self.texts += [str(entry.get("token", "")) for entry in entries]


@dataclass(slots=True)
class Completion:
    """All choices of one answer. Feed it every chunk; each raises `UpstreamError` when it is not one."""

    branches: dict[int, Branch] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    prompt_ids: list[int] = field(default_factory=list)
    version: int | None = None

    def feed(self, chunk: Any) -> None:
        """One chunk of a stream."""
        self._feed(chunk, "delta")

    def complete(self) -> bool:
        """Whether every choice has said why it ended."""
        return bool(self.branches) and all(branch.finish for branch in self.branches.values())

    def _feed(self, body: Any, part: str) -> None:
        try:
            self._read(body, part)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UpstreamError(f"the model provider sent something that is not a chat completion: {error!r}") from None

    def _read(self, body: Any, part: str) -> None:
        if error := body.get("error"):
            raise UpstreamError(f"the model provider broke off: {error}")
        if usage := body.get("usage"):
            self.usage = Usage(
                prompt_tokens=usage.get("prompt_tokens") or 0, completion_tokens=usage.get("completion_tokens") or 0
            )
        if not self.prompt_ids:
            self.prompt_ids = list(body.get("prompt_token_ids") or ())
        if isinstance(version := body.get("weight_version"), int):
            self.version = version
        for at, choice in enumerate(body.get("choices") or ()):
            index = int(choice.get("index", at))
            if (branch := self.branches.get(index)) is None:
                branch = self.branches[index] = Branch()
            branch.add(choice.get(part) or {})
            branch.add_tokens(choice)
            branch.finish = choice.get("finish_reason") or branch.finish
            if not self.prompt_ids:
                self.prompt_ids = list(choice.get("prompt_token_ids") or ())


def from_body(body: Any) -> Completion:
    """A whole answer. Raises `UpstreamError` when it is not one."""
    completion = Completion()
    completion._feed(body, "message")
    if not completion.branches:
        raise UpstreamError(f"the model provider sent no choices but {str(body)[:200]!r}")
    return completion
