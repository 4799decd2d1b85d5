"""A sampler that says what it is told to: fixed replies, real token arrays, no model.

Tokens are bytes unless another codec is given, so `encode` and `decode` need no tokenizer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rllm.errors import BackendError, ContextOverflow
from rllm.interfaces.sampler import DeltaListener, Sample, SamplingParams
from rllm.types import FinishReason

__all__ = ["ByteCodec", "Codec", "ScriptedSampler"]

Script = Sequence[str | Exception] | Callable[[str], str]


class Codec(Protocol):
    """Text to ids and back."""

    @property
    def end_id(self) -> int:
        """Sampled after a complete reply."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, without the end."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Text of `ids`; the end has none."""
        ...


class ByteCodec:
    """Token i is byte i; token 256 ends a reply."""

    end_id = 256

    def encode(self, text: str) -> list[int]:
        """UTF-8 bytes."""
        return list(text.encode())

    def decode(self, ids: Iterable[int]) -> str:
        """UTF-8 text; bytes that are none become the replacement character."""
        return bytes(each for each in ids if each < 256).decode(errors="replace")


class ScriptedSampler:
    """Gives the replies of a script in order, or whatever a function says to the prompt's text.

    An exception in the script is raised in its turn; when the script is over `sample` raises `BackendError`.
    Every token has log-probability `logprob` and carries `version`, which a test may change at any time.
    """

    def __init__(
        self,
        script: Script,
        *,
        codec: Codec | None = None,
        context_length: int = 1 << 16,
        version: int = 0,
        logprob: float = -0.5,
        delay_s: float = 0.0,
    ) -> None:
        self._script = script if callable(script) else list(script)
        self.codec = codec or ByteCodec()
        self.context_length = context_length
        self.version = version
        self.logprob = logprob
        self.delay_s = delay_s
        """Seconds before each token."""
        self.prompts: list[NDArray[np.int32]] = []
        """Prompts in the order in which they came."""
        self.params: list[SamplingParams] = []
        """Their parameters."""
        self.active = 0
        """Requests that are being answered now."""

    async def sample(
        self, prompt_ids: NDArray[np.int32], params: SamplingParams, *, on_delta: DeltaListener | None = None
    ) -> Sample:
        """The next reply, cut at `max_tokens`, the context, a stop id or a stop text, and then marked so."""
        if prompt_ids.size + 1 > self.context_length:
            raise ContextOverflow(
                f"a prompt of {prompt_ids.size} tokens and a reply do not fit in {self.context_length}"
            )
        self.prompts.append(prompt_ids)
        self.params.append(params)
        planned = [*self.codec.encode(self._next(prompt_ids)), self.codec.end_id]
        room = min(params.max_tokens, self.context_length - prompt_ids.size)
        ids: list[int] = []
        versions: list[int] = []
        reason = FinishReason.LENGTH
        self.active += 1
        try:
            for token in planned[:room]:
                await asyncio.sleep(self.delay_s)
                ids.append(token)
                versions.append(self.version)
                if on_delta is not None:
                    on_delta(np.array([token], dtype=np.int32))
                if self._stops(ids, params):
                    reason = FinishReason.STOP
                    break
        finally:
            self.active -= 1
        return Sample(
            ids=np.array(ids, dtype=np.int32),
            logprobs=np.full(len(ids), self.logprob, dtype=np.float32),
            versions=np.array(versions, dtype=np.int32),
            finish_reason=reason,
        )

    def _next(self, prompt_ids: NDArray[np.int32]) -> str:
        if callable(self._script):
            return self._script(self.codec.decode(prompt_ids.tolist()))
        turn = len(self.prompts) - 1
        if turn >= len(self._script):
            raise BackendError(f"the script has {len(self._script)} replies, and this is call {turn + 1}")
        reply = self._script[turn]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _stops(self, ids: list[int], params: SamplingParams) -> bool:
        if ids[-1] == self.codec.end_id or ids[-1] in params.stop_ids:
            return True
        return bool(params.stop) and any(stop in self.codec.decode(ids) for stop in params.stop)
