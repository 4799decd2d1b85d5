"""HTTP to a provider: one POST with retries before the first byte, and its failures as our errors.

A refused or broken connection is tried again with backoff, and 429 or 503 with a `Retry-After` that is worth waiting
for; nothing else is. Once the first byte of a reply has come, nothing is tried again.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from rllm.errors import ContextOverflow, GatewayError, RllmError, UpstreamError, one_line
from rllm.gateway.json_text import dumps
from rllm.types import WireProtocol

__all__ = ["Provider", "endpoint"]

logger = logging.getLogger(__name__)

_ATTEMPTS = 4
_BACKOFF_S = 0.2
_WAIT_S = 30.0
"""The longest `Retry-After` that is waited for here; a longer one is the agent's to decide."""
_HEADERS = {"Content-Type": "application/json"}
_LIMIT_ERROR_BYTES = 64 * 1024
_OVERFLOW = ("context_length_exceeded", "maximum context length", "prompt is too long", "context window")


def endpoint(base_url: str) -> URL:
    """Where chat completions are, for a base URL with or without its version and trailing slashes.

    A last segment such as `v1`, `v4` or `openai` counts as complete; anything else has `/v1` added. Raises
    `GatewayError` for what is not an http URL.
    """
    try:
        url = URL(base_url.strip())
    except ValueError as error:
        raise GatewayError(f"base URL {base_url!r} is not a URL: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise GatewayError(f"base URL {base_url!r} is not a URL; expected something like 'https://api.openai.com/v1'")
    path = url.path.rstrip("/").removesuffix("/chat/completions").rstrip("/")
    last = path.rpartition("/")[2]
    if last != "openai" and not (last[:1] == "v" and last[1:2].isdigit()):
        path += "/v1"
    return url.with_path(f"{path}/chat/completions", keep_query=True)


class Provider:
    """One provider's endpoint and key. The key is in no message, log line or repr."""

    def __init__(self, base_url: str, api_key: str | None, timeout_s: float) -> None:
        self._url = endpoint(base_url)
        self._key = api_key
        self._timeout_s = timeout_s
        self._client: aiohttp.ClientSession | None = None
        self._proxy: str | None = None

    async def open(self) -> None:
        """Make the connection pool, in the running event loop."""
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=10.0),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30.0, sock_read=self._timeout_s),
        )
        self._proxy = _proxy(self._url)

    async def close(self) -> None:
        """Idempotent."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    @asynccontextmanager
    async def post(self, body: Mapping[str, object]) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response to `body`, its status 200. Raises `UpstreamError` or `ContextOverflow`, also for failures
        while the block reads it."""
        response = await self._connected(dumps(body))
        try:
            yield response
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise self._broken(error, "while it answered") from None
        finally:
            response.close() if not response.content.at_eof() else response.release()

    async def _connected(self, data: bytes) -> aiohttp.ClientResponse:
        assert self._client is not None, "the upstream is used before it was opened"
        for attempt in range(1, _ATTEMPTS + 1):
            last = attempt == _ATTEMPTS
            try:
                response = await self._client.post(
                    self._url, data=data, headers=_HEADERS, allow_redirects=False, proxy=self._proxy
                )
            except (aiohttp.ClientConnectionError, ConnectionError) as error:
                if last or isinstance(error, TimeoutError):
                    raise self._broken(error, "before it answered") from None
                wait_s = _BACKOFF_S * 2 ** (attempt - 1)
            except (aiohttp.ClientError, TimeoutError) as error:
                raise self._broken(error, "before it answered") from None
            else:
                if response.status == HTTPStatus.OK:
                    return response
                wait = _retry_after_s(response) if response.status in (429, 503) else None
                if last or wait is None or wait > _WAIT_S:
                    raise await self._refused(response)
                response.release()
                wait_s = wait
            logger.info("provider %s: attempt %d failed, again in %.1f s", self._url.host, attempt, wait_s)
            await asyncio.sleep(wait_s)
        raise AssertionError

    async def _refused(self, response: aiohttp.ClientResponse) -> RllmError:
        """The provider's error answer, its body as it came."""
        try:
            raw = await response.content.read(_LIMIT_ERROR_BYTES)
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            raw = b""
        finally:
            response.close()
        body = self._without_key(raw.decode("utf-8", "replace"))
        status = response.status if response.status >= 400 else HTTPStatus.BAD_GATEWAY.value
        message = f"the model provider answered {response.status}: {one_line(GatewayError(body))[:500]}"
        if status in (400, 413) and any(mark in body.lower() for mark in _OVERFLOW):
            return ContextOverflow(message)
        retry_after = response.headers.get("Retry-After")
        return UpstreamError(message, status=status, body=body, protocol=WireProtocol.CHAT, retry_after=retry_after)

    def _broken(self, error: BaseException, when: str) -> UpstreamError:
        detail = self._without_key(one_line(error))
        if isinstance(error, TimeoutError):
            return UpstreamError(f"the model provider was silent for {self._timeout_s:g} s {when}", status=504)
        return UpstreamError(f"the connection to the model provider failed {when}: {detail}", status=502)

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _proxy(url: URL) -> str | None:
    """The proxy that the environment names for this host.

    Looked up once: the client's own `trust_env` looks it up for every call, and reads ~/.netrc in a thread besides,
    which costs more than all the rest of a call.
    """
    assert url.host is not None
    if proxy_bypass(f"{url.host}:{url.port}") or proxy_bypass(url.host):
        return None
    proxies = getproxies()
    return proxies.get(url.scheme) or proxies.get("all")


def _retry_after_s(response: aiohttp.ClientResponse) -> float | None:
    value = response.headers.get("Retry-After", "").strip()
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
