"""What happened to each distinct request of a session: which sample comes next, and what a retry is given.

Agents that draw several samples ask the same thing on purpose, so an identical request is a new sample by default.
It is recognised as a retry, and given the reply that already exists, only on evidence:

* the earlier reply was complete but could not be written to the client, which had gone; or
* the client says so (`x-stainless-retry-count` above 0), no earlier attempt of this request failed on our side, and
  nothing has been built on the reply yet. If one did fail, that is the attempt being repeated, and it is sampled.

Samples are numbered per request, not by arrival: a failed attempt gives its number back, so the seeds of a session's
samples do not depend on failures or on what else was running.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rllm.gateway.wire import Reply

__all__ = ["Attempts"]


@dataclass(slots=True)
class _Record:
    numbers: set[int] = field(default_factory=set)
    failed: int = 0
    answered: list[Reply] = field(default_factory=list)
    undelivered: list[Reply] = field(default_factory=list)


class Attempts:
    """Of one session; a request is identified by role, conversation and parameters."""

    def __init__(self) -> None:
        self._records: dict[bytes, _Record] = {}

    def earlier(self, key: bytes, *, is_retry: bool) -> Reply | None:
        """The reply that this request is to be given instead of a new sample, which it is then given once."""
        record = self._records.get(key)
        if record is None:
            return None
        if record.undelivered:
            return record.undelivered.pop(0)
        if not is_retry:
            return None
        if record.failed:
            record.failed -= 1
            return None
        for at in range(len(record.answered) - 1, -1, -1):
            if not any(node.children for node in record.answered[at].nodes):
                return record.answered.pop(at)
        return None

    def begin(self, key: bytes) -> int:
        """Number of the sample that is about to be drawn: the smallest that is free."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = _Record()
        number = len(record.numbers)
        if number in record.numbers:
            number = next(each for each in range(number) if each not in record.numbers)
        record.numbers.add(number)
        return number

    def fail(self, key: bytes, number: int) -> None:
        """The sample was not drawn."""
        record = self._records[key]
        record.numbers.discard(number)
        record.failed += 1

    def answered(self, key: bytes, reply: Reply) -> None:
        """The reply was written to the client."""
        self._records[key].answered.append(reply)

    def undelivered(self, key: bytes, reply: Reply) -> None:
        """The reply is complete, but the client has gone."""
        self._records[key].undelivered.append(reply)

    def lost(self, key: bytes, reply: Reply) -> None:
        """The reply counted as answered, but writing it failed."""
        record = self._records[key]
        if reply in record.answered:
            record.answered.remove(reply)
            record.undelivered.append(reply)
