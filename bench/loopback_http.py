"""HTTP/1.1 by hand, for benchmarks only: a scripted model server and a load generator that cost next to nothing.

They share the machine with what is measured, so both parse only what they themselves send. Started as processes:

    python bench/loopback_http.py upstream PORT DELAY_S CHUNKS      says READY, then serves until it is ended
    python bench/loopback_http.py load PLAN.json                    prints one JSON object

The upstream answers chat completions with token ids and log-probabilities as vLLM does, each conversation's prompt
ids beginning with those of the turn before.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import deque
from functools import cache
from typing import Any

USER_IDS, REPLY_IDS = 50, 200
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def prompt_ids(messages: int) -> list[int]:
    """Ids of a conversation of that many messages, user and assistant in turn."""
    ids: list[int] = []
    for at in range(messages):
        ids += range(at, at + USER_IDS) if at % 2 == 0 else reply_ids(at)
    return ids


def reply_ids(at: int) -> list[int]:
    return list(range(1000 + at, 1000 + at + REPLY_IDS))


class Upstream(asyncio.Protocol):
    """One connection to the scripted model."""

    delay_s = 0.0
    chunks = 50

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        found = LENGTH.search(self.buffer, 0, end)
        size = int(found[1]) if found else 0
        if len(self.buffer) < end + 4 + size:
            return
        body = self.buffer[end + 4 : end + 4 + size]
        self.buffer = self.buffer[end + 4 + size :]
        asked = json.loads(body)
        messages, with_ids = len(asked["messages"]), bool(asked.get("return_token_ids"))
        if asked.get("stream"):
            reply = streamed(messages, self.chunks, with_ids=with_ids)
        else:
            reply = whole(messages, with_ids=with_ids)
        asyncio.get_running_loop().call_later(self.delay_s, self.transport.write, reply)


@cache
def whole(messages: int, *, with_ids: bool) -> bytes:
    """The answer to a conversation of that many messages."""
    tokens = {}
    if with_ids:
        content = [{"token": "a", "logprob": -0.5, "bytes": None, "top_logprobs": []}] * REPLY_IDS
        tokens = {"token_ids": reply_ids(messages), "logprobs": {"content": content}}
    choice = {"index": 0, "message": {"role": "assistant", "content": "a" * 400}, "finish_reason": "stop", **tokens}
    reply = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    reply["usage"] = {"prompt_tokens": 50, "completion_tokens": REPLY_IDS, "total_tokens": 50 + REPLY_IDS}
    if with_ids:
        reply["prompt_token_ids"] = prompt_ids(messages)
    data = json.dumps(reply).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data


@cache
def streamed(messages: int, chunks: int, *, with_ids: bool) -> bytes:
    """The same in that many server-sent events."""
    each = REPLY_IDS // chunks
    pieces = []
    for number in range(chunks):
        choice: dict[str, Any] = {"index": 0, "delta": {"content": "a" * 8}, "finish_reason": None}
        if number == 0:
            choice["delta"]["role"] = "assistant"
        if number == chunks - 1:
            choice["finish_reason"] = "stop"
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        if with_ids:
            choice["token_ids"] = reply_ids(messages)[number * each : (number + 1) * each]
            content = [{"token": "a", "logprob": -0.5, "bytes": None, "top_logprobs": []}] * each
            choice["logprobs"] = {"content": content}
            if number == 0:
                chunk["prompt_token_ids"] = prompt_ids(messages)
        pieces.append(b"data: %s\n\n" % json.dumps(chunk).encode())
    usage = {"prompt_tokens": 50, "completion_tokens": REPLY_IDS, "total_tokens": 50 + REPLY_IDS}
    last = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}
    pieces += [b"data: %s\n\n" % json.dumps(last).encode(), b"data: [DONE]\n\n"]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


class Client(asyncio.Protocol):
    """One connection of the load generator, one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.waiting: asyncio.Future[bytes] | None = None
        self.parts: list[bytes] = []
        self.size = -1

    def connection_lost(self, error: Exception | None) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self.parts.append(data)
        if self.size < 0:
            whole = b"".join(self.parts)
            self.parts = [whole]
            end = whole.find(b"\r\n\r\n")
            if end < 0:
                return
            if not whole.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(whole[:500])
            found = LENGTH.search(whole, 0, end)
            self.size = end + 4 + int(found[1]) if found else 0
        if self.size:
            done = sum(map(len, self.parts)) >= self.size
        else:
            done = b"".join(self.parts[-2:]).endswith(b"\r\n0\r\n\r\n")
        if done and self.waiting is not None:
            self.waiting.set_result(b"".join(self.parts))

    async def call(self, request: bytes) -> bytes:
        self.waiting = asyncio.get_running_loop().create_future()
        self.parts, self.size = [], -1
        self.transport.write(request)
        return await self.waiting


