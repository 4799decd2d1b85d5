"""Chat templates: the same text as transformers, a sandbox, and what templates expect of messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gateway_toy import CHATML, tokenizer_dir

from rllm.errors import ModelError, RequestError
from rllm.gateway import load_renderer
from rllm.gateway.canonical import History, start
from rllm.gateway.rendering.jinja import ChatTemplate
from rllm.gateway.rendering.normal import for_template
from rllm.gateway.rendering.renderer import Turn
from rllm.gateway.rendering.toolcalls import parse_tool_calls

TOOLS = [{"type": "function", "function": {"name": "f", "description": "é <b>", "parameters": {"type": "object"}}}]
CALL = {"id": "call00001", "type": "function", "function": {"name": "f", "arguments": '{"city": "SF"}'}}
CONVERSATIONS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "hi <&> é"}],
    [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "why"},
        {"role": "user", "content": "c"},
    ],
    [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call00001", "name": "f", "content": "sun"},
    ],
]
REAL = [
    "qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_6", "llama3", "llama3_1", "llama3_2", "gemma", "gemma3",
    "phi3", "phi3_5", "glm4moe", "deepseekv3", "deepseek_r1_distill", "smolvlm", "cohere", "lfm2", "gptoss",
    "nemotron_3_nano", "qwen3_training",
]  # fmt: skip


def real_template(name: str) -> str:
    """A template of a well-known model, as TRL ships it."""
    import trl

    return (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text("utf-8")


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_templates_render_as_in_transformers(name: str, tools: Any) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    source = real_template(name)
    ours = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}, name)
    compared = 0
    for conversation in CONVERSATIONS:
        messages = for_template(conversation)
        for prompt in (False, True):
            try:
                (theirs,), _ = render_jinja_template(
                    [messages],
                    tools=tools,
                    chat_template=source,
                    add_generation_prompt=prompt,
                    bos_token="<s>",
                    eos_token="</s>",
                )
            except Exception:
                with pytest.raises(RequestError):
                    ours.render(messages, tools, generation_prompt=prompt)
            else:
                assert ours.render(messages, tools, generation_prompt=prompt) == theirs
                compared += 1
    assert compared >= 2


ENDS = {
    "qwen2_5": "<|im_end|>",
    "qwen3": "<|im_end|>",
    "qwen3_instruct_2507": "<|im_end|>",
    "qwen3_6": "<|im_end|>",
    "qwen3_training": "<|im_end|>",
    "lfm2": "<|im_end|>",
    "nemotron_3_nano": "<|im_end|>",
    "llama3": "<|eot_id|>",
    "llama3_1": "<|eot_id|>",
    "llama3_2": "<|eot_id|>",
    "gemma": "<end_of_turn>",
    "gemma3": "<end_of_turn>",
    "phi3": "<|end|>",
    "phi3_5": "<|end|>",
    "deepseekv3": "<｜end▁of▁sentence｜>",
    "deepseek_r1_distill": "<｜end▁of▁sentence｜>",
    "cohere": "<|END_OF_TURN_TOKEN|>",
    "smolvlm": "<end_of_utterance>",
}
"""How each family ends an assistant's turn."""


@pytest.mark.parametrize("name", sorted(ENDS))
@pytest.mark.parametrize("cut", [False, True])
def test_bridges_of_real_templates_end_like_the_whole_conversation(name: str, cut: bool, tmp_path: Path) -> None:
    end = ENDS[name]
    path = tokenizer_dir(tmp_path, real_template(name), special=[end], eos=end)
    renderer = load_renderer(path, "m")
    assert len(renderer.stop_ids) == 1
    bridged = 0
    for reply, new in [
        ({"role": "assistant", "content": "fine"}, {"role": "user", "content": "and then?"}),
        ({"role": "assistant", "content": "", "tool_calls": [CALL]}, {**CONVERSATIONS[3][2]}),
    ]:
        history = [{"role": "user", "content": "hi"}, reply]
        try:
            whole = renderer.decode(renderer.render([*history, new], None))
        except RequestError:
            continue
        prompt = renderer.render(history[:1], None)
        response = np.array([5, 6] if cut else [5, 6, renderer.stop_ids[0]], np.int32)
        turn = Turn(prompt_ids=prompt, response_ids=response, history=history, new_messages=[new])
        extension = renderer.extend(turn)
        if extension is not None:
            bridged += 1
            text = renderer.decode(extension.ids)
            assert whole.endswith(text)
            assert new["content"] in text
            assert whole.removesuffix(text).endswith("fine" if cut else end) or reply["content"] == ""
            assert extension.closed is cut
    assert bridged


