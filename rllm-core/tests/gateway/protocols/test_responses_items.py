"""Items of the Responses protocol: the turn that comes back is the turn that was sent, whatever a client does to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rllm.errors import ContextOverflow, RequestError, UpstreamError
from rllm.gateway.canonical import start
from rllm.gateway.protocols.responses import ResponsesAdapter
from rllm.gateway.wire import Choice, Delta, Incoming, Reply
from rllm.types import FinishReason, Message, Usage

ADAPTER = ResponsesAdapter()
TOOLS = [
    {"type": "function", "name": "add", "parameters": {}},
    {"type": "custom", "name": "patch"},
    {
        "type": "namespace",
        "name": "crew",
        "tools": [{"type": "function", "name": "hire"}, {"type": "custom", "name": "tell"}],
    },
]
BLOCKS = [{"type": "thinking", "thinking": "hm", "signature": "s1"}, {"type": "redacted_thinking", "data": "x"}]


def messages_of(items: Any, **fields: Any) -> list[Message]:
    return ADAPTER.parse(Incoming({"input": items, "tools": TOOLS, **fields}, {})).messages


def reply_of(message: Message, finish: FinishReason = FinishReason.STOP) -> Reply:
    return Reply(
        id="resp_1",
        model="m",
        created=1,
        choices=[Choice(message, finish)],
        usage=Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1, reasoning_tokens=1),
    )


def sent(message: Message, **fields: Any) -> list[dict[str, Any]]:
    """The items by which a client learns of `message`."""
    request = ADAPTER.parse(Incoming({"input": "hi", "tools": TOOLS, **fields}, {}))
    return list(json.loads(ADAPTER.body(request, reply_of(message)))["output"])


def key(messages: list[Message]) -> bytes:
    history = start(None)
    for message in messages:
        history.add(message)
    return history.key()


ARGUMENTS = st.one_of(
    st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=2).map(json.dumps),
    st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2).map(
        lambda value: json.dumps(value, indent=2)
    ),
    st.text(max_size=8).map(lambda text: json.dumps({"input": text})),
    st.text(max_size=4).map(lambda text: json.dumps({"input": json.dumps({"input": text})})),
    st.sampled_from(["", "{", "null", "[1]", '{"input": 3}', '{"input": "a", "b": 1}']),
)
CALL = st.builds(
    lambda name, arguments: {"type": "function", "function": {"name": name, "arguments": arguments}},
    st.sampled_from(["add", "patch", "crew__hire", "crew__tell", "unknown", "hire"]),
    ARGUMENTS,
)
TEXT = st.text(max_size=8) | st.sampled_from(["", " ", "\n\nso\n", "<think>x</think>", "a</think>b"])
REPLY = st.builds(
    lambda content, calls, reasoning, blocks: {
        "role": "assistant",
        "content": content,
        **({"tool_calls": [{**call, "id": f"call_{at}"} for at, call in enumerate(calls)]} if calls else {}),
        **({"reasoning_content": reasoning} if reasoning else {}),
        **({"thinking_blocks": BLOCKS} if blocks else {}),
    },
    TEXT | st.none(),
    st.lists(CALL, max_size=3),
    st.text(max_size=8),
    st.booleans(),
)


@given(
    reply=REPLY,
    no_ids=st.booleans(),
    nulls=st.booleans(),
    reasoning=st.sampled_from(["kept", "dropped", "nulled", "text"]),
    asked=st.sampled_from([{}, {"include": ["reasoning.encrypted_content"]}, {"reasoning": {"summary": "auto"}}]),
)
def test_a_turn_that_comes_back_is_the_turn_that_was_sent(
    reply, no_ids: bool, nulls: bool, reasoning: str, asked
) -> None:
    items = []
    for item in sent(reply, **asked):
        if no_ids:
            item.pop("id")
            item.pop("status", None)
        if nulls:
            item |= {"async_": None, "caller": None, "phase": None, "logprobs": None}
            item.setdefault("namespace", None)
        if item["type"] == "reasoning":
            if reasoning == "dropped":
                continue
            if reasoning == "nulled":
                item["content"] = None
            elif reasoning == "text":
                parts = item.get("content") or item["summary"]
                item = {"role": "assistant", "content": f"<think>\n{parts[0]['text'] if parts else ''}\n</think>"}
        items.append(item)
    history: list[Any] = [{"role": "user", "content": "hi"}]
    if not items:
        return  # nothing but reasoning, and the client dropped it
    came = messages_of([*history, *items, {"role": "user", "content": "go on"}])
    assert [message["role"] for message in came] == ["user", "assistant", "user"]
    assert key(came) == key([*history, reply, {"role": "user", "content": "go on"}])
    assert [call["id"] for call in came[1].get("tool_calls", ())] == [
        call["id"] for call in reply.get("tool_calls", ())
    ]


@given(reply=REPLY)
def test_reasoning_and_what_its_provider_signed_come_back_where_the_client_asked_for_them(reply) -> None:
    assume("<think>" not in (reply["content"] or ""))  # which is read as reasoning, as some clients spell it
    items = sent(reply, include=["reasoning.encrypted_content"])
    for item in items:
        if item["type"] == "reasoning":
            item["content"] = None
    (came,) = messages_of(items)
    assert came.get("reasoning_content") == reply.get("reasoning_content")
    assert came.get("thinking_blocks") == reply.get("thinking_blocks")


def test_reasoning_is_a_summary_for_those_who_ask_for_one() -> None:
    message = {"role": "assistant", "content": "so", "reasoning_content": "hm"}
    shown = {"type": "reasoning", "id": "rs_100", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert sent(message)[0] == shown
    assert sent(message, reasoning={"summary": "auto"})[0] == {
        "type": "reasoning",
        "id": "rs_100",
        "summary": [{"type": "summary_text", "text": "hm"}],
    }


@pytest.mark.parametrize("packed", ["gAAAA-foreign", "rllm.", "rllm.???", "rllm.WzFd", "rllm.e30=", 3, None, ["x"]])
def test_encrypted_content_of_others_is_ignored(packed: Any) -> None:
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}], "encrypted_content": packed}
    (message,) = messages_of([item, {"role": "assistant", "content": "so"}])
    assert message == {"role": "assistant", "content": "so", "reasoning_content": "a"}


def test_items_of_one_turn_are_one_message_and_a_second_text_begins_another() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
    text = {"role": "assistant", "content": "a"}
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]}
    output = {"type": "function_call_output", "call_id": "c", "output": "1"}

    def shape(*items: dict[str, Any]) -> list[tuple[Any, ...]]:
        return [
            (message.get("reasoning_content"), message["content"], len(message.get("tool_calls", ())))
            for message in messages_of(list(items))
        ]

    assert shape(thought, text, call, call) == [("r", "a", 2)]
    assert shape(call, text) == [(None, "a", 1)]
    assert shape(text, text) == [(None, "a", 0), (None, "a", 0)]
    assert shape({**text, "phase": "commentary"}, text) == [(None, "aa", 0)]
    assert shape({**text, "content": ""}, text) == [(None, "a", 0)]
    assert shape(text, thought, text) == [(None, "a", 0), ("r", "a", 0)]
    assert shape(text, thought, call) == [("r", "a", 1)]
    assert shape(call, output, call, output) == [(None, "", 1), (None, "1", 0), (None, "", 1), (None, "1", 0)]
    assert shape(thought) == [("r", "", 0)]


def test_content_is_translated_part_by_part() -> None:
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
        {"type": "input_file", "file_data": "data:x", "filename": "a.pdf", "file_id": None},
        {"type": "input_image", "file_id": "file_1"},
    ]
    user, tool = messages_of(
        [{"role": "user", "content": parts}, {"type": "function_call_output", "call_id": "c", "output": parts[:2]}]
    )
    text, image = {"type": "text", "text": "see"}, {"url": "data:image/png;base64,AA", "detail": "low"}
    assert user["content"] == [
        text,
        {"type": "image_url", "image_url": image},
        {"type": "file", "file": {"file_data": "data:x", "filename": "a.pdf"}},
        parts[3],
    ]
    assert tool == {"role": "tool", "tool_call_id": "c", "content": [text, {"type": "image_url", "image_url": image}]}
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    assert messages_of([refusal]) == [{"role": "assistant", "content": "no"}]


def test_calls_of_shells_that_the_agent_runs_are_calls() -> None:
    action = {"type": "exec", "command": ["ls"], "env": {}}
    messages = messages_of(
        [
            {"type": "local_shell_call", "id": "i", "call_id": "c", "action": action, "status": "completed"},
            {"type": "local_shell_call_output", "id": "c", "output": "a.txt"},
            {"type": "shell_call", "call_id": "d", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "d", "output": [{"stdout": "a", "stderr": "", "outcome": {}}]},
            {"type": "apply_patch_call", "call_id": "e", "operation": {"type": "delete_file", "path": "a"}},
            {"type": "apply_patch_call_output", "call_id": "e", "status": "completed"},
        ]
    )
    names = [call["function"]["name"] for message in messages for call in message.get("tool_calls", ())]
    assert names == ["local_shell", "shell", "apply_patch"]
    assert json.loads(messages[0]["tool_calls"][0]["function"]["arguments"]) == action
    assert [message["content"] for message in messages if message["role"] == "tool"][::2] == ["a.txt", "completed"]


def test_tools_that_an_item_adds_are_tools_of_the_request() -> None:
    items = [{"type": "additional_tools", "role": "developer", "tools": TOOLS}, {"role": "user", "content": "hi"}]
    request = ADAPTER.parse(Incoming({"input": items}, {}))
    assert [tool["function"]["name"] for tool in request.tools or ()] == ["add", "patch", "crew__hire", "crew__tell"]
    assert not request.unsupported


def test_hosted_tools_are_not_shown_and_their_items_are_left_to_the_upstream() -> None:
    body = {
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "web_search_call", "id": "w"},
            {"type": "mcp_call", "id": "x"},
        ],
        "tools": [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}],
    }
    request = ADAPTER.parse(Incoming(body, {}))
    assert request.tools is None
    assert request.unsupported == ("input item 'web_search_call'", "input item 'mcp_call'")


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("required", "required"),
        ("auto", "auto"),
        (None, None),
        ({"type": "function", "name": "add"}, {"type": "function", "function": {"name": "add"}}),
        ({"type": "custom", "name": "patch"}, {"type": "function", "function": {"name": "patch"}}),
        ({"type": "allowed_tools", "mode": "required", "tools": []}, "required"),
        ({"type": "web_search"}, None),
    ],
)
def test_tool_choice_is_spelt_as_in_chat_completions(asked: Any, meant: Any) -> None:
    assert ADAPTER.parse(Incoming({"input": "hi", "tool_choice": asked}, {})).tool_choice == meant


def test_a_format_for_the_text_is_spelt_as_in_chat_completions() -> None:
    form = {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}
    request = ADAPTER.parse(Incoming({"input": "hi", "text": {"format": form}, "reasoning": {"effort": "low"}}, {}))
    assert request.response_format == {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": {"type": "object"}, "strict": True},
    }
    assert request.reasoning_effort == "low"
    assert ADAPTER.parse(Incoming({"input": "hi", "text": {"format": {"type": "text"}}}, {})).unsupported == ()


def test_a_providers_own_reply_and_events_are_sent_as_they_are_with_our_id() -> None:
    request = ADAPTER.parse(Incoming({"input": "hi", "stream": True}, {}))
    reply = reply_of({"role": "assistant", "content": "x"})
    reply.raw = {"id": "resp_1", "anything": {"else": 1}}
    assert json.loads(ADAPTER.body(request, reply)) == reply.raw
    writer = ADAPTER.events(request)
    assert writer.start("resp_1", "m", 1) == b""
    created = {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_theirs", "x": 1}}
    piece = {"type": "response.new_kind", "sequence_number": 7, "delta": "a"}
    ours = {**created, "response": {"id": "resp_1", "x": 1}}
    for raw, expected in ((created, ours), (piece, piece)):
        head, data = writer.delta(Delta(raw=raw)).decode().rstrip("\n").split("\n")
        assert head == f"event: {raw['type']}"
        assert json.loads(data.removeprefix("data: ")) == expected
    assert writer.finish(reply) == b""
    failed = json.loads(writer.error(UpstreamError("gone")).decode().split("\ndata: ")[1])
    assert failed["sequence_number"] == 8


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ContextOverflow("too long"), "context_length_exceeded"),
        (RequestError("closed", status=404, code="not_found"), "not_found"),
        (UpstreamError("slow down", status=429), "rate_limit_exceeded"),
        (UpstreamError("gone"), "server_error"),
    ],
)
def test_a_broken_stream_says_by_its_code_whether_to_try_again(error: Any, code: str) -> None:
    writer = ADAPTER.events(ADAPTER.parse(Incoming({"input": "hi"}, {})))
    writer.start("resp_1", "m", 1)
    writer.delta(Delta(content="he"))
    name, data = writer.error(error).decode().split("\n", 1)
    response = json.loads(data.removeprefix("data: "))["response"]
    assert name == "event: response.failed"
    assert response["error"]["code"] == code
    assert response["status"] == "failed"


@given(
    pieces=st.lists(st.tuples(st.sampled_from(["content", "reasoning"]), st.text(min_size=1, max_size=3)), max_size=6),
    told=st.integers(0, 6),
)
def test_what_a_provider_reasons_after_it_has_begun_to_answer_comes_after_the_answer(pieces, told: int) -> None:
    message: Message = {"role": "assistant", "content": "", "reasoning_content": ""}
    names = {"content": "content", "reasoning": "reasoning_content"}
    for kind, text in pieces:
        message[names[kind]] += text
    request = ADAPTER.parse(Incoming({"input": "hi", "stream": True}, {}))
    writer = ADAPTER.events(request)
    writer.start("resp_1", "m", 1)
    data = b"".join(writer.delta(Delta(**{kind: text})) for kind, text in pieces[:told]) + writer.finish(
        reply_of(message)
    )
    events = [json.loads(block.split("\ndata: ")[1]) for block in data.decode().split("\n\n")[:-1]]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    said = {"response.output_text.delta": "", "response.reasoning_text.delta": ""}
    for event in events:
        if event["type"] in said:
            said[event["type"]] += event["delta"]
    assert said["response.output_text.delta"] == message["content"]
    assert said["response.reasoning_text.delta"] == message["reasoning_content"]
    assert events[-1]["response"]["usage"]["output_tokens_details"] == {"reasoning_tokens": 1}
    assert key(messages_of(events[-1]["response"]["output"])) == key([message])


def test_the_session_retry_header_marks_a_retry() -> None:
    for value, is_retry in (("0", False), ("2", True)):
        incoming = Incoming({"input": "hi"}, {"x-stainless-retry-count": value})
        assert ADAPTER.parse(incoming).is_retry is is_retry
