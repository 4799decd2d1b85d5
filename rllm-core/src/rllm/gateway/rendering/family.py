"""Renderers of the model families that the `renderers` package knows, behind our contract.

The package maps Hugging Face names (`organisation/model`) only, so that any other name costs no import.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllm import arrays
from rllm.errors import ModelError, RequestError, boundary, one_line
from rllm.gateway.rendering.normal import for_template
from rllm.gateway.rendering.renderer import Extension, Renderer, ReplyStream, Turn
from rllm.gateway.rendering.replytext import cut_at_stop
from rllm.gateway.rendering.tokens import TextTokenizer
from rllm.ids import new_id
from rllm.types import JsonDict, Message

__all__ = ["FamilyRenderer", "family_renderer"]


def family_renderer(tokenizer: TextTokenizer, model_name: str) -> Renderer | None:
    """The family's renderer, or None when the package does not know the model."""
    if model_name.count("/") != 1:
        return None
    try:
        from renderers import AutoRendererConfig, create_renderer
        from renderers.base import MODEL_RENDERER_MAP
    except ImportError as error:
        raise ModelError(
            f"model {model_name!r} needs the package `renderers`, which cannot be imported ({one_line(error)}): "
            "pip install 'rllm-core[tokens]'"
        ) from error
    if model_name not in MODEL_RENDERER_MAP:
        return None
    with boundary(ModelError, f"renderer of {model_name!r}"):
        adapter = _Tokenizer(tokenizer, model_name)
        try:
            made = create_renderer(adapter, AutoRendererConfig(thinking_retention="all"))
        except (ValueError, NotImplementedError):
            made = create_renderer(adapter)
    return FamilyRenderer(tokenizer, made)


class _Tokenizer:
    """What the package asks of a tokenizer."""

    def __init__(self, tokenizer: TextTokenizer, name: str) -> None:
        self._tokenizer = tokenizer
        self.name_or_path = name
        unknown, eos = tokenizer.named("unk_token"), tokenizer.named("eos_token")
        self.unk_token_id = None if unknown is None else tokenizer.id(unknown)
        self.eos_token_id = None if eos is None else tokenizer.id(eos)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [int(id) for id in self._tokenizer.encode(text)]

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        if skip_special_tokens:
            ids = [id for id in ids if id not in self._tokenizer.special]
        return self._tokenizer.decode(ids)

    def convert_tokens_to_ids(self, tokens: str | list[str]) -> Any:
        if isinstance(tokens, list):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        found = self._tokenizer.id(tokens)
        return self.unk_token_id if found is None else found


class FamilyRenderer:
    """Adapts one renderer of the package. Streamed replies come out when they are complete: what a family's markup
    means is known only to its parser, which reads whole replies."""

    def __init__(self, tokenizer: TextTokenizer, renderer: Any) -> None:
        self._tokenizer = tokenizer
        self._renderer = renderer
        self._stop_ids = tuple(int(id) for id in renderer.get_stop_token_ids())

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return self._stop_ids

    def render(self, messages: Sequence[Message], tools: list[JsonDict] | None) -> NDArray[np.int32]:
        normal = for_template(messages)
        with boundary(RequestError, "the model's renderer refuses these messages"):
            return arrays.ids(self._renderer.render_ids(normal, tools=tools or None, add_generation_prompt=True))

    def encode(self, prompt: str | Sequence[int]) -> NDArray[np.int32]:
        return self._tokenizer.encode(prompt) if isinstance(prompt, str) else self._tokenizer.known(prompt)

    def decode(self, ids: Sequence[int] | NDArray[np.int32]) -> str:
        return self._tokenizer.decode(ids)

    def extend(self, turn: Turn) -> Extension | None:
        before = np.concatenate([turn.prompt_ids, turn.response_ids])
        new = for_template(turn.new_messages)
        with boundary(RequestError, "the model's renderer refuses these messages"):
            bridged = self._renderer.bridge_to_next_turn(
                turn.prompt_ids.tolist(), turn.response_ids.tolist(), new, tools=turn.tools or None
            )
        if bridged is None:
            return None
        ids = arrays.ids(bridged.token_ids)
        if ids.size <= before.size or not np.array_equal(ids[: before.size], before):
            return None
        ended = bool(turn.response_ids.size) and int(turn.response_ids[-1]) in self._stop_ids
        return Extension(ids[before.size :].copy(), not ended)

    def parse(
        self,
        response_ids: NDArray[np.int32],
        *,
        prompt_ids: NDArray[np.int32],
        tools: list[JsonDict] | None,
        stop: Sequence[str] = (),
    ) -> Message:
        ids = response_ids.tolist()
        if stop:
            ids = self._before_stop(ids, stop)
        with boundary(ModelError, "the model's reply parser"):
            parsed = self._renderer.parse_response(ids, tools=tools or None, prompt_ids=prompt_ids.tolist())
        content = cut_at_stop(parsed.content or "", stop)
        message: Message = {"role": "assistant", "content": content}
        if parsed.reasoning_content:
            message["reasoning_content"] = cut_at_stop(parsed.reasoning_content, stop)
        calls = [call for call in parsed.tool_calls if tools and str(call.status) == "ok"]
        texts = [self._written(call, ids) for call in parsed.tool_calls if call not in calls]
        content += "".join(text for text in texts if text not in content)
        message["content"] = content or (None if calls else "")
        if calls:
            message["tool_calls"] = [_call(call) for call in calls]
        return message

    def _written(self, call: Any, ids: list[int]) -> str:
        """An attempted call as the model wrote it."""
        if call.token_span is None:
            return str(call.raw)
        low, high = call.token_span
        return self._tokenizer.decode(ids[low:high])

    def stream(
        self, *, prompt_ids: NDArray[np.int32], tools: list[JsonDict] | None, stop: Sequence[str] = ()
    ) -> ReplyStream:
        return _Whole()

    def _before_stop(self, ids: list[int], stop: Sequence[str]) -> list[int]:
        """The shortest beginning of `ids` whose text holds a stop string, or all of them."""
        low, high = 0, len(ids)
        if cut_at_stop(text := self._tokenizer.decode(ids), stop) == text:
            return ids
        while low < high:
            middle = (low + high) // 2
            text = self._tokenizer.decode(ids[:middle])
            low, high = (low, middle) if cut_at_stop(text, stop) != text else (middle + 1, high)
        return ids[:low]


class _Whole:
    def feed(self, ids: NDArray[np.int32]) -> tuple[str, str]:
        return "", ""


def _call(call: Any) -> JsonDict:
    arguments = call.arguments
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    return {
        "id": call.id or new_id("call"),
        "type": "function",
        "function": {"name": call.name or "", "arguments": arguments},
    }
