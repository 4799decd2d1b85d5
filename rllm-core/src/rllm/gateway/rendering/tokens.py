"""A tokenizer from a model's directory, through the `tokenizers` package alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from rllm.errors import ModelError, RequestError, boundary

__all__ = ["TextTokenizer"]


class TextTokenizer:
    """Text to ids and back, never adding special tokens of its own."""

    def __init__(self, tokenizer: Tokenizer, directory: Path, model_name: str, config: dict[str, Any]) -> None:
        self._tokenizer = tokenizer
        self.directory = directory
        self.model_name = model_name
        self.config = config
        """`tokenizer_config.json`."""
        self.special = {
            id: str(token.content) for id, token in tokenizer.get_added_tokens_decoder().items() if token.special
        }

    @classmethod
    def load(cls, directory: Path, model_name: str) -> TextTokenizer:
        """Raises `ModelError` when the directory has no usable tokenizer."""
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise ModelError(f"{directory} has no tokenizer.json; expected the directory of a model's tokenizer")
        with boundary(ModelError, f"tokenizer {path}"):
            tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return cls(tokenizer, directory, model_name, read_json(directory / "tokenizer_config.json"))

    def encode(self, text: str) -> NDArray[np.int32]:
        """Raises `RequestError` for text that is not Unicode (lone surrogates)."""
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise RequestError(f"the messages hold text that is not valid Unicode: {error.reason}") from None
        return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, np.int32)

    def known(self, ids: Sequence[int]) -> NDArray[np.int32]:
        """The same ids. Raises `RequestError` for one that no token has."""
        for id in ids:
            if self._tokenizer.id_to_token(id) is None:
                raise RequestError(f"the prompt holds the id {id}, which is no token of this model")
        return np.array(ids, np.int32)

    def decode(self, ids: Sequence[int] | NDArray[np.int32]) -> str:
        """Special tokens included; bytes that are not a character come out as U+FFFD."""
        values = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        return str(self._tokenizer.decode(values, skip_special_tokens=False))

    def id(self, token: str) -> int | None:
        """The id of exactly this token."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def named(self, name: str) -> str | None:
        """The token that the configuration calls `name`, such as `eos_token`."""
        value = self.config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        return value if isinstance(value, str) else None

    def eos_ids(self) -> list[int]:
        """Ids that end generation, from the tokenizer's and the model's configuration."""
        found: list[int] = []
        eos = self.named("eos_token")
        if eos is not None and (id := self.id(eos)) is not None:
            found.append(id)
        extra = read_json(self.directory / "generation_config.json").get("eos_token_id")
        for value in extra if isinstance(extra, list) else [extra]:
            if isinstance(value, int) and value not in found:
                found.append(value)
        return found


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`, empty when there is no such file. Raises `ModelError` for anything else."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds {type(value).__name__}, expected an object")
    return value
