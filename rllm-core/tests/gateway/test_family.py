"""Model families of the `renderers` package, with a toy vocabulary that has their special tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gateway_toy import Toy, tokenizer_dir

from rllm.errors import ModelError
from rllm.gateway import Renderer, load_renderer
from rllm.gateway.rendering.family import FamilyRenderer
from rllm.gateway.rendering.renderer import Turn

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
ADDED = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
USER = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_dir(tmp_path_factory.mktemp("qwen"), special=SPECIAL, added=ADDED)


@pytest.fixture(scope="module")
def qwen(path: Path) -> Renderer:
    return load_renderer(path, "Qwen/Qwen3-0.6B")


@pytest.fixture(scope="module")
def words(path: Path) -> Toy:
    return Toy(path)


def parsed(renderer: Renderer, words: Toy, text: str, **options: Any) -> dict[str, Any]:
    prompt = renderer.render(USER, None)
    return renderer.parse(np.array(words.ids(text), np.int32), prompt_ids=prompt, **{"tools": TOOLS, **options})


def test_a_known_name_gets_its_family_and_any_other_the_template(path: Path, qwen: Renderer) -> None:
    assert isinstance(qwen, FamilyRenderer)
    assert not isinstance(load_renderer(path, "someone/else"), FamilyRenderer)
    assert not isinstance(load_renderer(path, "embedded"), FamilyRenderer)


def test_a_vocabulary_that_is_not_the_familys_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"renderer of 'Qwen/Qwen3-0\.6B'"):
        load_renderer(tokenizer_dir(tmp_path, special=["<|x|>"], eos="<|x|>"), "Qwen/Qwen3-0.6B")


def test_a_turn_of_a_user_keeps_the_sampled_reasoning(qwen: Renderer, words: Toy) -> None:
    prompt = qwen.render(USER, None)
    response = np.array(words.ids("<think>\nhm\n</think>\n\nyes<|im_end|>"), np.int32)
    history = [*USER, {"role": "assistant", "content": "yes"}]
    turn = Turn(prompt_ids=prompt, response_ids=response, history=history, new_messages=USER)
    extension = qwen.extend(turn)
    assert extension is not None
    assert not extension.closed
    assert qwen.decode(extension.ids) == "\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_a_cut_reply_is_closed(qwen: Renderer, words: Toy) -> None:
    prompt, response = qwen.render(USER, None), np.array(words.ids("<think>\nhm"), np.int32)
    history = [*USER, {"role": "assistant", "content": ""}]
    turn = Turn(prompt_ids=prompt, response_ids=response, history=history, new_messages=USER)
    extension = qwen.extend(turn)
    assert extension is not None
    assert extension.closed
    assert qwen.decode(extension.ids).startswith("</think><|im_end|>\n<|im_start|>user")


def test_replies_are_parsed(qwen: Renderer, words: Toy) -> None:
    text = '<think>\nhm\n</think>\n\nso<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call><|im_end|>'
    message = parsed(qwen, words, text)
    assert message["reasoning_content"] == "hm"
    assert message["content"] == "so"
    assert [call["function"] for call in message["tool_calls"]] == [{"name": "f", "arguments": '{"a": 1}'}]
    broken = parsed(qwen, words, "so<tool_call>\n{oops\n</tool_call><|im_end|>")
    assert "tool_calls" not in broken
    assert "{oops" in broken["content"]
    assert "tool_call" in parsed(qwen, words, text, tools=None)["content"]


def test_a_stop_string_cuts_the_reply(qwen: Renderer, words: Toy) -> None:
    assert parsed(qwen, words, "one STOP", stop=("STOP",))["content"].rstrip() == "one"
