from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rllm.errors import DataError
from rllm.testing import BenchmarkConformance
from rllm.types import Episode, Task
from rllm_bench.gsm8k import Gsm8k

ROW = {"question": "Ava has 3 bags with 4 shells and finds 5 more. How many?", "answer": "3*4=12\n#### 17"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split, number in (("train", 17), ("test", 18)):
        row = {"question": f"What is {number}?", "answer": f"It is.\n#### {number}"}
        (tmp_path / f"{split}.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(ROW | {"extra": 1}) + "\n")
    return tmp_path


def test_rows_become_tasks_whose_answer_is_hidden_from_the_agent(folder: Path) -> None:
    tasks = Gsm8k(path=folder).tasks("test")
    assert [task.id for task in tasks] == ["gsm8k-test-0", "gsm8k-test-1"]
    assert tasks[1].reference == {"answer": "17", "solution": ROW["answer"]}
    assert tasks[1].instruction == (
        f"{ROW['question']}\n\nReason step by step, then give the final answer as a plain number inside \\boxed{{}}."
    )
    assert tasks[0].for_agent().reference == {}
    assert tasks[0].metadata == {}
    assert list(Gsm8k(path=folder).tasks("test", limit=1, seed=9)) == list(tasks[:1])
    assert len(Gsm8k(path=str(folder)).tasks("train", limit=100)) == 2


def test_the_environment_variable_serves_without_a_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLLM_GSM8K_DIR", str(folder))
    assert len(Gsm8k().tasks("train")) == 2
    monkeypatch.delenv("RLLM_GSM8K_DIR")
    with pytest.raises(DataError, match=r"give path=DIR or set RLLM_GSM8K_DIR=DIR"):
        Gsm8k().tasks("train")


def test_a_single_file_serves_only_the_split_in_its_name(folder: Path) -> None:
    file = folder / "gsm8k_test_v2.jsonl"
    shutil.copy(folder / "test.jsonl", file)
    assert len(Gsm8k(path=file).tasks("test")) == 2
    with pytest.raises(DataError, match="no rows for split 'train'"):
        Gsm8k(path=file).tasks("train")
    for name in ("rows.jsonl", "train_and_test.jsonl"):
        shutil.copy(file, folder / name)
        with pytest.raises(DataError, match="must say whether it is the 'train' or the 'test' split"):
            Gsm8k(path=folder / name).tasks("test")


def test_the_revision_changes_with_the_rows_and_not_with_their_layout(folder: Path) -> None:
    before = Gsm8k(path=folder).revision
    assert before.startswith("sha256:")
    file = folder / "test.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n\r\n").replace(b": ", b":  "))
    assert Gsm8k(path=folder).revision == before
    file.write_text(json.dumps(ROW))
    assert Gsm8k(path=folder).revision != before


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "not a line of JSON"),
        (b"\xff\xfe{}", "not a line of JSON"),
        (b"[" * 100_000, "not a line of JSON"),
        (b"[]", "expected an object"),
        (b"{}", "'question' must be text"),
        (b'{"question": "", "answer": "#### 1"}', "'question' must be text"),
        (b'{"question": "q", "answer": 5}', "'answer' must be text"),
        (b'{"question": "q", "answer": "5"}', "'answer' must end in"),
        (b'{"question": "q", "answer": "5 ####"}', "'answer' must end in"),
        (b'{"question": "q", "answer": "#### five"}', "'answer' must end in"),
    ],
)
def test_a_malformed_row_is_named_by_file_and_line(folder: Path, line: bytes, complaint: str) -> None:
    file = folder / "train.jsonl"
    file.write_bytes(json.dumps(ROW).encode() + b"\n\n" + line + b"\n")
    with pytest.raises(DataError, match=rf"train\.jsonl:3: {complaint}"):
        Gsm8k(path=folder).tasks("train")


def test_missing_and_empty_files_and_unknown_splits_say_what_to_do(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a file nor a folder"):
        Gsm8k(path=tmp_path / "nowhere").tasks("test")
    (folder / "test.jsonl").write_text("\n \n")
    with pytest.raises(DataError, match="holds no row"):
        Gsm8k(path=folder).tasks("test")
    (folder / "test.jsonl").unlink()
    with pytest.raises(DataError, match="no rows for split 'test'"):
        Gsm8k(path=folder).tasks("test")
    with pytest.raises(DataError, match="no split 'dev'"):
        Gsm8k(path=folder).tasks("dev")
    with pytest.raises(DataError, match="limit=0"):
        Gsm8k(path=folder).tasks("train", limit=0)


def test_every_real_row_parses_and_its_own_solution_scores(datasets: Path) -> None:
    for name, split in (("gsm8k_test.jsonl", "test"), ("gsm8k_train_first2000.jsonl", "train")):
        benchmark = Gsm8k(path=datasets / name)
        tasks = benchmark.tasks(split)
        assert len(tasks) == len((datasets / name).read_text().splitlines())
        for task in tasks:
            episode = Episode(artifacts={"answer": task.reference["solution"]})
            assert benchmark.grader.grade(task, episode).is_correct


class TestConformance(BenchmarkConformance):
    @pytest.fixture
    def make_benchmark(self, datasets: Path, tmp_path: Path) -> Callable[[], Gsm8k]:
        (tmp_path / "test.jsonl").symlink_to(datasets / "gsm8k_test.jsonl")
        (tmp_path / "train.jsonl").symlink_to(datasets / "gsm8k_train_first2000.jsonl")
        return partial(Gsm8k, path=tmp_path)

    def solution(self, task: Task) -> str:
        return str(task.reference["solution"])
