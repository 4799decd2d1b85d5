"""Prompts that are continued as they are (`completions`): no chat template before, no parsing after.

Such a call starts a path of its own, unless its ids begin with everything that a known call of the session read and
wrote: then it is that call's child and stores only what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from rllm import arrays
from rllm.gateway.canonical import History
from rllm.gateway.graph import Node, Prompt
from rllm.gateway.rendering.renderer import Renderer
from rllm.gateway.rendering.replytext import cut_at_stop
from rllm.gateway.session import Session
from rllm.types import Exactness, Message

__all__ = ["TextReply", "plan_text", "read_text"]


def plan_text(session: Session, text: str | tuple[int, ...], renderer: Renderer) -> Prompt:
    """What such a request is answered from. Raises `RequestError` for ids that the model has no token for."""
    ids = renderer.encode(text)
    parent, known = _continued(session, ids)
    added = ids[known:]
    history = History(blake2b(b"ids\0" + ids.tobytes(), digest_size=16))
    message: Message = {"role": "user", "content": renderer.decode(added)}
    return Prompt(history, [message], Exactness.EXACT, parent, ids, added)


def read_text(ids: NDArray[np.int32], renderer: Renderer, stop: Sequence[str]) -> Message:
    """The reply: all that was sampled, up to a stop string or the id that ended it."""
    return {"role": "assistant", "content": cut_at_stop(renderer.decode(_open(ids, renderer)), stop)}


class TextReply:
    """`ReplyStream` of such a reply."""

    def __init__(self, renderer: Renderer, stop: Sequence[str]) -> None:
        self._renderer = renderer
        self._stop = tuple(stop)
        self._ids = arrays.ids()
        """The window: the last ids that are out as text, then those that are not."""
        self._shown = 0
        """How many of them are out."""
        self._text = ""
        """What is known and not given out: it may be the beginning of a stop string."""
        self._stopped = False

    def feed(self, ids: NDArray[np.int32]) -> tuple[str, str]:
        if self._stopped:
            return "", ""
        self._ids = np.concatenate([self._ids, _open(ids, self._renderer)])
        before = self._renderer.decode(self._ids[: self._shown])
        after = self._renderer.decode(self._ids)
        if len(after) <= len(before) or after.endswith("\ufffd"):
            return "", ""
        self._text += after[len(before) :]
        self._ids = self._ids[self._shown :]
        self._shown = self._ids.size
        cut = cut_at_stop(self._text, self._stop)
        self._stopped = len(cut) < len(self._text)
        given = len(cut) if self._stopped else len(cut) - self._held()
        self._text, piece = cut[given:], cut[:given]
        return "", piece

    def _held(self) -> int:
        """Length of the longest end of the text that a stop string begins with."""
        longest = max(map(len, self._stop), default=0)
        sizes = range(min(longest - 1, len(self._text)), 0, -1)
        return next((size for size in sizes if any(stop.startswith(self._text[-size:]) for stop in self._stop)), 0)


def _open(ids: NDArray[np.int32], renderer: Renderer) -> NDArray[np.int32]:
    """The ids without the one that ended the reply."""
    return ids[:-1] if ids.size and int(ids[-1]) in renderer.stop_ids else ids


def _continued(session: Session, ids: NDArray[np.int32]) -> tuple[Node | None, int]:
    """The call with the longest tokens that `ids` begin with, and their number.

    Of several with the same tokens (parallel samples that said the same) the one with the fewest continuations.
    """
    ends: dict[str, int] = {}
    for call in session.calls:  # parents come before their children
        start = 0 if call.parent_id is None else ends.get(call.parent_id)
        if start is None or call.exactness is Exactness.INEXACT or not call.response_ids.size:
            continue
        middle = start + call.added_ids.size
        end = middle + call.response_ids.size
        if np.array_equal(ids[start:middle], call.added_ids) and np.array_equal(ids[middle:end], call.response_ids):
            ends[call.id] = end
    longest = max(ends.values(), default=0)
    nodes = [node for id, end in ends.items() if end == longest and (node := session.graph.node(id)) is not None]
    return (min(nodes, key=lambda node: node.children), longest) if nodes else (None, 0)
