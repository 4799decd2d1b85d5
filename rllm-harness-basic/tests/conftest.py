"""A chat server on loopback that answers as each test tells it, and remembers what it was sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from rllm.types import AgentConfig

REPLY = json.dumps({"choices": [{"message": {"role": "assistant", "content": "7"}, "finish_reason": "stop"}]})


@dataclass
class ChatServer:
    """Answers `status` and `body` to every request."""

    status: int = 200
    body: str = REPLY
    headers: dict[str, str] = field(default_factory=dict)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Requests wait for it; set at the start."""
    requests: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """Path, authorization and body of each request."""
    connections: set[object] = field(default_factory=set)
    arrived: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    dropped: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    """Requests whose client went away."""
    base_url: str = ""

    def config(self, api_key: str = "secret") -> AgentConfig:
        return AgentConfig(base_url=self.base_url, model="tiny", api_key=api_key)

    async def answer(self, request: web.Request) -> web.Response:
        self.connections.add(request.transport)
        sent = await request.json()
        self.requests.append((request.path, request.headers["Authorization"], sent))
        self.arrived.put_nowait(request.path)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.dropped.put_nowait(request.path)
            raise
        return web.Response(status=self.status, text=self.body, headers=self.headers, content_type="application/json")


@pytest.fixture
async def server() -> AsyncIterator[ChatServer]:
    """Started; closed after the test."""
    chat = ChatServer()
    chat.gate.set()
    app = web.Application()
    app.router.add_post("/sessions/s1/v1/chat/completions", chat.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    chat.base_url = f"http://{host}:{port}/sessions/s1/v1"
    yield chat
    await runner.cleanup()
