"""`rllm plugins list`, `info` and `check`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rllm.testing.distributions import write_distribution

QUICK = "core,good,importless,quitter,misspelt,twin-a,twin-b,future"
"""Every plugin of `broken_site` but the one that sleeps."""


def test_list_shows_every_plugin_what_it_offers_and_what_is_wrong(
    rllm_process: Callable[..., Any], broken_site: Path
) -> None:
    result = rllm_process("plugins", "list", plugins=QUICK)
    assert result.status == 0
    assert "good  rllm-good 1.0\n  tracker: good\n" in result.out
    assert "sleeper  rllm-sleeper 1.0  (left out by RLLM_PLUGINS)" in result.out
    for text in (
        "failed (import): import of 'rllm_importless'",
        "SystemExit: 7",
        "did you mean 'rllm_trackers'?",
        "failed (compatibility)",
        "remedy: pip install --upgrade rllm-future rllm-core",
    ):
        assert text in " ".join(result.out.split())
    assert " ".join(result.out.split()).count("tracker 'twin' is offered more than once") == 2
    assert max(map(len, result.out.splitlines())) <= 80


def test_list_as_json_prints_json_alone(rllm_process: Callable[..., Any], broken_site: Path) -> None:
    write_distribution(
        broken_site, "rllm-loud", entry_points={"rllm": {"loud": "loud"}}, modules={"loud": "print('hello')"}
    )
    result = rllm_process("plugins", "list", "--json", plugins=f"{QUICK},loud")
    records = {each["distribution"]: each for each in json.loads(result.out)["plugins"]}
    assert records["rllm-good"]["contributions"] == {"tracker": ["good"]}
    assert records["rllm-loud"]["loaded"]
    assert [each["phase"] for each in records["rllm-quitter"]["failures"]] == ["import"]
    assert records["rllm-future"]["failures"][0]["error"] == "PluginError"
    assert not records["rllm-sleeper"]["enabled"]


def test_check_fails_when_something_is_wrong(rllm_process: Callable[..., Any], broken_site: Path) -> None:
    result = rllm_process("plugins", "check", plugins=QUICK)
    assert result.status == 1
    assert "with failures" in result.out
    assert "good  rllm-good" not in result.out


def test_check_passes_when_all_is_well(rllm_process: Callable[..., Any], broken_site: Path) -> None:
    result = rllm_process("plugins", "check", plugins="good")
    assert (result.status, result.out) == (0, "2 plugins loaded, 0 with failures, 0 commands hidden\n")


def test_check_tells_of_a_command_that_the_cores_own_hides(rllm_process: Callable[..., Any], site: Path) -> None:
    write_distribution(site, "rllm-far", entry_points={"rllm.commands": {"eval": "far:command"}})
    result = rllm_process("plugins", "check", plugins="rllm-far")
    assert result.status == 1
    assert "rllm-far: its command 'eval' is hidden by the core's own" in result.out


def test_check_load_imports_what_plugins_point_at(rllm_process: Callable[..., Any], site: Path) -> None:
    source = (
        "from rllm.hookspecs import hookimpl\nfrom rllm.interfaces.spec import TrackerSpec\n"
        "@hookimpl\ndef rllm_trackers():\n    return [TrackerSpec(name='far', summary='', target='no_such:thing')]\n"
    )
    write_distribution(site, "rllm-far", entry_points={"rllm": {"far": "far_load"}}, modules={"far_load": source})
    assert rllm_process("plugins", "check", plugins="far").status == 0
    result = rllm_process("plugins", "check", "--load", plugins="far")
    assert result.status == 1
    assert "failed (construct)" in result.out


def test_info_shows_a_failure_in_full(rllm_process: Callable[..., Any], broken_site: Path) -> None:
    result = rllm_process("plugins", "info", "importless", plugins=QUICK)
    assert result.status == 1
    assert "Traceback" in result.err
    assert "No module named 'no_such_module_anywhere'" in result.err


def test_info_shows_a_thing_by_name(rllm_process: Callable[..., Any], broken_site: Path) -> None:
    result = rllm_process("plugins", "info", "good", plugins=QUICK)
    assert result.status == 0
    assert "tracker good\n" in result.out
    assert "target: json:dumps" in result.out
    as_json = json.loads(rllm_process("plugins", "info", "good", "--json", plugins=QUICK).out)
    assert as_json["things"][0]["target"] == "json:dumps"


def test_info_of_an_unknown_name_says_what_was_meant(rllm_process: Callable[..., Any], broken_site: Path) -> None:
    result = rllm_process("plugins", "info", "goood", plugins=QUICK)
    assert result.status == 2
    assert result.err == "error: no plugin, and nothing that one offers, is called 'goood'; did you mean 'good'?\n"
