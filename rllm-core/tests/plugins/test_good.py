"""Plugins that are as they should be."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from typing import Any

import pytest

from rllm import plugins

KINDS = ("algorithm", "backend", "benchmark", "harness", "sandbox", "tracker")


@pytest.mark.parametrize("kind", KINDS)
def test_an_out_of_tree_plugin_of_each_kind_is_listed_and_loaded(site: Any, kind: str) -> None:
    site.offering("rllm-far", kind, "far-thing")
    registry = plugins.registry(kind)
    assert "far-thing" in registry.names()
    assert registry.spec("far-thing").kind == kind
    assert registry.load("far-thing") is json.loads
    assert site.record("rllm-far").contributions == {kind: ("far-thing",)}


def test_names_are_sorted_and_specs_stand_in_the_same_order(site: Any) -> None:
    site.offering("rllm-z", "tracker", "aaa")
    site.offering("rllm-a", "tracker", "zzz")
    registry = plugins.registry("tracker")
    assert registry.names() == sorted(registry.names())
    assert [spec.name for spec in registry.specs()] == registry.names()


def test_the_target_is_imported_only_when_it_is_loaded(site: Any) -> None:
    site.write(site.path, "heavy", entry_points={}, modules={"far_heavy": "thing = object()"})
    site.offering("rllm-far", "backend", "far", target="far_heavy:thing")
    registry = plugins.registry("backend")
    assert registry.spec("far").target == "far_heavy:thing"
    assert "far_heavy" not in sys.modules
    registry.load("far")
    assert "far_heavy" in sys.modules


def test_the_core_comes_through_the_same_door(site: Any) -> None:
    core = site.record("rllm-core")
    assert core.loaded
    assert "grpo" in core.contributions["algorithm"]
    assert callable(plugins.registry("algorithm").load("grpo"))


def test_the_resolved_set_names_every_loaded_distribution_with_its_version(site: Any) -> None:
    site.offering("rllm-far", "tracker", "far")
    site.plugin("rllm-broken", "raise RuntimeError('no')\n")
    resolved = plugins.resolved()
    assert resolved["rllm-far"] == "1.0"
    assert resolved["rllm-core"] == importlib.metadata.version("rllm-core")
    assert "rllm-broken" not in resolved
    assert list(resolved) == sorted(resolved)


def test_objects_of_the_older_groups_are_harnesses_and_graders(site: Any) -> None:
    site.write(
        site.path,
        "older-package",
        version="3.2",
        entry_points={
            "rllm.agents": {"old-agent": "older:agent", "old-class": "older:Agent"},
            "rllm.evaluators": {"old-judge": "older:judge"},
        },
        modules={"older": "agent = ['an agent']\njudge = ['a judge']\nclass Agent:\n    pass\n"},
    )
    assert {"old-agent", "old-class"} <= set(plugins.registry("harness").names())
    assert plugins.registry("grader").names() == ["old-judge"]
    assert "older" not in sys.modules, "listing imports nothing"
    assert plugins.registry("harness").load("old-agent")() == ["an agent"]
    assert type(plugins.registry("harness").load("old-class")()).__name__ == "Agent"
    assert plugins.registry("grader").load("old-judge")() == ["a judge"]
    assert plugins.resolved()["older-package"] == "3.2"


def test_a_package_may_offer_one_agent_in_the_older_and_the_newer_way(site: Any) -> None:
    site.write(
        site.path,
        "both",
        entry_points={"rllm": {"both": "both_plugin"}, "rllm.agents": {"agent": "both_plugin:old"}},
        modules={
            "both_plugin": """
                from rllm.hookspecs import hookimpl
                from rllm.interfaces.spec import HarnessSpec
                @hookimpl
                def rllm_harnesses():
                    return [HarnessSpec(name="agent", summary="new", target="json:dumps")]
            """
        },
    )
    assert plugins.registry("harness").load("agent") is json.dumps


def test_of_two_copies_of_a_distribution_the_first_on_the_path_counts(
    site: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    site.offering("rllm-far", "tracker", "far")
    behind = tmp_path / "behind"
    site.write(behind, "rllm-far", version="0.1", entry_points={"rllm": {"far": "far_old"}})
    monkeypatch.setattr(sys, "path", [*sys.path, str(behind)])
    assert site.record("rllm-far").version == "1.0"


def test_a_plugin_may_be_an_object_with_hooks(site: Any) -> None:
    site.write(
        site.path,
        "rllm-object",
        entry_points={"rllm": {"object": "far_object:plugin"}},
        modules={
            "far_object": """
                from rllm.hookspecs import hookimpl
                from rllm.interfaces.spec import TrackerSpec
                class Plugin:
                    @hookimpl
                    def rllm_trackers(self):
                        yield TrackerSpec(name="by-object", summary="s", target="json:dumps")
                plugin = Plugin()
            """
        },
    )
    assert plugins.registry("tracker").load("by-object") is json.dumps


def test_what_a_plugin_prints_on_import_stays_off_stdout(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    site.plugin("rllm-loud", "print('welcome')\n")
    plugins.inventory()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "welcome" in captured.err
