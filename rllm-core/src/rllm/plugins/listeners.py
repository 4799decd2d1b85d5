"""Telling plugins what happens. One that raises is reported once, counted, and never heard by the run."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllm.errors import PluginError, RllmError, boundary, one_line

if TYPE_CHECKING:
    from rllm.plugins.hooks import Hooks
    from rllm.types import Episode

__all__ = ["Events"]

_log = logging.getLogger(__name__)


class Events:
    """The event hooks of `rllm.hookspecs` as methods, called by keyword."""

    def __init__(self, hooks: Callable[[], Hooks]) -> None:
        self._hooks = hooks
        self.failures: Counter[str] = Counter()
        """How often a listener raised, by plugin (`distribution:name`)."""
        self._reported: set[tuple[str, str]] = set()

    def rllm_run_started(self, *, run_id: str, path: Path, config: Mapping[str, Any]) -> None:
        """A run (training or evaluation) has begun; its folder exists."""
        self._tell("rllm_run_started", run_id=run_id, path=path, config=config)

    def rllm_rollout_finished(self, *, run_id: str, episode: Episode) -> None:
        """An attempt has ended, with whatever status, and is stored."""
        self._tell("rllm_rollout_finished", run_id=run_id, episode=episode)

    def rllm_step_finished(self, *, run_id: str, step: int, metrics: Mapping[str, float]) -> None:
        """The learner has taken a step and published its weights."""
        self._tell("rllm_step_finished", run_id=run_id, step=step, metrics=metrics)

    def rllm_evaluation_finished(self, *, run_id: str, summary: Mapping[str, Any]) -> None:
        """An evaluation, or one validation during training, has ended."""
        self._tell("rllm_evaluation_finished", run_id=run_id, summary=summary)

    def rllm_run_finished(self, *, run_id: str, status: str) -> None:
        """The run has ended: `finished`, `failed` or `interrupted`."""
        self._tell("rllm_run_finished", run_id=run_id, status=status)

    def _tell(self, event: str, **arguments: Any) -> None:
        for listener in self._hooks().listeners(event):
            plugin = listener.plugin_name
            try:
                with boundary(PluginError, "raised"):
                    listener.function(*(arguments[name] for name in listener.argnames))
            except RllmError as error:
                self.failures[plugin] += 1
                if (plugin, event) not in self._reported:
                    self._reported.add((plugin, event))
                    _log.warning("ignored a failure of %s in %s: %s", plugin, event, one_line(error))
                    _log.debug("traceback of plugin %s", plugin, exc_info=error)
