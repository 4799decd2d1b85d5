"""Reading what a client sends: its token and its body, within limits."""

from __future__ import annotations

import asyncio
import json

from aiohttp import ClientPayloadError, web

from rllm.errors import RequestError
from rllm.gateway.config import GatewayConfig
from rllm.types import JsonDict

__all__ = ["bearer", "read_json_body"]


def bearer(http: web.BaseRequest) -> bytes:
    """The client's token, in whichever header (or, for Gemini, query) its protocol puts it; empty without one."""
    headers = http.headers
    value = headers.get("Authorization")
    if value is not None:
        scheme, _, token = value.partition(" ")
        value = token.strip() if scheme.lower() == "bearer" else ""
    value = value or headers.get("x-api-key") or headers.get("x-goog-api-key") or ""
    if not value and "key=" in http.query_string:
        value = http.query.get("key", "")
    return value.encode("utf-8", "surrogateescape")


async def read_json_body(http: web.BaseRequest, config: GatewayConfig) -> JsonDict:
    """The body as a JSON object. Raises `RequestError` when it is too long, too slow or something else."""
    limit = config.limit_request_bytes
    if (http.content_length or 0) > limit:
        raise _too_long(limit)
    if http.content.is_eof():
        body = http.content.read_nowait()
        if len(body) > limit:
            raise _too_long(limit)
    else:
        body = await _read(http, limit, config.read_timeout_s)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError(f"the body is a JSON {type(value).__name__}, expected an object")
    return value


async def _read(http: web.BaseRequest, limit: int, timeout_s: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            while part := await http.content.readany():
                size += len(part)
                if size > limit:
                    raise _too_long(limit)
                parts.append(part)
    except TimeoutError:
        raise RequestError(f"the body did not arrive within {timeout_s:g} s", status=408) from None
    except ClientPayloadError as error:
        raise RequestError(f"the body cannot be read: {error}") from None
    return b"".join(parts)


def _too_long(limit: int) -> RequestError:
    return RequestError(f"the body is longer than {limit} bytes", status=413, code="request_too_large")
