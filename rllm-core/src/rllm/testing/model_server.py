"""A model server on loopback that speaks OpenAI's chat protocol and says what it is told to, streaming or not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from rllm.ids import new_id

__all__ = ["Request", "ScriptedModelServer"]


@dataclass(frozen=True, slots=True)
class Request:
    """One call as it arrived."""

    session: str
    """From the URL: `/sessions/{session}/…`."""
    role: str
    """From the URL, or `default`."""
    key: str
    """Bearer token."""
    body: dict[str, Any] = field(default_factory=dict)


class ScriptedModelServer:
    """`async with ScriptedModelServer(["hello"]) as server:`, then talk to `server.base_url(session)`.

    Replies are texts, or messages with `tool_calls`, given in order; the last one repeats. With `refusal`
    every call is answered with that status instead; with `silent` none is answered until the client gives up.
    """

    def __init__(
        self,
        replies: Sequence[str | dict[str, Any]] = ("ok",),
        *,
        refusal: int | None = None,
        silent: bool = False,
    ) -> None:
        self._replies = list(replies)
        self._refusal = refusal
        self._silent = silent
        self._runner: web.AppRunner | None = None
        self._address = ""
        self.requests: list[Request] = []
        self.active = 0
        """Calls that are being answered now."""
        self.arrived = asyncio.Event()
        """Set once a call has arrived."""

    async def __aenter__(self) -> Self:
        app = web.Application()
        for prefix in ("/sessions/{session}", "/sessions/{session}/agents/{role}"):
            app.router.add_post(prefix + "/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self._address = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def base_url(self, session: str) -> str:
        """URL of one session, ending in `/v1`."""
        return f"{self._address}/sessions/{session}/v1"

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        self.active += 1
        try:
            self.requests.append(
                Request(
                    session=http.match_info["session"],
                    role=http.match_info.get("role", "default"),
                    key=http.headers.get("Authorization", "").removeprefix("Bearer "),
                    body=await http.json(),
                )
            )
            self.arrived.set()
            if self._silent:
                await asyncio.Event().wait()
            if self._refusal is not None:
                error = {"message": "refused by the script", "type": "invalid_request_error"}
                return web.json_response({"error": error}, status=self._refusal)
            reply = self._replies[min(len(self.requests), len(self._replies)) - 1]
            message = {"role": "assistant", "content": reply} if isinstance(reply, str) else reply
            if self.requests[-1].body.get("stream"):
                return await self._stream(http, message)
            return web.json_response(_completion(self.requests[-1].body, message))
        finally:
            self.active -= 1

    async def _stream(self, http: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        whole = _completion(self.requests[-1].body, message)
        choice = whole["choices"][0]
        calls = [{"index": n, **call} for n, call in enumerate(message.get("tool_calls", ()))]
        delta = {**message, "tool_calls": calls} if calls else message
        for part, reason in ((delta, None), ({}, choice["finish_reason"])):
            chunk = {
                **whole,
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": part, "finish_reason": reason}],
            }
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def _completion(request: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": new_id("chatcmpl"),
        "object": "chat.completion",
        "created": 0,
        "model": request.get("model", ""),
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
