"""GSM8K: grade-school word problems, read from JSONL files with `question` and `answer` (ending in `####
N`)."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from rllm.errors import DataError
from rllm.interfaces.grader import Grader
from rllm.types import Task
from rllm_bench.graders.numbers import parse_number
from rllm_bench.graders.numeric import NumericGrader

__all__ = ["Gsm8k"]

SPLITS = ("train", "test")
ENVIRONMENT = "RLLM_GSM8K_DIR"
WHERE = (
    f"give path=DIR or set {ENVIRONMENT}=DIR, a folder with train.jsonl and test.jsonl "
    "(as in github.com/openai/grade-school-math), or path=FILE for one split"
)
INSTRUCTION = "Reason step by step, then give the final answer as a plain number inside \\boxed{}."


class Row(NamedTuple):
    """One problem of a file."""

    question: str
    answer: str
    """The worked solution with its last line."""
    gold: str
    """The number after the last `####`, without thousands separators."""


class Gsm8k:
    """Tasks are the rows of a file in their order; `seed` changes nothing."""

    def __init__(self, *, path: str | Path | None = None) -> None:
        """`path` is a folder with `train.jsonl` and `test.jsonl`, or one file whose name says which split it
        is (`gsm8k_test.jsonl`). Without it, the environment variable `RLLM_GSM8K_DIR` is used in the same
        way."""
        chosen = path if path is not None else os.environ.get(ENVIRONMENT)
        self.path = Path(chosen) if chosen else None
        self._rows: dict[Path, list[Row]] = {}

    @cached_property
    def revision(self) -> str:
        """SHA-256 over the questions and answers of every split that there is."""
        digest = hashlib.sha256()
        for split, file in self._files().items():
            for row in self._read(file):
                digest.update(json.dumps([split, row.question, row.answer]).encode() + b"\n")
        return f"sha256:{digest.hexdigest()}"

    @property
    def grader(self) -> Grader:
        """See `rllm_bench.graders.numeric`."""
        return NumericGrader()

    def tasks(self, split: str, *, limit: int | None = None, seed: int = 0) -> Sequence[Task]:
        """The first `limit` rows of `split`, or all that there are.

        Raises `DataError` when the file is missing or empty, and for the first malformed row, with its line.
        """
        if split not in SPLITS:
            raise DataError(f"gsm8k has no split {split!r}; it has {' and '.join(map(repr, SPLITS))}")
        if limit is not None and limit < 1:
            raise DataError(f"limit={limit!r} asks gsm8k for no task; give at least 1")
        files = self._files()
        if split not in files:
            raise DataError(f"gsm8k finds no rows for split {split!r} in {str(self.path)!r}; {WHERE}")
        return [_task(split, index, row) for index, row in enumerate(self._read(files[split])[:limit])]

    def _files(self) -> dict[str, Path]:
        """The file of each split that there is, at least one."""
        if self.path is None:
            raise DataError(f"gsm8k does not know where its rows are; {WHERE}")
        if self.path.is_file():
            return {_split_in_name(self.path): self.path}
        files = {split: self.path / f"{split}.jsonl" for split in SPLITS}
        found = {split: file for split, file in files.items() if file.is_file()}
        if not found:
            raise DataError(f"gsm8k finds neither a file nor a folder with its rows at {str(self.path)!r}; {WHERE}")
        return found

    def _read(self, file: Path) -> list[Row]:
        if file not in self._rows:
            self._rows[file] = _read(file)
        return self._rows[file]


def _split_in_name(file: Path) -> str:
    words = set(re.split(r"[^a-z]+", file.stem.lower()))
    named = [split for split in SPLITS if split in words]
    if len(named) != 1:
        raise DataError(
            f"the name of {str(file)!r} must say whether it is the 'train' or the 'test' split, "
            "as in 'gsm8k_test.jsonl'"
        )
    return named[0]


def _read(file: Path) -> list[Row]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {str(file)!r}: {error.strerror}; {WHERE}") from error
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    rows = [_row(line, f"{file}:{number}") for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows:
        raise DataError(f"{str(file)!r} holds no row; {WHERE}")
    return rows


def _row(line: bytes, where: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not a line of JSON: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected an object with 'question' and 'answer', got {type(row).__name__}")
    texts = []
    for key in ("question", "answer"):
        value = row.get(key)
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{where}: {key!r} must be text and not empty, got {value!r}")
        texts.append(value)
    _, mark, gold = texts[1].rpartition("####")
    gold = gold.strip().replace(",", "")
    if not mark or parse_number(gold) is None:
        raise DataError(f"{where}: 'answer' must end in '#### ' and a number, got {texts[1][-40:]!r}")
    return Row(texts[0].strip(), texts[1], gold)


def _task(split: str, index: int, row: Row) -> Task:
    return Task(
        id=f"gsm8k-{split}-{index}",
        instruction=f"{row.question}\n\n{INSTRUCTION}",
        reference={"answer": row.gold, "solution": row.answer},
    )
