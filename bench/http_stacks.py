"""Which HTTP server and client the gateway should stand on: one trivial handler in each, calls per CPU second.

    python -m venv /tmp/stacks
    /tmp/stacks/bin/pip install aiohttp uvicorn httptools uvloop granian httpx niquests psutil
    /tmp/stacks/bin/python bench/http_stacks.py

A server reads a JSON body and answers 1 KB, or a stream of 50 events; a client posts 600 bytes and reads the same.
64 connections, each asking again at once. Wall time is not reported: all processes share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psutil

REPLY = json.dumps({"id": "x", "choices": [{"message": {"role": "assistant", "content": "a" * 900}}]}).encode()
EVENT = b'data: {"choices":[{"delta":{"content":"abcd"}}]}\n\n'
EVENTS = 50
MESSAGES = [{"role": "user", "content": "x" * 500}]
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer x"}
SERVERS = ("aiohttp", "aiohttp+uvloop", "uvicorn", "uvicorn+uvloop", "granian")
CLIENTS = ("aiohttp", "aiohttp+uvloop", "httpx", "niquests")


async def serve_aiohttp(port: int) -> None:
    from aiohttp import web

    async def handle(http: web.BaseRequest) -> web.StreamResponse:
        body = http.content.read_nowait() if http.content.is_eof() else await http.content.read()
        if not json.loads(body).get("stream"):
            return web.Response(body=REPLY, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        for _ in range(EVENTS):
            await response.write(EVENT)
        await response.write_eof()
        return response

    await asyncio.get_running_loop().create_server(web.Server(handle, access_log=None), "127.0.0.1", port)
    await asyncio.Event().wait()


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        return
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    head: dict[str, Any] = {"type": "http.response.start", "status": 200}
    if json.loads(body).get("stream"):
        await send({**head, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(EVENTS):
            await send({"type": "http.response.body", "body": EVENT, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({**head, "headers": [(b"content-length", str(len(REPLY)).encode())]})
    await send({"type": "http.response.body", "body": REPLY})


def serve(kind: str, port: int) -> None:
    base, _, loop = kind.partition("+")
    if base == "aiohttp":
        run_with(loop)(serve_aiohttp(port))
    elif base == "uvicorn":
        import uvicorn

        uvicorn.run(
            asgi,
            port=port,
            log_level="error",
            access_log=False,
            loop=loop or "asyncio",
            http="httptools",
            lifespan="off",
        )
    else:
        from granian.server.embed import Server

        asyncio.run(Server(asgi, address="127.0.0.1", port=port, interface="asgi", log_enabled=False).serve())


def run_with(loop: str) -> Callable[[Any], Any]:
    if loop == "uvloop":
        import uvloop

        return uvloop.run
    return asyncio.run


async def drive(call: Callable[[], Awaitable[None]], seconds: float) -> tuple[int, float]:
    """Calls, and CPU seconds of this process."""
    count = 0
    await call()
    cpu_s, ends = time.process_time(), time.perf_counter() + seconds

    async def one() -> None:
        nonlocal count
        while time.perf_counter() < ends:
            await call()
            count += 1

    await asyncio.gather(*(one() for _ in range(64)))
    return count, time.process_time() - cpu_s


async def use_client(kind: str, url: str, seconds: float, *, stream: bool) -> tuple[int, float]:
    data = json.dumps({"model": "m", "messages": MESSAGES, "stream": stream}).encode()
    if kind == "aiohttp":
        import aiohttp

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=HEADERS) as session:

            async def call() -> None:
                async with session.post(url, data=data) as response:
                    async for _ in response.content.iter_any():
                        pass

            return await drive(call, seconds)
    if kind == "httpx":
        import httpx

        async with httpx.AsyncClient(headers=HEADERS, timeout=60) as client:

            async def call() -> None:
                async with client.stream("POST", url, content=data) as response:
                    async for _ in response.aiter_raw():
                        pass

            return await drive(call, seconds)
    import niquests

    async with niquests.AsyncSession() as session:

        async def call() -> None:
            response = await session.post(url, data=data, headers=HEADERS, stream=True)
            async for _ in await response.iter_content(-1):
                pass

        return await drive(call, seconds)


def start(kind: str, port: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, __file__, "--serve", kind, "--port", str(port)])
    for _ in range(100):
        time.sleep(0.1)
        if any(each.laddr.port == port for each in psutil.net_connections() if each.status == "LISTEN"):
            return process
    raise SystemExit(f"{kind} does not listen")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=18870)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.port)
        return
    url = f"http://127.0.0.1:{options.port}/v1/chat/completions"
    print(f"{'server':18}{'calls/CPU s':>14}{'events/CPU s':>14}")
    for kind in SERVERS:
        process = start(kind, options.port)
        watched, found = psutil.Process(process.pid), []
        for stream in (False, True):
            before = sum(watched.cpu_times()[:2])
            count, _ = asyncio.run(use_client("aiohttp", url, options.seconds, stream=stream))
            found.append(count / (sum(watched.cpu_times()[:2]) - before))
        print(f"{kind:18}{found[0]:14,.0f}{EVENTS * found[1]:14,.0f}", flush=True)
        process.kill()
        process.wait()
    print(f"\n{'client':18}{'calls/CPU s':>14}{'events/CPU s':>14}")
    process = start("aiohttp+uvloop", options.port)
    for kind in CLIENTS:
        base, _, loop = kind.partition("+")
        found = []
        for stream in (False, True):
            count, cpu_s = run_with(loop)(use_client(base, url, options.seconds, stream=stream))
            found.append(count / cpu_s)
        print(f"{kind:18}{found[0]:14,.0f}{EVENTS * found[1]:14,.0f}", flush=True)
    process.kill()


if __name__ == "__main__":
    main()
