"""Names that are asked for: known, mistyped, left out, missing something, or a path."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rllm import plugins
from rllm.errors import MissingDependency, PluginError, UnknownName
from rllm.plugins import Phase


def test_a_mistyped_name_is_told_what_was_meant_and_what_to_install(site: Any) -> None:
    with pytest.raises(UnknownName) as caught:
        plugins.registry("sandbox").spec("dokcer")
    text = str(caught.value)
    assert text.startswith("no sandbox is called 'dokcer'; did you mean 'docker'?")
    assert "pip install rllm-sandbox-docker" in text


def test_a_well_known_name_that_is_not_installed_gets_the_pip_line(site: Any) -> None:
    with pytest.raises(UnknownName, match=r"no sandbox is called 'modal'; .*pip install rllm-sandbox-modal\."):
        plugins.registry("sandbox").load("modal")


def test_an_installed_name_is_preferred_to_one_that_is_not(site: Any) -> None:
    site.offering("rllm-far", "sandbox", "dockr")
    with pytest.raises(UnknownName, match="did you mean 'dockr'"):
        plugins.registry("sandbox").spec("dockrr")


def test_a_name_like_no_other_gets_the_list(site: Any) -> None:
    site.offering("rllm-far", "sandbox", "far")
    with pytest.raises(UnknownName, match="no sandbox is called 'qqqq'. Installed: far"):
        plugins.registry("sandbox").spec("qqqq")


def test_an_unknown_kind_is_told_which_there_are(site: Any) -> None:
    with pytest.raises(UnknownName, match="no kind is called 'sandboxes'; did you mean 'sandbox'"):
        plugins.registry("sandboxes")


def test_what_a_spec_requires_is_named_with_its_pip_line(site: Any) -> None:
    requires = "requires=(Requirement('no_such_upstream.part', 'pip install upstream'),)"
    site.offering("rllm-far", "backend", "far", more=requires)
    with pytest.raises(MissingDependency, match=r"backend 'far'.*'no_such_upstream.part'.*: pip install upstream"):
        plugins.registry("backend").load("far")
    assert plugins.registry("backend").spec("far").name == "far"
    assert site.record("rllm-far").failures == (), "what is not installed is not the plugin's fault"


def test_requirements_are_looked_up_without_being_imported(site: Any) -> None:
    site.write(
        site.path,
        "up",
        entry_points={},
        modules={"far_up.__init__": "raise RuntimeError('imported')", "far_up.part": ""},
    )
    site.offering(
        "rllm-far", "backend", "far", more="requires=(Requirement('far_up.part', 'x'), Requirement('json', 'y'))"
    )
    assert callable(plugins.registry("backend").load("far"))
    assert "far_up" not in sys.modules


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import no_such_upstream", "ModuleNotFoundError"),
        ("raise SystemExit(1)", "SystemExit"),
        ("other = 1", "has no attribute 'thing'"),
    ],
)
def test_a_target_that_fails_is_recorded_under_construct(site: Any, source: str, text: str) -> None:
    site.write(site.path, "code", entry_points={}, modules={"far_code": source})
    site.offering("rllm-far", "backend", "far", target="far_code:thing")
    for _ in range(2):
        with pytest.raises(PluginError, match=text) as caught:
            plugins.registry("backend").load("far")
        assert "plugin 'far' of rllm-far 1.0" in str(caught.value)
    (failure,) = site.record("rllm-far").failures
    assert failure.phase is Phase.CONSTRUCT
    assert site.record("rllm-far").loaded


def test_a_path_works_wherever_a_name_does_and_the_working_directory_counts(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_agent.py").write_text("class Outer:\n    flow = 'the flow'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    registry = plugins.registry("harness")
    assert registry.load("my_agent:Outer.flow") == "the flow"
    assert registry.spec("my_agent:Outer.flow").target == "my_agent:Outer.flow"
    del sys.modules["my_agent"]


def test_a_path_loads_no_plugin(site: Any) -> None:
    module = site.offering("rllm-far", "tracker", "far")
    plugins.registry("tracker").load("json:dumps")
    assert module not in sys.modules


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("no_such_module:thing", "there is no module 'no_such_module'"),
        ("json:dump_", "there is no 'dump_' in it; did you mean 'dump'"),
        ("json:", "not of the form"),
        (":thing", "not of the form"),
        ("a b:c", "not of the form"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ends(site: Any, path: str, text: str) -> None:
    with pytest.raises(UnknownName, match=text):
        plugins.registry("harness").load(path)


def test_a_path_to_code_that_fails_is_a_plugin_error(site: Any) -> None:
    site.write(site.path, "code", entry_points={}, modules={"far_bad": "1 / 0"})
    with pytest.raises(PluginError, match=r"import of 'far_bad:x': ZeroDivisionError"):
        plugins.registry("harness").load("far_bad:x")


def test_none_leaves_the_core_alone(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = site.offering("rllm-far", "tracker", "far")
    monkeypatch.setenv("RLLM_PLUGINS", "none")
    assert "far" not in plugins.registry("tracker").names()
    assert "grpo" in plugins.registry("algorithm").names()
    assert module not in sys.modules
    assert not site.record("rllm-far").enabled
    assert set(plugins.resolved()) == {"rllm-core"}


@pytest.mark.parametrize("chosen", ["far", "rllm-far", "Rllm_Far", "other, far"])
def test_plugins_are_chosen_by_entry_point_or_distribution(
    site: Any, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    site.offering("rllm-far", "tracker", "far-thing")
    site.offering("rllm-near", "tracker", "near-thing")
    monkeypatch.setenv("RLLM_PLUGINS", chosen)
    names = plugins.registry("tracker").names()
    assert "far-thing" in names
    assert "near-thing" not in names


def test_a_plugin_that_is_left_out_is_named_when_it_is_asked_for(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site.offering("rllm-tracker-far", "tracker", "far")
    monkeypatch.setenv("RLLM_PLUGINS", "none")
    with pytest.raises(UnknownName, match="left out with plugin 'tracker-far' of rllm-tracker-far"):
        plugins.registry("tracker").spec("far")


def test_a_chosen_plugin_that_is_not_there_is_a_recorded_failure(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLLM_PLUGINS", "no-such-plugin")
    (record,) = (each for each in plugins.inventory() if each.name == "no-such-plugin")
    assert record.failures[0].phase is Phase.DISCOVER
