"""A broken plugin fails alone, is recorded with its phase and remedy, and is heard of when it is asked for."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from rllm import plugins
from rllm.errors import DuplicateName, PluginError, UnknownName
from rllm.plugins import Phase, kernel

BROKEN = {
    "raises-on-import": ("import no_such_module_anywhere\n", Phase.IMPORT, "no_such_module_anywhere"),
    "exits-on-import": ("raise SystemExit(3)\n", Phase.IMPORT, "SystemExit: 3"),
    "asserts-on-import": ("assert False, 'never'\n", Phase.IMPORT, "AssertionError: never"),
    "has-a-syntax-error": ("def (:\n", Phase.IMPORT, "SyntaxError"),
    "misspells-a-hook": (
        "@hookimpl\ndef rllm_harneses():\n    return []\n",
        Phase.REGISTER,
        "no hook called 'rllm_harneses'; did you mean 'rllm_harnesses'?",
    ),
    "forgets-the-marker": ("def rllm_harnesses():\n    return []\n", Phase.REGISTER, "not marked as a hook"),
    "takes-unknown-arguments": ("@hookimpl\ndef rllm_run_finished(colour):\n    pass\n", Phase.REGISTER, "colour"),
    "wraps": ("@hookimpl(wrapper=True)\ndef rllm_harnesses():\n    yield\n", Phase.REGISTER, "wrapper"),
    "gives-none": ("@hookimpl\ndef rllm_trackers():\n    pass\n", Phase.REGISTER, "returned None"),
    "gives-another-kind": (
        "@hookimpl\ndef rllm_trackers():\n    return [HarnessSpec(name='x', summary='', target='a:b')]\n",
        Phase.REGISTER,
        "expected a TrackerSpec",
    ),
    "gives-a-bad-target": (
        "@hookimpl\ndef rllm_trackers():\n    return [TrackerSpec(name='x', summary='', target='a.b')]\n",
        Phase.REGISTER,
        "expected 'module:attribute'",
    ),
    "gives-a-bad-name": (
        "@hookimpl\ndef rllm_trackers():\n    return [TrackerSpec(name='a:x', summary='', target='a:b')]\n",
        Phase.REGISTER,
        "no colon",
    ),
    "raises-in-a-hook": ("@hookimpl\ndef rllm_trackers():\n    return [1 / 0]\n", Phase.REGISTER, "ZeroDivisionError"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plugin_is_recorded_and_the_others_work(site: Any, case: str) -> None:
    source, phase, text = BROKEN[case]
    site.plugin("rllm-broken", source, version="0.3")
    site.offering("rllm-good", "tracker", "good")
    assert "good" in plugins.registry("tracker").names()
    record = site.record("rllm-broken")
    (failure,) = record.failures
    assert (record.name, record.version, record.loaded, record.contributions) == ("broken", "0.3", False, {})
    assert failure.phase is phase
    assert text in failure.message
    assert failure.remedy
    assert isinstance(failure.error, BaseException)
    assert site.record("rllm-good").failures == ()


def test_nothing_of_a_plugin_that_failed_stays_registered(site: Any) -> None:
    site.plugin(
        "rllm-half",
        """
told = []

@hookimpl
def rllm_run_finished(run_id, status):
    told.append(run_id)

@hookimpl
def rllm_trackers():
    yield TrackerSpec(name="half", summary="s", target="json:dumps")
    raise RuntimeError("no more")
""",
    )
    assert "half" not in plugins.registry("tracker").names()
    plugins.events().rllm_run_finished(run_id="r", status="finished")
    assert sys.modules["rllm_half_plugin"].told == []


def test_asking_for_what_a_failed_plugin_announced_raises_its_failure(site: Any) -> None:
    site.plugin(
        "rllm-half",
        """
@hookimpl
def rllm_trackers():
    yield TrackerSpec(name="whole", summary="s", target="json:dumps")
    raise RuntimeError("no more")
