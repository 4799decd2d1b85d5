"""Between messages and token ids: the contract, and how a model's directory is given a renderer.

Model families that the `renderers` package knows by their Hugging Face name are rendered by it; anything else by the
chat template in its directory. Both are imported when a renderer is loaded, not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rllm.errors import MissingDependency
from rllm.types import JsonDict, Message

__all__ = ["Extension", "Renderer", "ReplyStream", "Turn", "load_renderer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A finished call and what the agent says next."""

    prompt_ids: NDArray[np.int32]
    response_ids: NDArray[np.int32]
    history: Sequence[Message]
    """Everything up to the reply, the reply last, as the agent sent it back."""
    new_messages: Sequence[Message]
    tools: list[JsonDict] | None = None


@dataclass(frozen=True, slots=True)
class Extension:
    """What follows `prompt_ids + response_ids` in the next prompt."""

    ids: NDArray[np.int32]
    closed: bool
    """The reply had not ended its turn (cut, or stopped by a string), so that the renderer ended it."""


class ReplyStream(Protocol):
    """Turns one reply's ids into text while they are sampled."""

    def feed(self, ids: NDArray[np.int32]) -> tuple[str, str]:
        """New reasoning and new content, each a piece of what `Renderer.parse` makes of the complete reply.

        Nothing is given out that a later id could change: no half character, no beginning of a stop string, no
        markup.
        """
        ...


class Renderer(Protocol):
    """Stateless and safe to share. Every prompt of a conversation must come from one renderer."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end an assistant turn."""
        ...

    def render(self, messages: Sequence[Message], tools: list[JsonDict] | None) -> NDArray[np.int32]:
        """The prompt for the next reply. Raises `RequestError` when the model cannot be shown these messages."""
        ...

    def extend(self, turn: Turn) -> Extension | None:
        """Only the ids that are new, or None when it cannot be shown that they continue the sampled ones."""
        ...

    def parse(
        self,
        response_ids: NDArray[np.int32],
        *,
        prompt_ids: NDArray[np.int32],
        tools: list[JsonDict] | None,
        stop: Sequence[str] = (),
    ) -> Message:
        """The assistant message that `response_ids` mean: `role`, `content` and, where there are any,
        `reasoning_content` and `tool_calls`. Without `tools`, markup of tool calls is text. Never raises for what a
        model may have sampled."""
        ...

    def stream(
        self, *, prompt_ids: NDArray[np.int32], tools: list[JsonDict] | None, stop: Sequence[str] = ()
    ) -> ReplyStream: ...

    def encode(self, prompt: str | Sequence[int]) -> NDArray[np.int32]:
        """Ids of a prompt that is continued as it is, with nothing put before it; names of special tokens mean them.

        Raises `RequestError` for text that is not Unicode and for an id that no token has.
        """
        ...

    def decode(self, ids: Sequence[int] | NDArray[np.int32]) -> str:
        """Their text, special tokens included."""
        ...


def load_renderer(tokenizer_dir: str | Path, model_name: str) -> Renderer:
    """The renderer of a model. Raises `ModelError` when its directory lacks a tokenizer or a chat template."""
    try:
        import jinja2  # noqa: F401
        import tokenizers  # noqa: F401
    except ImportError as error:
        raise MissingDependency(f"rendering messages needs {error.name!r}: pip install 'rllm-core[tokens]'") from error
    from rllm.gateway.rendering.family import family_renderer
    from rllm.gateway.rendering.template import TemplateRenderer
    from rllm.gateway.rendering.tokens import TextTokenizer

    tokenizer = TextTokenizer.load(Path(tokenizer_dir), model_name)
    return family_renderer(tokenizer, model_name) or TemplateRenderer.load(tokenizer)
