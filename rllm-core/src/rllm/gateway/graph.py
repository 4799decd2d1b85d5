"""The message graph of a session: which calls continue which, token for token.

A node is a captured call. Its key is the conversation that it ends: the request's messages and its reply, compared by
meaning (`canonical`). A new request is matched with the node whose conversation is the longest beginning of the
request's messages; that node's prompt and sampled ids are kept and only what follows is rendered. Where several nodes
end the same conversation (parallel samples that said the same), the one whose tool-call ids, role and exact text
agree is taken, then the one with the fewest continuations.

A request that continues nothing known starts a path of its own. A request is `forked` when the session already has
calls and it holds an assistant turn that none of them explains: edited, summarised, or one that the renderer could
not continue. That turn is context; the prompt is exact in itself, whether freshly rendered or after a known beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rllm.gateway.canonical import History, start
from rllm.gateway.rendering.renderer import Renderer, Turn
from rllm.types import CapturedCall, Exactness, JsonDict, Message

__all__ = ["MessageGraph", "Node", "Prompt"]


@dataclass(slots=True, eq=False)
class Node:
    """A call in the graph."""

    call: CapturedCall
    parent: Node | None
    children: int = 0

    def tokens(self) -> NDArray[np.int32]:
        """Prompt and reply in full."""
        parts: list[NDArray[np.int32]] = []
        node: Node | None = self
        while node is not None:
            parts += (node.call.response_ids, node.call.added_ids)
            node = node.parent
        return np.concatenate(parts[::-1])

    def prompt(self) -> NDArray[np.int32]:
        """The prompt in full."""
        if self.parent is None:
            return self.call.added_ids
        return np.concatenate([self.parent.tokens(), self.call.added_ids])


@dataclass(slots=True, eq=False)
class Prompt:
    """What a request is answered from."""

    history: History
    """Key of the request's messages; the reply is added to it."""
    new_messages: list[Message]
    exactness: Exactness
    parent: Node | None = None
    ids: NDArray[np.int32] | None = None
    """The prompt in full; None where only the model server knows it."""
    added_ids: NDArray[np.int32] | None = None


Render = Callable[[Sequence[Message], list[JsonDict] | None, bytes], NDArray[np.int32]]
"""Renders a whole conversation; the key identifies it."""


class MessageGraph:
    """Nodes of one session."""

    def __init__(self) -> None:
        self._nodes: dict[bytes, list[Node]] = {}

    def __len__(self) -> int:
        return sum(len(nodes) for nodes in self._nodes.values())

    def node(self, call_id: str) -> Node | None:
        """The node of a call."""
        return next((node for nodes in self._nodes.values() for node in nodes if node.call.id == call_id), None)

    def plan(
        self, messages: list[Message], tools: list[JsonDict] | None, role: str, renderer: Renderer, render: Render
    ) -> Prompt:
        """The prompt for `messages`, reusing the longest known path. Raises what rendering raises."""
        history, ends = self._walk(messages, tools)
        for at, key in reversed(ends):
            node = self._choose(self._nodes[key], messages[at - 1], role)
            if (prompt := _extend(node, messages, at, tools, renderer, history)) is not None:
                return prompt
        ids = render(messages, tools, history.key())
        answered = bool(self._nodes) and any(message["role"] == "assistant" for message in messages)
        exactness = Exactness.FORKED if answered else Exactness.EXACT
        return Prompt(history, messages, exactness, None, ids, ids)

    def find(self, messages: list[Message], tools: list[JsonDict] | None, role: str) -> Prompt:
        """`plan` for a model server that renders by itself: the parent is known by meaning only."""
        history, ends = self._walk(messages, tools)
        for at, key in reversed(ends):
            node = self._choose(self._nodes[key], messages[at - 1], role)
            return Prompt(history, messages[at:], Exactness.INEXACT, node)
        return Prompt(history, messages, Exactness.INEXACT)

    def add(self, prompt: Prompt, call: CapturedCall, parent: Node | None) -> Node:
        """Make `call`, which answers `prompt`, a node that later requests may continue."""
        node = Node(call, parent)
        if parent is not None:
            parent.children += 1
        self._nodes.setdefault(prompt.history.with_reply(call.reply), []).append(node)
        return node

    def _walk(self, messages: list[Message], tools: list[JsonDict] | None) -> tuple[History, list[tuple[int, bytes]]]:
        """The conversation's key, and every place where a known conversation ends in it."""
        history = start(tools)
        ends: list[tuple[int, bytes]] = []
        for at, message in enumerate(messages, 1):
            history.add(message)
            if message["role"] == "assistant" and (key := history.key()) in self._nodes:
                ends.append((at, key))
        return history, ends

    @staticmethod
    def _choose(nodes: list[Node], sent: Message, role: str) -> Node:
        if len(nodes) == 1:
            return nodes[0]
        ids = [call.get("id") for call in sent.get("tool_calls") or () if isinstance(call, dict)]

        def preference(node: Node) -> tuple[bool, bool, bool, int]:
            own = [call.get("id") for call in node.call.reply.get("tool_calls") or ()]
            return (
                own == ids,
                node.call.role == role,
                node.call.reply.get("content") == sent.get("content"),
                -node.children,
            )

        return max(nodes, key=preference)


def _extend(
    node: Node,
    messages: list[Message],
    at: int,
    tools: list[JsonDict] | None,
    renderer: Renderer,
    history: History,
) -> Prompt | None:
    """The prompt that keeps the node's tokens, or None where the renderer cannot vouch for it."""
    call = node.call
    if call.exactness is Exactness.INEXACT or not call.response_ids.size:
        return None
    prompt_ids = node.prompt()
    new = messages[at:]
    turn = Turn(
        prompt_ids=prompt_ids,
        response_ids=call.response_ids,
        history=messages[:at],
        new_messages=new,
        tools=tools,
    )
    extension = renderer.extend(turn)
    if extension is None:
        return None
    if any(message["role"] == "assistant" for message in new):
        exactness = Exactness.FORKED
    else:
        exactness = Exactness.BRIDGED if extension.closed else Exactness.EXACT
    ids = np.concatenate([prompt_ids, call.response_ids, extension.ids])
    return Prompt(history, new, exactness, node, ids, extension.ids)