def request_bytes(path: str, key: str, messages: list[dict[str, str]], *, stream: bool) -> bytes:
    body = json.dumps({"model": "m", "messages": messages, "stream": stream, "max_tokens": 400}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\nAccept: */*\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def load(plan: dict[str, Any]) -> dict[str, Any]:
    """`clients` connections that ask for `seconds`, each as soon as it is answered."""
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    chunks = 0
    started = time.perf_counter() + 0.5
    ends = started + plan["seconds"]

    async def client(number: int) -> None:
        nonlocal chunks
        target = plan["targets"][number % len(plan["targets"])]
        _, connection = await loop.create_connection(Client, "127.0.0.1", plan["port"])
        await asyncio.sleep(max(0.0, started - time.perf_counter()) + 0.3 * number / plan["clients"])
        asked = 0
        while time.perf_counter() < ends:
            text = f"client {number} asks {asked} " + "x" * 500
            messages = [{"role": "user", "content": text}]
            request = request_bytes(target["path"], target["key"], messages, stream=plan["stream"])
            before = time.perf_counter()
            reply = await connection.call(request)
            latencies.append(time.perf_counter() - before)
            chunks += reply.count(b"data: ")
            asked += 1
        connection.transport.close()

    await asyncio.gather(*(client(number) for number in range(plan["clients"])))
    latencies.sort()
    count = len(latencies)
    return {
        "calls": count,
        "chunks": chunks,
        "seconds": time.perf_counter() - started,
        "p50_ms": 1e3 * latencies[count // 2],
        "p99_ms": 1e3 * latencies[min(count - 1, int(count * 0.99))],
    }


async def converse(plan: dict[str, Any]) -> dict[str, Any]:
    """Every target has one conversation of `turns` turns; seconds of each turn, over all conversations."""
    loop = asyncio.get_running_loop()
    seconds = [0.0] * plan["turns"]
    sent = [0] * plan["turns"]
    waiting = deque(plan["targets"])

    async def worker() -> None:
        _, connection = await loop.create_connection(Client, "127.0.0.1", plan["port"])
        while waiting:
            target = waiting.popleft()
            messages: list[dict[str, str]] = []
            for turn in range(plan["turns"]):
                messages.append({"role": "user", "content": f"turn {turn}"})
                request = request_bytes(target["path"], target["key"], messages, stream=False)
                before = time.perf_counter()
                reply = await connection.call(request)
                seconds[turn] += time.perf_counter() - before
                sent[turn] += len(request)
                messages.append({"role": "assistant", "content": "a" * 400})
                if reply.count(b'"a') == 0 and b"aaaa" not in reply:
                    raise RuntimeError(reply[:300])
        connection.transport.close()

    await asyncio.gather(*(worker() for _ in range(plan["clients"])))
    count = len(plan["targets"])
    return {"turn_ms": [1e3 * each / count for each in seconds], "turn_bytes": [each / count for each in sent]}


async def serve(port: int) -> None:
    await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=2048)
    print("READY", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    if sys.argv[1] == "upstream":
        Upstream.delay_s, Upstream.chunks = float(sys.argv[3]), int(sys.argv[4])
        asyncio.run(serve(int(sys.argv[2])))
    else:
        with open(sys.argv[2], encoding="utf-8") as file:
            plan = json.load(file)
        print(json.dumps(asyncio.run(converse(plan) if "turns" in plan else load(plan))))


if __name__ == "__main__":
    main()