def test_a_directory_without_a_template_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no chat template"):
        load_renderer(tokenizer_dir(tmp_path / "a", None), "m")
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        load_renderer(tmp_path, "m")
    with pytest.raises(ModelError, match="cannot be compiled"):
        load_renderer(tokenizer_dir(tmp_path / "b", "{% if %}"), "m")


@pytest.mark.parametrize("form", ["config", "named", "file"])
def test_a_template_is_found_wherever_models_keep_it(tmp_path: Path, form: str) -> None:
    path = tokenizer_dir(tmp_path, None)
    if form == "file":
        (path / "chat_template.json").write_text(json.dumps({"chat_template": CHATML}))
    else:
        config = json.loads((path / "tokenizer_config.json").read_text())
        named = [{"name": "rag", "template": "no"}, {"name": "default", "template": CHATML}]
        config["chat_template"] = CHATML if form == "config" else named
        (path / "tokenizer_config.json").write_text(json.dumps(config))
    renderer = load_renderer(path, "m")
    assert renderer.decode(renderer.render(CONVERSATIONS[0], None)).startswith("<|im_start|>user\nhi")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% set n = namespace(__class__=1) %}",
    ],
)
def test_a_malicious_template_leaves_no_sandbox(tmp_path: Path, source: str) -> None:
    with pytest.raises(ModelError, match="sandbox"):
        load_renderer(tokenizer_dir(tmp_path, source), "m").render(CONVERSATIONS[0], None)


@pytest.mark.parametrize("source", ["{{ ''.format.__self__ }}", "{{ raise_exception.__globals__ }}"])
def test_what_leads_out_of_the_sandbox_is_not_there(tmp_path: Path, source: str) -> None:
    renderer = load_renderer(tokenizer_dir(tmp_path, f"a{source}b"), "m")
    assert renderer.decode(renderer.render(CONVERSATIONS[0], None)) == "ab"


@pytest.mark.parametrize(
    ("template", "arguments", "text"),
    [
        ("{% for k, v in args.items() %}{{ k }}={{ v }};{% endfor %}", '{"city": "SF"}', "city=SF;"),
        ("{{ 'x' + args }}", '{"city": "SF"}', 'x{"city": "SF"}'),
        ("{{ args | tojson }}", '{"city":"SF"}', '{"city": "SF"}'),
        ("{{ args | tojson }}", "", "{}"),
        ("{{ args | tojson }}", None, "{}"),
        ("{{ args }}", '{"city', '{"city'),
    ],
)
def test_tool_arguments_come_as_the_template_wants_them(
    tmp_path: Path, template: str, arguments: Any, text: str
) -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{% set args = c.function.arguments %}"
        f"{template}{{% endfor %}}{{% endfor %}}"
    )
    renderer = load_renderer(tokenizer_dir(tmp_path, source), "m")
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "user", "content": "u"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    assert renderer.decode(renderer.render(messages, None)) == f"u{text}"


def test_malformed_arguments_are_the_requests_fault(tmp_path: Path) -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments.items() }}{% endfor %}{% endfor %}"
    )
    renderer = load_renderer(tokenizer_dir(tmp_path, source), "m")
    call = {"type": "function", "function": {"name": "f", "arguments": '{"city'}}
    with pytest.raises(RequestError, match="template refuses"):
        renderer.render([{"role": "assistant", "content": "", "tool_calls": [call]}], None)


