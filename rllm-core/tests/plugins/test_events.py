"""Telling every plugin, and surviving the ones that cannot bear it."""

from __future__ import annotations

import inspect
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from rllm import hookspecs, plugins
from rllm.plugins.hooks import EVENTS
from rllm.plugins.listeners import Events

LISTENER = """
told = []

@hookimpl
def rllm_step_finished(step, metrics):
    told.append((step, dict(metrics)))
"""
THROWER = """
@hookimpl
def rllm_step_finished(run_id):
    raise {error}
"""


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_has_the_signature_of_its_hook(event: str) -> None:
    method = inspect.signature(getattr(Events, event)).parameters
    hook = inspect.signature(getattr(hookspecs, event)).parameters
    assert [name for name in method if name != "self"] == list(hook)
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for name, each in method.items() if name != "self")


def test_every_hook_is_either_an_event_or_a_contribution() -> None:
    from rllm.plugins.hooks import CONTRIBUTIONS

    declared = {name for name in vars(hookspecs) if name.startswith("rllm_")}
    assert declared == {*EVENTS, *CONTRIBUTIONS, "rllm_commands"}


def test_a_listener_may_take_some_of_the_arguments(site: Any) -> None:
    site.plugin("rllm-ear", LISTENER)
    plugins.events().rllm_step_finished(run_id="r", step=3, metrics={"loss": 0.5})
    assert sys.modules["rllm_ear_plugin"].told == [(3, {"loss": 0.5})]


@pytest.mark.parametrize("error", ["ValueError('boom')", "SystemExit(1)", "AssertionError()"])
def test_a_listener_that_raises_is_logged_once_counted_and_does_not_stop_the_others(
    site: Any, caplog: pytest.LogCaptureFixture, error: str
) -> None:
    site.plugin("rllm-a-thrower", THROWER.format(error=error))
    site.plugin("rllm-ear", LISTENER)
    site.plugin("rllm-z-thrower", THROWER.format(error=error))
    events = plugins.events()
    with caplog.at_level(logging.WARNING):
        for step in range(3):
            events.rllm_step_finished(run_id="r", step=step, metrics={})
    assert len(sys.modules["rllm_ear_plugin"].told) == 3
    assert events.failures == {"rllm-a-thrower:a-thrower": 3, "rllm-z-thrower:z-thrower": 3}
    assert caplog.text.count("rllm-a-thrower:a-thrower in rllm_step_finished") == 1


def test_an_interrupt_passes_through(site: Any) -> None:
    site.plugin("rllm-a-thrower", THROWER.format(error="KeyboardInterrupt()"))
    with pytest.raises(KeyboardInterrupt):
        plugins.events().rllm_step_finished(run_id="r", step=0, metrics={})


def test_every_event_reaches_its_listener(site: Any) -> None:
    source = "told = []\n"
    for event in EVENTS:
        source += f"\n@hookimpl\ndef {event}(run_id):\n    told.append({event!r})\n"
    site.plugin("rllm-ear", source)
    events = plugins.events()
    events.rllm_run_started(run_id="r", path=Path("x"), config={})
    events.rllm_rollout_finished(run_id="r", episode=None)  # type: ignore[arg-type]  # nobody looks at it
    events.rllm_step_finished(run_id="r", step=0, metrics={})
    events.rllm_evaluation_finished(run_id="r", summary={})
    events.rllm_run_finished(run_id="r", status="finished")
    assert sys.modules["rllm_ear_plugin"].told == list(EVENTS)
    assert site.record("rllm-ear").contributions == {"event": EVENTS}
