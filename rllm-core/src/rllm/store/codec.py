"""An episode as one row: columns to search by, JSON of everything but token data, and token data as bytes.

Token data is one block an episode: for each call, in order, four sizes (int32) and the arrays `added_ids`,
`response_ids`, `logprobs` and `weight_versions`, little-endian, four bytes a value. Versions that are all the same
are stored once, under the size -1.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from rllm.errors import StoreError
from rllm.store.database import NO_STEP, to_sql_text
from rllm.types import CapturedCall, Episode

__all__ = ["COLUMNS", "EpisodeRow", "decode_episode", "encode_episode"]

_ARRAYS = {"added_ids", "response_ids", "logprobs", "weight_versions"}
_WITHOUT_TOKENS: Any = {"trajectories": {"__all__": {"steps": {"__all__": {"call": _ARRAYS}}}}}
_SIZES = struct.Struct("<4i")
_SAME = -1


class EpisodeRow(NamedTuple):
    """The columns of table `episodes`, in order, without its key."""

    split: str
    step: int
    task_id: str | bytes
    attempt: int
    episode_id: str | bytes
    status: str
    termination: str
    reward: float | None
    is_correct: bool | None
    stored_at: float
    data: str
    tokens: bytes

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        return 200 + len(self.data) + len(self.tokens)


COLUMNS = EpisodeRow._fields


def encode_episode(episode: Episode, *, step: int | None, split: str) -> EpisodeRow:
    """The episode as a row. What is not JSON (an object that the agent left in a step) becomes its `repr`.

    Raises `StoreError` when a field holds what its type does not allow.
    """
    return EpisodeRow(
        split=split,
        step=NO_STEP if step is None else step,
        task_id=to_sql_text(episode.task_id),
        attempt=episode.attempt,
        episode_id=to_sql_text(episode.id),
        status=str(episode.status),
        termination=str(episode.termination),
        reward=episode.reward,
        is_correct=episode.is_correct,
        stored_at=time.time(),
        data=_to_json(episode),
        tokens=_pack(episode),
    )


def decode_episode(data: str, tokens: bytes) -> Episode:
    """The episode that was encoded. Raises `StoreError` when the row is damaged."""
    try:
        episode = _from_json(data)
        offset = 0
        for call in episode.calls():
            offset = _unpack(call, tokens, offset)
        if offset != len(tokens):
            raise ValueError(f"{len(tokens) - offset} bytes of token data belong to no call")
    except ValidationError as error:
        raise StoreError(f"a stored episode is damaged: {_faults(error)}") from None
    except (ValueError, struct.error) as error:
        raise StoreError(f"a stored episode is damaged: {error}") from None
    return episode


def _to_json(episode: Episode) -> str:
    try:
        return episode.model_dump_json(exclude=_WITHOUT_TOKENS, warnings="error")
    except (PydanticSerializationError, UnicodeEncodeError):
        text = json.dumps(_plain(episode.model_dump(exclude=_WITHOUT_TOKENS, warnings=False)))
    try:
        _from_json(text)
    except ValidationError as error:
        raise StoreError(f"episode {episode.id!r} cannot be stored: {_faults(error)}") from None
    return text


def _from_json(text: str) -> Episode:
    try:
        return Episode.model_validate_json(text)
    except ValidationError as error:
        if error.errors()[0]["type"] != "json_invalid":
            raise
        return Episode.model_validate(json.loads(text))


def _faults(error: ValidationError) -> str:
    """The first few faults, on one line."""
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:3])


def _plain(value: Any) -> Any:
    """JSON data, as near to `value` as JSON allows."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(warnings=False))
    if value is None or isinstance(value, str | int | float):
        return value
    return repr(value)


def _pack(episode: Episode) -> bytes:
    parts: list[bytes] = []
    for call in episode.calls():
        versions = call.weight_versions
        same = versions.size > 1 and bool((versions == versions[0]).all()) and versions.size == call.response_ids.size
        parts += (
            _SIZES.pack(
                call.added_ids.size, call.response_ids.size, call.logprobs.size, _SAME if same else versions.size
            ),
            _bytes(call.added_ids, "<i4"),
            _bytes(call.response_ids, "<i4"),
            _bytes(call.logprobs, "<f4"),
            _bytes(versions[:1] if same else versions, "<i4"),
        )
    return b"".join(parts)


def _bytes(values: NDArray[Any], dtype: str) -> bytes:
    return values.astype(dtype, copy=False).tobytes()


def _unpack(call: CapturedCall, block: bytes, offset: int) -> int:
    sizes: tuple[int, int, int, int] = _SIZES.unpack_from(block, offset)
    added, response, logprobs, versions = sizes
    offset += _SIZES.size
    call.added_ids = _array(block, offset, added, "<i4")
    offset += 4 * added
    call.response_ids = _array(block, offset, response, "<i4")
    offset += 4 * response
    call.logprobs = _array(block, offset, logprobs, "<f4")
    offset += 4 * logprobs
    if versions == _SAME:
        call.weight_versions = np.full(response, _array(block, offset, 1, "<i4")[0], np.int32)
        return offset + 4
    call.weight_versions = _array(block, offset, versions, "<i4")
    return offset + 4 * versions


def _array(block: bytes, offset: int, size: int, dtype: str) -> NDArray[Any]:
    """A copy, writable and in the machine's byte order. Raises ValueError when the block is too short."""
    native = np.dtype(dtype).newbyteorder("=")
    return np.frombuffer(block, dtype, size, offset).astype(native) if size else np.zeros(0, native)
