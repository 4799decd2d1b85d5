"""One request and its reply: budgets, deadline, streaming, delivery, and errors in the protocol's own shape."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque

from aiohttp import web

from rllm.errors import RequestError, RllmError, UpstreamError
from rllm.gateway.session import Session
from rllm.gateway.wire import Adapter, Delta, Emit, Reply, Request, Upstream
from rllm.types import CallError

__all__ = ["answer", "count"]

logger = logging.getLogger(__name__)

_GONE = 499
"""Status recorded when the client left before its reply."""


async def answer(
    http: web.BaseRequest, session: Session, request: Request, adapter: Adapter, upstream: Upstream
) -> web.StreamResponse:
    """Answer one parsed request, whatever happens."""
    task = asyncio.current_task()
    assert task is not None
    session.tasks.add(task)
    try:
        session.admit()
    except RllmError as error:
        session.tasks.discard(task)
        return _failed(session, request, adapter, error)
    try:
        if request.stream:
            return await _Stream(http, session, request, adapter).run(upstream)
        reply = await _ask(session, request, upstream, None)
        await session.settled()
        _note_delivery(http, session, reply)
        return web.Response(body=adapter.body(request, reply), content_type="application/json")
    except RllmError as error:
        return _failed(session, request, adapter, error)
    except asyncio.CancelledError:
        return _failed(session, request, adapter, _cancelled(session, request))
    finally:
        session.tasks.discard(task)


async def count(session: Session, request: Request, adapter: Adapter, upstream: Upstream) -> web.Response:
    """Answer a request for the length of a prompt. It is no call: it is neither recorded nor on a budget."""
    try:
        body = adapter.count(await upstream.count(session, request))
        return web.Response(body=body, content_type="application/json")
    except RllmError as error:
        status, body = adapter.error(error)
        return web.Response(status=status, body=body, content_type="application/json")


async def _ask(session: Session, request: Request, upstream: Upstream, emit: Emit | None) -> Reply:
    """The upstream's reply, within the session's deadline."""
    left = session.seconds_left()
    if left is None:
        return await upstream.answer(session, request, emit)
    timeout = asyncio.timeout(left)
    try:
        async with timeout:
            return await upstream.answer(session, request, emit)
    except TimeoutError:
        if not timeout.expired():
            raise
        raise session.overdue() from None


def _note_delivery(http: web.BaseRequest, session: Session, reply: Reply) -> None:
    """Called before the reply is written, since the client's next request may come at once after it."""
    if http.transport is None or http.transport.is_closing():
        session.attempts.undelivered(reply.key, reply)
    else:
        session.attempts.answered(reply.key, reply)


def _cancelled(session: Session, request: Request) -> RequestError:
    """The error to answer a cancelled call with; a client that has gone ends the call instead."""
    if not session.closed:
        _note_gone(session, request)
        raise asyncio.CancelledError
    if (task := asyncio.current_task()) is not None:
        task.uncancel()
    return RequestError(f"session {session.id!r} is closed", status=404, code="not_found")


def _note_gone(session: Session, request: Request) -> None:
    session.readmit()
    session.record_error(
        CallError(
            role=request.role,
            status=_GONE,
            code="client_disconnected",
            message="the client left before its reply was complete",
            at=time.time(),
            is_upstream=False,
        )
    )


def _note_failure(session: Session, request: Request, error: RllmError, status: int) -> None:
    if not isinstance(error, RequestError):
        session.readmit()
    session.record_failure(request.role, error, status)


def _failed(session: Session, request: Request, adapter: Adapter, error: RllmError) -> web.Response:
    status, body = adapter.error(error)
    _note_failure(session, request, error, status)
    response = web.Response(status=status, body=body, content_type="application/json")
    if isinstance(error, UpstreamError) and error.retry_after is not None:
        response.headers["Retry-After"] = error.retry_after
    return response


class _Stream:
    """A streamed reply. Nothing is sent before there is something to say, so that early errors keep their status."""

    def __init__(self, http: web.BaseRequest, session: Session, request: Request, adapter: Adapter) -> None:
        self._http = http
        self._session = session
        self._request = request
        self._adapter = adapter
        self._writer = adapter.events(request)
        self._pieces: deque[Delta] = deque()
        self._news = asyncio.Event()
        self._response: web.StreamResponse | None = None

    async def run(self, upstream: Upstream) -> web.StreamResponse:
        asking = asyncio.ensure_future(_ask(self._session, self._request, upstream, self._emit))
        asking.add_done_callback(lambda _: self._news.set())
        try:
            await self._relay(asking)
            reply = asking.result()
            await self._session.settled()
            await self._finish(reply)
        except RllmError as error:
            if self._response is None:
                raise
            return await self._break(error)
        except asyncio.CancelledError:
            if self._response is None or not self._session.closed:
                raise
            return await self._break(_cancelled(self._session, self._request))
        except ConnectionError:
            _note_gone(self._session, self._request)
            raise
        finally:
            await _stopped(asking)
        assert self._response is not None
        return self._response

    def _emit(self, delta: Delta) -> None:
        self._pieces.append(delta)
        self._news.set()

    async def _relay(self, asking: asyncio.Future[Reply]) -> None:
        """Send pieces as they come, until the reply is complete or has failed."""
        request = self._request
        while not asking.done() or self._pieces:
            await self._news.wait()
            self._news.clear()
            data = b""
            while self._pieces:
                if self._response is None:
                    await self._start(request.reply_id, self._session.model, request.created)
                data += self._writer.delta(self._pieces.popleft())
            if data and self._response is not None:
                await self._response.write(data)

    async def _start(self, reply_id: str, model: str, created: int) -> None:
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        self._response = web.StreamResponse(headers=headers)
        await self._response.prepare(self._http)
        if opening := self._writer.start(reply_id, model, created):
            await self._response.write(opening)

    async def _finish(self, reply: Reply) -> None:
        try:
            if self._response is None:
                await self._start(reply.id, reply.model, reply.created)
            assert self._response is not None
            _note_delivery(self._http, self._session, reply)
            await self._response.write(self._writer.finish(reply))
            await self._response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            self._session.attempts.lost(reply.key, reply)
            raise

    async def _break(self, error: RllmError) -> web.StreamResponse:
        """End a stream that has begun: the protocol's error event, then a connection that is not reused."""
        assert self._response is not None
        status, _ = self._adapter.error(error)
        _note_failure(self._session, self._request, error, status)
        self._response.force_close()
        try:
            await self._response.write(self._writer.error(error))
            await self._response.write_eof()
        except ConnectionError:
            logger.debug("client left while its stream was ended")
        return self._response


async def _stopped(asking: asyncio.Future[Reply]) -> None:
    """Cancel and wait, so that nothing is sampled for a client that has gone."""
    if not asking.done():
        asking.cancel()
        await asyncio.wait([asking])
    elif not asking.cancelled():
        asking.exception()
