"""`rllm doctor`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rllm.testing.distributions import write_distribution


def test_a_sound_installation_passes(rllm_process: Callable[..., Any]) -> None:
    result = rllm_process("doctor", plugins="none")
    assert result.status == 0, result.out
    assert "ok    python: 3." in result.out
    assert "ok    plugin core: rllm-core" in result.out
    assert "run folder" in result.out
    assert "device" in result.out


def test_json_is_json_alone(rllm_process: Callable[..., Any]) -> None:
    report = json.loads(rllm_process("doctor", "--json", plugins="none").out)
    assert report["ok"]
    assert {"python", "platform", "rllm-core", "run folder", "device"} <= {each["topic"] for each in report["findings"]}


def test_a_failed_plugin_is_reported_with_its_remedy(rllm_process: Callable[..., Any], site: Path) -> None:
    write_distribution(
        site, "rllm-far", entry_points={"rllm": {"far": "far_bad"}}, modules={"far_bad": "import no_such_upstream"}
    )
    result = rllm_process("doctor", plugins="far")
    assert result.status == 1
    assert "FAIL  plugin far: import: " in result.out
    assert "install what provides the module 'no_such_upstream'" in result.out


def test_what_a_spec_requires_is_reported_and_is_no_fault(rllm_process: Callable[..., Any], site: Path) -> None:
    source = (
        "from rllm.hookspecs import hookimpl\nfrom rllm.interfaces.spec import Requirement, TrackerSpec\n"
        "@hookimpl\ndef rllm_trackers():\n    return [TrackerSpec(name='far', summary='', target='a:b',"
        " requires=(Requirement('no_such_upstream', 'pip install upstream'),))]\n"
    )
    write_distribution(site, "rllm-far", entry_points={"rllm": {"far": "far_needs"}}, modules={"far_needs": source})
    result = rllm_process("doctor", plugins="far")
    assert result.status == 0
    assert "tracker far: needs no_such_upstream, not installed; pip install upstream" in result.out


def test_a_run_folder_that_cannot_be_written_is_a_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import tempfile

    from rllm.cli import doctor

    def refused(*, dir: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    findings = list(doctor._run_folder(tmp_path / "runs"))
    assert findings[0].broken
    assert "Permission denied" in findings[0].text


def test_deep_asks_torch_in_a_process_of_its_own(rllm_process: Callable[..., Any], site: Path) -> None:
    fake = (
        "__version__ = '9.9'\nclass cuda:\n    device_count = staticmethod(lambda: 1)\n"
        "    get_device_name = staticmethod(lambda i: 'Fake GPU')\n"
    )
    (site / "torch.py").write_text(fake)
    code = (
        "import sys\nfrom rllm.cli import main\n"
        "try:\n    main(['doctor', '--deep'])\nfinally:\n    print('torch' in sys.modules)\n"
    )
    result = rllm_process(plugins="none", code=code)
    assert "torch: 9.9; Fake GPU" in result.out
    assert result.out.splitlines()[-1] == "False"
