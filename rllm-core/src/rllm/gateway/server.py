"""The gateway: an HTTP server between agents and one upstream.

It finds the session, checks its token, hands the body to the protocol's adapter and the request to the upstream, and
writes the reply. What a request means is the adapter's business, where the reply comes from the upstream's.

aiohttp's low-level server is used without its application, router and middlewares: thousands of short calls a second
pass through here, and they are most of the cost of such a call.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import ipaddress
import logging
import time
from types import TracebackType
from typing import Self

from aiohttp import web

from rllm.errors import GatewayError, RequestError
from rllm.gateway.config import GatewayConfig, SessionSpec
from rllm.gateway.exchange import answer, count
from rllm.gateway.protocols.endpoints import Endpoint, Operation, adapter_of_headers, find
from rllm.gateway.reading import bearer, read_json_body
from rllm.gateway.recorder import Recorder
from rllm.gateway.routes import segment, split
from rllm.gateway.session import Session, digest
from rllm.gateway.wire import Adapter, Incoming, Upstream

__all__ = ["Gateway"]

logger = logging.getLogger(__name__)


class Gateway:
    """`async with Gateway(upstream) as gateway:` serves until the block ends."""

    def __init__(
        self, upstream: Upstream, config: GatewayConfig | None = None, *, recorder: Recorder | None = None
    ) -> None:
        self.upstream = upstream
        self.config = config or GatewayConfig()
        self.recorder = recorder
        self._sessions: dict[str, Session] = {}
        self._server: asyncio.Server | None = None
        self._http: web.Server | None = None
        self.url = ""
        """Where agents reach it, without a trailing slash; set while it serves."""

    async def __aenter__(self) -> Self:
        """Raises `GatewayError` when the address cannot be listened on."""
        config = self.config
        if not config.allow_remote and not _is_loopback(config.host):
            raise GatewayError(
                f"listening on {config.host!r} lets other machines use the model; "
                "allow it with allow_remote=True, or use 127.0.0.1"
            )
        await self.upstream.open()
        self._http = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=config.idle_timeout_s,
            tcp_keepalive=True,
        )
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._http, config.host, config.port, backlog=1024
            )
        except OSError as error:
            await self.upstream.close()
            raise GatewayError(_why_not(config, error)) from None
        host, port = self._server.sockets[0].getsockname()[:2]
        if host in ("0.0.0.0", "::"):
            host = "127.0.0.1" if host == "0.0.0.0" else "::1"
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(session.close() for session in list(self._sessions.values())))
        if self._http is not None:
            self._http.pre_shutdown()
            await self._http.shutdown(1.0)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None
        await self.upstream.close()

    def open_session(self, spec: SessionSpec | None = None) -> Session:
        """Raises `GatewayError` for an id that is in use and for parameters that cannot be enforced."""
        if self._server is None:
            raise GatewayError("the gateway is not serving; open sessions inside `async with gateway:`")
        session = Session(
            spec=spec or SessionSpec(), model=self.upstream.model, recorder=self.recorder, on_close=self._forget
        )
        session.url = f"{self.url}/sessions/{segment(session.id)}"
        if session.id in self._sessions:
            raise GatewayError(f"session {session.id!r} is open already; close it or use another id")
        self._sessions[session.id] = session
        return session

    def _forget(self, session: Session) -> None:
        self._sessions.pop(session.id, None)

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        route = split(http.raw_path)
        session = None if route is None else self._sessions.get(route.session)
        endpoint = None if route is None else find(route.tail)
        adapter = adapter_of_headers(http.headers) if endpoint is None else endpoint.adapter
        if route is None or session is None:
            return _refusal(RequestError(f"nothing is served at {http.path!r}", status=404, code="not_found"), adapter)
        if http.method == "HEAD":
            return web.Response()  # a probe of whether anybody is there
        if not hmac.compare_digest(digest(bearer(http)), session.key):
            error = RequestError("the session's token is missing or wrong", status=401, code="invalid_api_key")
            return _refusal(error, adapter)
        if http.headers.get("Upgrade", "").lower() == "websocket":
            return _no_upgrade(adapter)
        if endpoint is None:
            return _refusal(RequestError(f"{route.tail!r} is not served", status=404, code="not_found"), adapter)
        if endpoint.operation is Operation.MODELS:
            return self._models(http, endpoint)
        if http.method != "POST":
            return _refusal(RequestError(f"{http.method} is not served here, use POST", status=405), adapter)
        try:
            body = await read_json_body(http, self.config)
            request = adapter.parse(Incoming(body, http.headers, endpoint.model, endpoint.action, http.query_string))
        except RequestError as error:
            session.record_failure(route.role, error, error.status)
            return _refusal(error, adapter)
        request.role = route.role
        if endpoint.operation is Operation.COUNT:
            return await count(session, request, adapter, self.upstream)
        return await answer(http, session, request, adapter, self.upstream)

    def _models(self, http: web.BaseRequest, endpoint: Endpoint) -> web.Response:
        if http.method != "GET":
            return _refusal(RequestError(f"{http.method} is not served here, use GET", status=405), endpoint.adapter)
        adapter = endpoint.adapter if endpoint.model else adapter_of_headers(http.headers)
        body = adapter.models([self.upstream.model], int(time.time()))
        return web.Response(body=body, content_type="application/json")


def _refusal(error: RequestError, adapter: Adapter) -> web.Response:
    status, body = adapter.error(error)
    return web.Response(status=status, body=body, content_type="application/json")


def _no_upgrade(adapter: Adapter) -> web.Response:
    """To a client that would rather speak WebSocket: measured, Codex then goes on over HTTP at once."""
    error = RequestError("WebSocket is not served here, use HTTP", status=426, code="upgrade_required")
    response = _refusal(error, adapter)
    response.headers["Upgrade"] = "HTTP/1.1"
    response.headers["Connection"] = "Upgrade"
    return response


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _why_not(config: GatewayConfig, error: OSError) -> str:
    where = f"{config.host}:{config.port}"
    if error.errno == errno.EADDRINUSE:
        return f"the gateway cannot listen on {where}: the port is in use; choose another, or 0 for a free one"
    return f"the gateway cannot listen on {where}: {error.strerror or error}"
