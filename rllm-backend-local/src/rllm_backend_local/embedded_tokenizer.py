"""The tokenizer of the embedded model: bytes, two-digit numbers, and one token for each fixed phrase.

Any text can be written (one token a byte); the phrases and numbers of the embedded benchmark are one token each, so
that its prompts are 13 tokens long. The chat template is ChatML.
"""

from __future__ import annotations

from pathlib import Path

from rllm_backend_local.demonstrations import PHRASES

__all__ = ["CHAT_TEMPLATE", "END", "PAD", "START", "write_tokenizer"]

START, END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
_ROLES = ("system\n", "user\n", "assistant\n")
_NUMBERS = tuple(str(number) for number in range(10, 100))

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)


def write_tokenizer(path: Path, *, context_length: int) -> int:
    """Write the tokenizer and its chat template into the folder `path`; returns the size of the vocabulary."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    specials = (PAD, START, END)
    alphabet = sorted(ByteLevel.alphabet())
    vocabulary = {symbol: index for index, symbol in enumerate((*specials, *alphabet))}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in specials])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in (*PHRASES, *_ROLES, *_NUMBERS)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        model_max_length=context_length,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(path)
    return len(fast)
