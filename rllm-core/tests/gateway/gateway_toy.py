"""A toy model for the gateway's tests: a real `tokenizers` tokenizer, chat templates, and a scripted sampler."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from rllm.errors import ContextOverflow
from rllm.interfaces.sampler import DeltaListener, Sample, SamplingParams
from rllm.types import FinishReason

CHATML = (
    "{% if tools %}{{ '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] }}"
    "{% for c in m.get('tool_calls', []) %}{{ '<tool_call>\\n' + ({'name': c.function.name, "
    "'arguments': c.function.arguments} | tojson) + '\\n</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
STRIP_THINKING = (
    "{% for m in messages %}{% set content = m['content'] %}"
    "{% if m['role'] == 'assistant' and '</think>' in content and not loop.last %}"
    "{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "{% if m['role'] == 'assistant' and m.get('reasoning_content') and loop.last %}"
    "{% set content = '<think>\\n' + m['reasoning_content'] + '\\n</think>\\n\\n' + content %}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\\n' + content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""Like Qwen3's: the reasoning of every reply but the last is dropped."""
ALTERNATING = (
    "{% if messages[0]['role'] not in ('system', 'user') %}{{ raise_exception('must begin with user') }}{% endif %}"
    + CHATML
)

SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>")
MERGES = ("he", "llo", "hello")


def tokenizer_dir(
    path: Path,
    template: str | None = CHATML,
    *,
    special: Sequence[str] = SPECIAL,
    added: Sequence[str] = (),
    eos: str = "<|im_end|>",
) -> Path:
    """A byte-level tokenizer in which `hello` is one token and `he`, `llo` are two, and a chat template."""
    path.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: at for at, token in enumerate(alphabet)}
    merges = [("h", "e"), ("l", "l"), ("ll", "o"), ("he", "llo")]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in added])
    tokenizer.save(str(path / "tokenizer.json"))
    config = {
        "bos_token": "<|pad|>",
        "eos_token": eos,
        "pad_token": "<|pad|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    if template is not None:
        (path / "chat_template.jinja").write_text(template)
    return path


class Toy:
    """Encodes for scripts and checks."""

    def __init__(self, path: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def text(self, ids: Sequence[int] | NDArray[np.int32]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))


async def until(condition: Callable[[], object], *, timeout_s: float = 5.0) -> None:
    """Wait for something that the tests can only look at."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)


Script = Callable[[NDArray[np.int32], SamplingParams], Sequence[int]]


class ScriptedSampler:
    """Says what its script says, one id at a time when somebody listens; remembers what it was asked and gave."""

    def __init__(self, script: Script, *, context_length: int = 4096, pause_s: float | None = None) -> None:
        self.script = script
        self.context_length = context_length
        self.pause_s = pause_s
        self.prompts: list[NDArray[np.int32]] = []
        self.params: list[SamplingParams] = []
        self.samples: list[Sample] = []
        self.cancelled = 0
        self.running = 0
        self.version = 7

    async def sample(
        self, prompt_ids: NDArray[np.int32], params: SamplingParams, *, on_delta: DeltaListener | None = None
    ) -> Sample:
        if prompt_ids.size + 1 > self.context_length:
            raise ContextOverflow(f"{prompt_ids.size} tokens do not fit in {self.context_length}")
        self.prompts.append(prompt_ids)
        self.params.append(params)
        ids = np.array(self.script(prompt_ids, params), np.int32)
        reason = FinishReason.STOP
        if ids.size > params.max_tokens:
            ids, reason = ids[: params.max_tokens], FinishReason.LENGTH
        self.running += 1
        try:
            if on_delta is not None or self.pause_s is not None:
                for at in range(ids.size):
                    await asyncio.sleep(self.pause_s or 0)
                    if on_delta is not None:
                        on_delta(ids[at : at + 1])
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        sample = Sample(
            ids=ids,
            logprobs=np.array([-0.25 * (at + 1) for at in range(ids.size)], np.float32),
            versions=np.full(ids.size, self.version, np.int32),
            finish_reason=reason,
        )
        self.samples.append(sample)
        return sample
