"""`GET …/models/{id}`, a path that several protocols share: the one model, in the words of all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rllm.gateway.json_text import dumps
from rllm.gateway.protocols.chat import ChatAdapter
from rllm.gateway.protocols.gemini import GeminiAdapter, model_entry

__all__ = ["GeminiModel", "OneModel"]


class OneModel(ChatAdapter):
    """Fields of OpenAI's, Anthropic's and Gemini's shapes, whose names do not collide."""

    def models(self, names: Sequence[str], created: int) -> bytes:
        name = names[0]
        entry = model_entry(name)
        entry |= {"id": name, "object": "model", "created": created, "owned_by": "rllm", "type": "model"}
        entry |= {
            "display_name": name,
            "created_at": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return dumps(entry)


class GeminiModel(GeminiAdapter):
    """The same at a path that is Gemini's alone."""

    def models(self, names: Sequence[str], created: int) -> bytes:
        return dumps(model_entry(names[0]))
