"""Each kit passes the good implementation, and each of its promises is broken by a fake that breaks nothing else."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rllm import testing

KITS = ("algorithm", "backend", "benchmark", "harness", "sandbox", "tracker")
SLOW = ("backend", "sandbox")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] if kind in SLOW else []) for kind in KITS]
)
def test_each_promise_is_broken_by_a_fake_that_breaks_nothing_else(kind: str, promises: Callable[[str], Any]) -> None:
    ran, failed = promises(f"fakes_{kind}.py")
    kit = getattr(testing, f"{kind.capitalize()}Conformance")
    promised = {name for name in dir(kit) if name.startswith("test_")}
    assert all(tried == promised for tried in ran.values())
    assert failed.pop("TestGood") == set()
    assert {name: broken for name, broken in failed.items() if len(broken) != 1} == {}
    assert sorted(next(iter(broken)) for broken in failed.values()) == sorted(promised)


@pytest.mark.parametrize("kind", KITS)
def test_a_kit_that_is_not_filled_in_says_what_to_fill_in(
    kind: str, promises: Callable[[str], Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kit = f"{kind.capitalize()}Conformance"
    file = tmp_path / f"test_empty_{kind}.py"
    file.write_text(f"from rllm.testing import {kit}\nclass TestEmpty({kit}):\n    pass\n")
    ran, failed = promises(str(file))
    assert ran == {}
    assert len(failed["TestEmpty"]) > 5
    assert f"of {kit} to return" in capfd.readouterr().out


def test_importing_the_package_imports_no_pytest() -> None:
    import subprocess
    import sys

    code = "import sys; from rllm.testing import ScriptedSampler, ScriptedModelServer; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_every_public_name_is_there() -> None:
    for name in testing.__all__:
        assert getattr(testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        testing.nothing  # noqa: B018
    assert importlib.util.find_spec("rllm.testing") is not None
