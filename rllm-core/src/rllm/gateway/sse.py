"""Server-sent events from a byte stream, however it is cut into pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator

__all__ = ["DONE", "events"]

DONE = b"[DONE]"
"""Data of the event that ends an OpenAI stream."""


async def events(chunks: AsyncIterator[bytes], *, limit_bytes: int = 64 * 1024 * 1024) -> AsyncIterator[bytes]:
    """The data of each event. An event that the stream's end cuts off is dropped; ValueError when one is too long."""
    rest = b""
    data: list[bytes] = []
    async for chunk in chunks:
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if len(rest) > limit_bytes:
            raise ValueError(f"an event is longer than {limit_bytes} bytes")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []
    if rest.startswith(b"data:"):
        data.append(rest[5:].strip())
    if data:
        yield b"\n".join(data)
