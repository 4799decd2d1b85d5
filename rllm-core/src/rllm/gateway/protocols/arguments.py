"""Tool arguments where a protocol has an object and the gateway JSON text.

What a model wrote need not be an object; it then travels under a key of its own, so that the agent sees it and the call
that comes back is still the call that the model made.
"""

from __future__ import annotations

import json
from typing import Any

from rllm.types import JsonDict

__all__ = ["arguments_object", "arguments_text"]

_WRITTEN = "rllm_arguments_as_written"


def arguments_object(text: str | None) -> JsonDict:
    """The arguments as an object that strict JSON can say."""
    try:
        value = json.loads(text or "{}", strict=False)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {_WRITTEN: text}


def arguments_text(value: JsonDict | None) -> str:
    """The JSON text that `arguments_object` was given, up to its spelling."""
    written: Any = (value or {}).get(_WRITTEN)
    return written if isinstance(written, str) else json.dumps(value or {}, ensure_ascii=False)
