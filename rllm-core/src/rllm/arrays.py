"""Token data: numpy arrays of a fixed dtype that round-trip through JSON without loss.

In Python a field is an ordinary array of its own; in JSON it is base64 of its little-endian bytes. Sequences of
numbers are accepted on the way in, and nothing else is: a float where an id belongs is an error.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

__all__ = ["Floats", "Ids", "Mask", "Versions", "floats", "ids", "mask"]


class _Codec:
    """pydantic schema of a one-dimensional array of `dtype`."""

    def __init__(self, dtype: str) -> None:
        self.dtype = np.dtype(dtype)

    def validate(self, value: Any) -> NDArray[Any]:
        if isinstance(value, str):
            try:
                raw = base64.b64decode(value, validate=True)
            except ValueError as error:
                raise ValueError(f"expected base64 of {self.dtype} values: {error}") from None
            if len(raw) % self.dtype.itemsize:
                raise ValueError(f"{len(raw)} bytes are not whole {self.dtype} values")
            return np.frombuffer(raw, dtype=self.dtype.newbyteorder("<")).astype(self.dtype)
        if not hasattr(value, "__len__") or isinstance(value, dict | set | bytes):
            raise ValueError(f"expected a sequence of numbers, got {type(value).__name__}")
        array = np.asarray(value) if len(value) else np.zeros(0, self.dtype)
        if array.ndim != 1:
            raise ValueError(f"expected one dimension, got shape {array.shape}")
        if self.dtype.kind in "iu":
            self._check_integers(array)
        elif array.dtype.kind not in "fiu":
            raise ValueError(f"expected numbers, got {array.dtype}")
        elif (np.abs(array[np.isfinite(array)]) > np.finfo(self.dtype).max).any():
            raise ValueError(f"values do not fit in {self.dtype}")
        return np.array(array, dtype=self.dtype)

    def _check_integers(self, array: NDArray[Any]) -> None:
        if array.dtype.kind not in ("iub" if self.dtype == np.uint8 else "iu"):
            raise ValueError(f"expected integers, got {array.dtype}")
        info = np.iinfo(self.dtype)
        if array.size and (array.min() < info.min or array.max() > info.max):
            raise ValueError(f"values do not fit in {self.dtype}")

    def serialize(self, value: NDArray[Any]) -> str:
        return base64.b64encode(value.astype(self.dtype.newbyteorder("<")).tobytes()).decode()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.validate,
            serialization=core_schema.plain_serializer_function_ser_schema(self.serialize, when_used="json"),
        )


Ids = Annotated[NDArray[np.int32], _Codec("int32")]
"""Token ids."""
Floats = Annotated[NDArray[np.float32], _Codec("float32")]
"""Log-probabilities (natural logarithm) or advantages."""
Mask = Annotated[NDArray[np.uint8], _Codec("uint8")]
"""1 where the policy sampled the token, 0 elsewhere."""
Versions = Annotated[NDArray[np.int32], _Codec("int32")]
"""Weight version that sampled each token."""


def ids(values: Any = ()) -> NDArray[np.int32]:
    """`values` as token ids (or weight versions)."""
    return _Codec("int32").validate(values)


def floats(values: Any = ()) -> NDArray[np.float32]:
    """`values` as float32."""
    return _Codec("float32").validate(values)


def mask(values: Any = ()) -> NDArray[np.uint8]:
    """`values` as a 0/1 mask."""
    return _Codec("uint8").validate(values)
