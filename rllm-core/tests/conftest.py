"""What the core's unit tests share: how hypothesis runs, and how it makes the data model's objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rllm.types import (
    CapturedCall,
    Episode,
    EpisodeStatus,
    ErrorInfo,
    Exactness,
    FinishReason,
    Signal,
    Step,
    Task,
    Termination,
    Trajectory,
    Usage,
)

settings.register_profile("rllm", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("rllm")

odd_text = st.one_of(
    st.sampled_from(["", ":", "a:b", "a/b", "../..", "math:12", "math:13", "é😀\u2028\x85\x7f", "NaN", "null", " "]),
    st.text(max_size=12),
)
finite = st.floats(allow_nan=False, allow_infinity=False)
json_values: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | finite | odd_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_text, inner, max_size=3),
    max_leaves=6,
)
json_dicts = st.dictionaries(odd_text, json_values, max_size=3)
any_float = st.floats()


def arrays(dtype: str) -> SearchStrategy[Any]:
    """One-dimensional arrays with extreme values among the ordinary ones."""
    values: SearchStrategy[Any] = st.floats(width=32)
    if dtype != "float32":
        values = st.integers(np.iinfo(dtype).min, np.iinfo(dtype).max)
    return st.lists(values, max_size=6).map(lambda each: np.array(each, dtype))


def optional(strategy: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return st.none() | strategy


tasks = st.builds(
    Task,
    id=odd_text,
    instruction=odd_text | st.lists(json_dicts, max_size=2),
    metadata=json_dicts,
    reference=json_dicts,
    category=optional(odd_text),
)
signals = st.builds(Signal, name=odd_text, value=any_float, metadata=json_dicts)
calls = st.builds(
    CapturedCall,
    response_id=odd_text,
    role=odd_text,
    parent_id=optional(odd_text),
    new_messages=st.lists(json_dicts, max_size=2),
    tools=optional(st.lists(json_dicts, max_size=2)),
    reply=json_dicts,
    finish_reason=st.sampled_from(FinishReason),
    exactness=st.sampled_from(Exactness),
    usage=st.builds(Usage, prompt_tokens=st.integers(0, 2**40), completion_tokens=st.integers(0, 2**40)),
    model=odd_text,
    sampling=json_dicts,
    started_at=any_float,
    duration_s=any_float,
    added_ids=arrays("int32"),
    response_ids=arrays("int32"),
    logprobs=arrays("float32"),
    weight_versions=arrays("int32") | st.integers(0, 5).map(lambda size: np.full(size, 7, np.int32)),
)
steps = st.builds(
    Step,
    input=json_values,
    output=json_values,
    action=json_values,
    observation=json_values,
    thought=odd_text,
    reward=optional(any_float),
    done=st.booleans(),
    response_id=optional(odd_text),
    metadata=json_dicts,
    call=optional(calls),
    advantages=optional(arrays("float32")),
)
trajectories = st.builds(
    Trajectory,
    name=odd_text,
    steps=st.lists(steps, max_size=3),
    reward=optional(any_float),
    input=json_values,
    output=json_values,
    signals=st.dictionaries(odd_text, any_float, max_size=2),
    trainable=st.booleans(),
    metadata=json_dicts,
)
errors = st.builds(ErrorInfo, kind=odd_text, message=odd_text, phase=odd_text, traceback=odd_text)
episodes = st.builds(
    Episode,
    task_id=odd_text,
    attempt=st.integers(0, 2**40),
    task=optional(tasks),
    trajectories=st.lists(trajectories, max_size=2),
    status=st.sampled_from(EpisodeStatus),
    termination=st.sampled_from(Termination),
    reward=optional(any_float),
    is_correct=optional(st.booleans()),
    signals=st.lists(signals, max_size=2),
    artifacts=json_dicts,
    metrics=st.dictionaries(odd_text, any_float, max_size=2),
    metadata=json_dicts,
    error=optional(errors),
)


@pytest.fixture(scope="session")
def any_episode() -> SearchStrategy[Episode]:
    """Episodes with odd ids, extreme numbers and arrays of every length."""
    return episodes


@pytest.fixture(scope="session")
def any_call() -> SearchStrategy[CapturedCall]:
    """Captured calls, consistent or not."""
    return calls


@pytest.fixture(scope="session")
def any_json() -> SearchStrategy[Any]:
    """JSON values."""
    return json_values
