"""Gemini's contents read as messages: recorded conversations, odd spellings, and replies that come back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllm.errors import RequestError
from rllm.gateway.canonical import start
from rllm.gateway.protocols.gemini import GeminiAdapter
from rllm.gateway.protocols.gemini_contents import parts_of, read_contents
from rllm.gateway.wire import Incoming, Request

ASK = [{"role": "user", "parts": [{"text": "hi"}]}]


@pytest.fixture(scope="session")
def wire() -> Path:
    """`shared/data/wire`, from RLLM_SHARED_DATA (the `data` folder) or from a folder above this file."""
    given = os.environ.get("RLLM_SHARED_DATA")
    roots = [Path(given)] if given else [parent / "shared" / "data" for parent in Path(__file__).parents]
    found = [root / "wire" for root in roots if (root / "wire").is_dir()]
    assert found, f"no shared/data/wire above {__file__}; set RLLM_SHARED_DATA to the shared data folder"
    return found[0]


def parse(body: Any, action: str = "generateContent") -> Request:
    return GeminiAdapter().parse(Incoming(body, {}, "m", action, "alt=sse"))


def test_recorded_requests_are_understood(wire: Path) -> None:
    cassettes = sorted((wire / "pydantic_ai_cassettes").glob("google__*.json"))
    recorded = [each["request"] for path in cassettes for each in json.loads(path.read_text())]
    assert len(recorded) >= 4
    for request in recorded:
        action = request["uri"].rpartition(":")[2].partition("?")[0]
        parsed = parse(request["body"], action)
        assert parsed.stream is (action == "streamGenerateContent")
        assert parsed.messages
        assert parsed.logprobs is bool(request["body"].get("generationConfig", {}).get("responseLogprobs"))
    turn = parse(recorded[2]["body"])
    assert [message["role"] for message in turn.messages] == ["user", "assistant", "tool"]
    assert turn.messages[2]["tool_call_id"] == turn.messages[1]["tool_calls"][0]["id"]
    assert turn.messages[2]["content"] == '{"return_value": "Mexico"}'
    assert turn.tools[0]["function"]["parameters"]["additionalProperties"] is False


def test_recorded_chunks_played_back_are_one_turn(wire: Path) -> None:
    for path in sorted((wire / "vercel_chunks").glob("google-*.jsonl")):
        chunks = [json.loads(line) for line in path.read_text().splitlines()]
        contents = [chunk["candidates"][0]["content"] for chunk in chunks]
        _, turn = read_contents([*ASK, *contents])
        parts = [part for content in contents for part in content["parts"]]
        assert turn["content"] == "".join(part.get("text", "") for part in parts if not part.get("thought"))
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        assert [json.loads(call["function"]["arguments"]) for call in turn.get("tool_calls", [])] == [
            call["args"] for call in calls
        ]


text = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
)
arguments = st.dictionaries(text, json_values, max_size=3).map(json.dumps) | st.sampled_from(
    ["", "not json", "[1]", '{"a": NaN}', '{"a": 1e999}', '{ "a" :\n 1 }', '"x"']
)
call = st.tuples(st.integers(), text.filter(bool), arguments).map(
    lambda each: {"id": f"call_{each[0]}", "type": "function", "function": {"name": each[1], "arguments": each[2]}}
)
replies = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.none() | text},
    optional={"reasoning_content": text, "tool_calls": st.lists(call, min_size=1, max_size=3)},
)


@given(replies, st.booleans(), st.booleans())
def test_a_reply_that_comes_back_is_the_recorded_turn(reply: Any, is_cut: bool, has_thoughts: bool) -> None:
    parts = json.loads(json.dumps(parts_of(reply, thoughts=has_thoughts), allow_nan=False))
    contents = [{"role": "model", "parts": [part]} for part in parts] if is_cut else [{"role": "model", "parts": parts}]
    back = read_contents([*ASK, *(contents or [{"role": "model", "parts": []}])])
    assert len(back) == 2
    history = start(None)
    history.add(back[0])
    assert history.with_reply(back[1]) == history.with_reply(reply)
    ids = [call["id"] for call in reply.get("tool_calls", [])]
    assert [call["id"] for call in back[1].get("tool_calls", [])] == ids


def response(name: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": value, **more}}


def test_responses_find_their_calls_by_id_else_by_name_else_in_order() -> None:
    calls = [{"functionCall": {"name": name, "args": {}, "id": f"id{at}"}} for at, name in enumerate("abab")]
    answers = [
        response("b", {"output": "third"}, id="id3"),
        response("b", {"result": {"x": 1}}),
        response("renamed", {"error": "no"}),
        response("a", {"output": 1, "more": 2}),
        response("a", {"output": "nobody asked"}, id="own"),
    ]
    messages = read_contents([*ASK, {"role": "model", "parts": calls}, {"role": "function", "parts": answers}])
    assert [(each["tool_call_id"], each["content"]) for each in messages[2:]] == [
        ("id3", "third"),
        ("id1", '{"x": 1}'),
        ("id0", "no"),
        ("id2", '{"output": 1, "more": 2}'),
        ("own", "nobody asked"),
    ]
    assert [each.get("is_error") for each in messages[2:]] == [None, None, True, None, None]


def test_calls_without_ids_get_some_that_are_the_same_every_time() -> None:
    turn = {"role": "model", "parts": [{"function_call": {"name": "f"}}, {"function_call": {"name": "f"}}]}
    answer = {"parts": [response("f", {"output": "1"}), response("f", {"output": "2"})]}
    once, again = (read_contents([*ASK, turn, answer, turn, answer]) for _ in range(2))
    assert once == again
    ids = [each["id"] for message in once for each in message.get("tool_calls", ())]
    assert len(set(ids)) == 4
    assert [message["tool_call_id"] for message in once if message["role"] == "tool"] == ids


def test_text_and_responses_of_one_content_keep_their_order() -> None:
    turn = {"role": "model", "parts": [{"functionCall": {"name": "f"}}]}
    mixed = {"role": "user", "parts": [{"text": "a"}, response("f", {"output": "r"}), {"text": "b"}, {"text": "c"}]}
    messages = read_contents([*ASK, turn, mixed])
    assert [message["role"] for message in messages[2:]] == ["user", "tool", "user"]
    assert messages[4]["content"] == [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]


def test_media_become_blocks_with_a_url() -> None:
    parts = [{"text": "see"}, {"inline_data": {"mime_type": "image/png", "data": "ab-_"}}]
    parts.append({"fileData": {"fileUri": "https://host/x.png", "mimeType": "image/png"}})
    [message] = read_contents([{"parts": parts}])
    assert [block.get("image_url", {}).get("url") for block in message["content"]] == [
        None,
        "data:image/png;base64,ab+/",
        "https://host/x.png",
    ]


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ([], "non-empty list"),
        ([3], r"contents\[0\] is 3"),
        ([{"role": "system", "parts": []}], "role is 'system'"),
        ([{"parts": [{"executableCode": {"code": "1"}}]}], "executableCode"),
        ([{"parts": [{"videoMetadata": {}}]}], r"parts\[0\]"),
        ([{"parts": [{"functionCall": {"name": "f"}}]}], "functionCall of the user"),
        ([{"role": "model", "parts": [{"functionCall": {}}]}], "with a name"),
        ([{"role": "model", "parts": [{"functionCall": {"name": "f", "args": 1}}]}], "args is 1"),
        ([{"role": "model", "parts": [response("f", {})]}], "functionResponse of the model"),
        ([{"parts": [{"inlineData": {"data": "x"}}]}], "mimeType and data"),
    ],
)
def test_what_cannot_be_understood_is_named(contents: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        read_contents(contents)


def test_both_spellings_of_every_key_mean_the_same() -> None:
    camel = {
        "contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "aa"}}]}],
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"type": "object"}}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {
            "maxOutputTokens": 5,
            "stopSequences": ["x"],
            "topP": 0.5,
            "topK": 3,
            "candidateCount": 2,
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "OBJECT"},
            "responseLogprobs": True,
            "thinkingConfig": {"thinkingBudget": 2000},
        },
    }
    one, two = parse(camel), parse(snake(camel))
    assert two.raw != one.raw
    for name in ("messages", "sampling", "tools", "tool_choice", "n", "response_format", "unsupported", "logprobs"):
        assert getattr(one, name) == getattr(two, name), name
    assert one.tool_choice == {"type": "function", "function": {"name": "f"}}
    assert one.response_format["json_schema"]["schema"] == {"type": "object"}
    assert one.unsupported == ("a response schema",)
    assert one.reasoning_effort == two.reasoning_effort == "medium"
    assert one.n == 2


def snake(value: Any) -> Any:
    if isinstance(value, list):
        return [snake(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key): snake(each)
        for key, each in value.items()
    }


def test_openapi_schemas_become_json_schemas() -> None:
    parameters = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "enum": ["A"], "nullable": True},
            "any_of": {"type": "ARRAY", "items": {"type": "INTEGER"}, "min_items": "1"},
            "odd": {"anyOf": [{"type": "TYPE_UNSPECIFIED", "description": "x"}, {"type": "NULL"}]},
        },
        "propertyOrdering": ["type"],
        "required": ["type"],
        "x_own": 1,
    }
    tools = [{"functionDeclarations": [{"name": "f", "parameters": parameters}]}, {"googleSearch": {}}]
    [tool] = parse({"contents": ASK, "tools": tools}).tools
    assert tool["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "type": {"type": ["string", "null"], "enum": ["A"]},
            "any_of": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
            "odd": {"anyOf": [{"description": "x"}, {"type": "null"}]},
        },
        "required": ["type"],
        "x_own": 1,
    }


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        ({}, None),
        ({"thinkingBudget": -1}, None),
        ({"thinkingBudget": 0}, "none"),
        ({"thinkingBudget": 1024}, "low"),
        ({"thinkingBudget": 24576}, "high"),
        ({"thinkingLevel": "MINIMAL"}, "minimal"),
    ],
)
def test_thinking_becomes_an_effort(thinking: Any, effort: str | None) -> None:
    assert parse({"contents": ASK, "generationConfig": {"thinkingConfig": thinking}}).reasoning_effort == effort


@pytest.mark.parametrize(("mode", "choice"), [("AUTO", "auto"), ("none", "none"), ("ANY", "required"), (None, None)])
def test_the_calling_mode_becomes_a_tool_choice(mode: Any, choice: Any) -> None:
    request = parse({"contents": ASK, "toolConfig": {"functionCallingConfig": {"mode": mode}}})
    assert request.tool_choice == choice
    assert request.parse_tools is (choice != "none")


def test_a_cached_content_is_refused_rather_than_left_out() -> None:
    with pytest.raises(RequestError, match="cachedContent is 'cachedContents/x'"):
        parse({"contents": ASK, "cachedContent": "cachedContents/x"})
