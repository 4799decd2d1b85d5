"""Chat completions over HTTP, as leanly as aiohttp allows: one connection pool for each event loop.

It sends and reports errors; it does not read the reply, because the gateway has recorded it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import aiohttp

from rllm.errors import ContextOverflow, RequestError, UpstreamError
from rllm.types import AgentConfig, Message

__all__ = ["ChatClient"]

CONNECT_TIMEOUT_S = 30.0
KEEPALIVE_S = 15.0
"""Shorter than what servers grant, so that a reused connection is not one that is just being closed."""
RETRYABLE_STATUS = frozenset({408, 409, 425, 429})
"""Refusals that say nothing against the request itself."""
MAX_ERROR_CHARS = 500


class ChatClient:
    """Posts to `config.base_url` + `/chat/completions`."""

    def __init__(self) -> None:
        self._pools: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}

    async def complete(self, config: AgentConfig, messages: Sequence[Message]) -> None:
        """Post one request and wait for its whole reply, however long it takes: the caller owns the deadline.

        Raises `ContextOverflow` or `RequestError` for a refusal (4xx), and `UpstreamError` for 408, 409, 425,
        429, any other status that is not a success, and a connection that failed.
        """
        url = f"{config.base_url}/chat/completions"
        data = json.dumps({"model": config.model, "messages": messages}, separators=(",", ":")).encode()
        headers = {"Authorization": f"Bearer {config.api_key}", "Content-Type": "application/json"}
        try:
            async with self._pool().post(url, data=data, headers=headers, allow_redirects=False) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise UpstreamError(f"no reply from {url!r}: {reason}; is the server running?") from error
        if not 200 <= response.status < 300:
            raise _refusal(url, response.status, body, response.headers.get("Retry-After"))

    async def close(self) -> None:
        """Close the running loop's pool; idempotent."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    def _pool(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            for ended in [each for each in self._pools if each.is_closed()]:
                del self._pools[ended]  # nobody can await there any more; Python warns if the pool was open
            pool = self._pools[loop] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return pool


def _refusal(url: str, status: int, body: bytes, retry_after: str | None) -> RequestError | UpstreamError:
    """The error that an answer without success stands for."""
    text = body.decode(errors="replace")
    message, code = _error_in(text)
    told = f"{url!r} answered {status}: {message or 'no message'}"
    if not 400 <= status < 500 or status in RETRYABLE_STATUS:
        return UpstreamError(told, status=status, body=text, retry_after=retry_after)
    if code == "context_length_exceeded":
        return ContextOverflow(told)
    return RequestError(told, status=status, code=code or "invalid_request_error")


def _error_in(text: str) -> tuple[str, str | None]:
    """Message and code of an error in OpenAI's shape; the text itself if it is something else."""
    try:
        error = json.loads(text)["error"]
        message, code = error["message"], error.get("code")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return text[:MAX_ERROR_CHARS], None
    return str(message)[:MAX_ERROR_CHARS], code if isinstance(code, str) else None