@pytest.mark.parametrize(
    ("text", "count", "kept"),
    [
        ('<tool_call>{"name":"run","arguments":{"cmd":"mkdir -p t/{a,b"}}</tool_call>', 1, ""),
        ('<tool_call>{"name":"run","arguments":{"cmd":"echo </tool_call>"}}</tool_call>', 1, ""),
        ('<tool_call>{"name":"a","arguments":{}}\n{"name":"b","arguments":{}}</tool_call>', 0, None),
        ('<tool_call>{"name":"f","arguments":{"s":"a\nb"}}</tool_call>', 1, ""),
        ('```json {"name":"x","arguments":{}}```', 0, None),
        ('<tool_call>{"a":1}{"a":1}</tool_call>', 0, None),
        ('<tool_call>{"name":"x"', 0, None),
        ('<tool_call>{"name":"x"}</tool_call>', 1, ""),
        ('<tool_call>{"name":"x","arguments":"{\\"a\\": 1}"}</tool_call>', 1, ""),
        ('<tool_call>{"name":"x","arguments":[1]}</tool_call>', 0, None),
        ("<tool_call>[]</tool_call>", 0, None),
        (
            'so <tool_call>oops</tool_call> and <tool_call>{"name":"x"}</tool_call> end',
            1,
            "so <tool_call>oops</tool_call> and end",
        ),
        ("<tool_call>" * 5 + "{" * 5000, 0, None),
    ],
)
def test_tool_calls_are_read_leniently_and_never_by_half(text: str, count: int, kept: str | None) -> None:
    rest, calls = parse_tool_calls(text)
    assert len(calls) == count
    assert rest == (text if kept is None else kept)


def test_nested_arguments_stay_nested() -> None:
    inner = {"search_request": {"query": "q", "retrieval_method": "rrf"}}
    _, (call,) = parse_tool_calls(f"<tool_call>{json.dumps({'name': 's', 'arguments': inner})}</tool_call>")
    assert json.loads(call["function"]["arguments"]) == inner


def key(*messages: dict[str, Any], tools: Any = None) -> bytes:
    history: History = start(tools)
    for message in messages:
        history.add(message)
    return history.key()


def call(arguments: Any, **rest: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}, **rest}]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"role": "user", "content": "ab"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}]},
        ),
        ({"role": "system", "content": "a"}, {"role": "developer", "content": "a"}),
        ({"role": "assistant", "content": "a"}, {"role": "assistant", "content": "a\n\n", "reasoning_content": "r"}),
        (call('{"a": 1, "b": 2}'), {**call('{"b":2,"a":1}', id="x", index=0), "content": None}),
        (call("{}"), {**call("", id="y"), "content": ""}),
        (call('{"a": 1}'), {**call({"a": 1}), "content": []}),
        ({"role": "tool", "content": "x", "tool_call_id": "1"}, {"role": "tool", "content": [{"text": "x"}]}),
    ],
)
def test_messages_that_mean_the_same_have_one_key(one: Any, other: Any) -> None:
    assert key(one) == key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "user", "content": "a"}, {"role": "user", "content": "a "}),
        ({"role": "user", "content": "a"}, {"role": "system", "content": "a"}),
        ({"role": "user", "content": "a"}, {"role": "user", "content": "a", "name": "bob"}),
        (call('{"a": 1}'), call('{"a": 2}')),
        (call("{a"), call("{b")),
        ({"role": "user", "content": "a"}, {"role": "user", "content": [{"text": "a"}, {"type": "image_url"}]}),
    ],
)
def test_messages_that_differ_have_different_keys(one: Any, other: Any) -> None:
    assert key(one) != key(other)


def test_the_key_depends_on_tools_and_on_where_messages_end() -> None:
    a, b, ab = ({"role": "user", "content": text} for text in ("a", "b", "ab"))
    assert len({key(a, b), key(ab), key(b, a), key(a, b, tools=TOOLS)}) == 4
    marked = [{**TOOLS[0], "cache_control": {"type": "ephemeral"}}]
    assert key(a, tools=TOOLS) == key(a, tools=marked)