""",
    )
    with pytest.raises(PluginError, match=r"plugin 'half' of rllm-half 1.0 failed \(register\).*no more") as caught:
        plugins.registry("tracker").load("whole")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_asking_for_a_well_known_name_raises_the_failure_of_its_package(site: Any) -> None:
    site.plugin("rllm-sandbox-docker", "raise OSError('no socket')\n")
    with pytest.raises(PluginError, match="rllm-sandbox-docker 1.0 failed .import.*no socket"):
        plugins.registry("sandbox").spec("docker")


def test_an_unknown_name_mentions_plugins_that_failed(site: Any) -> None:
    site.plugin("rllm-broken", "1 / 0\n")
    with pytest.raises(UnknownName, match=r"Plugins that failed: .*broken.* \(see rllm plugins check\)"):
        plugins.registry("sandbox").spec("nowhere")


def test_an_incompatible_plugin_is_refused_without_being_imported(site: Any) -> None:
    module = site.plugin("rllm-new", "raise RuntimeError('imported')\n", requires=("rllm-core>=99,<100",))
    (failure,) = site.record("rllm-new").failures
    assert failure.phase is Phase.COMPATIBILITY
    assert "needs rllm-core<100,>=99" in failure.message
    assert failure.remedy == "pip install --upgrade rllm-new rllm-core"
    assert module not in sys.modules


@pytest.mark.parametrize(
    "requirement",
    ["rllm_core>=0.0.1", 'rllm-core>=99; python_version < "3"', 'rllm-core>=99; extra == "x"', "numpy>=99"],
)
def test_a_requirement_that_does_not_apply_is_no_obstacle(site: Any, requirement: str) -> None:
    site.plugin("rllm-fine", "", requires=(requirement,))
    assert site.record("rllm-fine").loaded


def test_a_name_that_two_plugins_offer_is_an_error_that_names_both(site: Any) -> None:
    site.offering("rllm-one", "sandbox", "twice")
    site.offering("rllm-two", "sandbox", "twice")
    site.offering("rllm-two-more", "sandbox", "once")
    registry = plugins.registry("sandbox")
    assert "twice" not in registry.names()
    assert "once" in registry.names()
    for ask in (registry.spec, registry.load):
        with pytest.raises(DuplicateName, match="rllm-one 1.0 and plugin 'two' of rllm-two 1.0"):
            ask("twice")
    for distribution in ("rllm-one", "rllm-two"):
        record = site.record(distribution)
        assert record.loaded
        assert [each.phase for each in record.failures] == [Phase.REGISTER]
        assert isinstance(record.failures[0].error, DuplicateName)


def test_one_name_of_two_kinds_is_no_duplicate(site: Any) -> None:
    site.offering("rllm-one", "sandbox", "same")
    site.offering("rllm-two", "tracker", "same")
    assert plugins.registry("sandbox").spec("same").kind == "sandbox"
    assert plugins.registry("tracker").spec("same").kind == "tracker"


def test_a_module_that_two_entry_points_name_is_registered_once(site: Any) -> None:
    site.write(
        site.path,
        "rllm-double",
        entry_points={"rllm": {"double-a": "far_double", "double-b": "far_double"}},
        modules={"far_double": ""},
    )
    records = {each.name: each for each in plugins.inventory()}
    assert records["double-a"].loaded
    assert "registered already" in records["double-b"].failures[0].message


def test_metadata_that_cannot_be_read_is_recorded(site: Any) -> None:
    site.write(site.path, "rllm-torn", entry_points={"rllm": {}})
    (site.path / "rllm_torn-1.0.dist-info" / "entry_points.txt").write_text("[rllm]\nno equals sign\n")
    site.offering("rllm-good", "tracker", "good")
    assert "good" in plugins.registry("tracker").names()
    (failure,) = site.record("rllm-torn").failures
    assert failure.phase is Phase.DISCOVER


def test_a_slow_import_is_named_in_the_log(site: Any, monkeypatch: Any, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(kernel, "SLOW_IMPORT_S", 0.05)
    site.plugin("rllm-slow", "import time\ntime.sleep(0.1)\n")
    with caplog.at_level(logging.WARNING):
        assert site.record("rllm-slow").import_s >= 0.1
    assert "plugin 'slow' of rllm-slow 1.0 took 0.1 s to import" in caplog.text
