"""What long work shows: a live bar on a terminal, plain lines elsewhere. Everything goes to stderr."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from rllm.engine.statistics import Summary
from rllm.interfaces.backend import ModelInfo
from rllm.types import Episode, EpisodeStatus

__all__ = ["EvalDisplay", "TrainDisplay", "percent"]

_PLAIN_INTERVAL_S = 5.0
_REDRAW_INTERVAL_S = 0.1


def percent(value: float | None) -> str:
    """A proportion as people read it."""
    return "–" if value is None else f"{100 * value:.1f} %"


class _Tally:
    """Running numbers of a batch of rollouts."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.shown = self.started
        self.done = 0
        self.graded = 0
        self.correct = 0
        self.reward = 0.0
        self.failed: Counter[str] = Counter()

    def add(self, episode: Episode) -> None:
        self.done += 1
        if episode.status is EpisodeStatus.GRADED:
            self.graded += 1
            self.correct += bool(episode.is_correct)
            self.reward += episode.reward or 0.0
        else:
            self.failed[episode.status.value] += 1

    def text(self) -> str:
        rate = self.done / max(1e-9, time.monotonic() - self.started)
        parts = [f"{rate:.0f}/s" if rate >= 10 else f"{rate:.1f}/s"]
        if self.graded:
            parts.append(f"reward {self.reward / self.graded:.3f}")
            parts.append(f"correct {percent(self.correct / self.graded)}")
        parts += [f"{count} {status}" for status, count in self.failed.items()]
        return " · ".join(parts)


class _Display:
    """A bar on a terminal, and lines that stay."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())
        self.live = self.console.is_terminal
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=7)),
            TextColumn("{task.fields[info]}", style="dim", table_column=Column(ratio=1, no_wrap=True)),
            TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
            expand=True,
            console=self.console,
            transient=True,
            refresh_per_second=8,
            disable=not self.live,
        )
        self._last_plain = 0.0

    def __enter__(self) -> _Display:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def line(self, text: str) -> None:
        """A line that stays."""
        self.console.print(text, markup=False)

    def bar(self, description: str, total: int, info: str = "") -> TaskID:
        return self.progress.add_task(description, total=total, info=info)

    def due(self, tally: _Tally) -> bool:
        """Whether it is time to show the tally again: ten times a second, and at the end."""
        now = time.monotonic()
        if now - tally.shown < _REDRAW_INTERVAL_S:
            return False
        tally.shown = now
        return True

    def plain(self, text: str, *, always: bool = False, since: float = 0.0) -> None:
        """A line now and then, where there is no bar; not sooner than that after `since`."""
        now = time.monotonic()
        if not self.live and (always or now - max(since, self._last_plain) >= _PLAIN_INTERVAL_S):
            self._last_plain = now
            self.line(text)


class EvalDisplay(_Display):
    """Shows an evaluation."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title
        self._tally = _Tally()
        self._total = 0
        self._task: TaskID | None = None

    def start(self, total: int) -> None:
        self._tally = _Tally()
        self._total = total
        self._last_plain = time.monotonic()
        self._task = self.bar(self._title, total)

    def episode(self, episode: Episode) -> None:
        self._tally.add(episode)
        if self._task is not None and self.due(self._tally):
            self.progress.update(self._task, completed=self._tally.done, info=self._tally.text())
            self.plain(f"{self._title}  {self._tally.done}/{self._total}  {self._tally.text()}")


class TrainDisplay(_Display):
    """Shows a training run; an `rllm.trainer.observer.TrainObserver`."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title
        self._steps = 0
        self._step = 0
        self._train: TaskID | None = None
        self._batch: TaskID | None = None
        self._tally = _Tally()
        self._what = ""
        self._total = 0

    def opened(self, info: ModelInfo, *, step: int, steps: int) -> None:
        self._steps, self._step = steps, step
        trained = "" if info.parameters == info.trainable_parameters else f", {info.trainable_parameters:,} trained"
        self.line(f"model {info.name}: {info.parameters:,} parameters{trained}, {info.dtype} on {info.device}")
        if step:
            self.line(f"resumed after step {step}")
        self._train = self.bar(self._title, steps)
        self.progress.update(self._train, completed=step)

    def rollouts(self, *, what: str, total: int) -> None:
        self._what, self._total, self._tally = what, total, _Tally()
        if self._batch is not None:
            self.progress.remove_task(self._batch)
        self._batch = self.bar(f"  {what}", total)

    def rollout(self, episode: Episode) -> None:
        self._tally.add(episode)
        if self._batch is not None and self.due(self._tally):
            self.progress.update(self._batch, completed=self._tally.done, info=self._tally.text())
            self.plain(
                f"  {self._what} {self._tally.done}/{self._total}  {self._tally.text()}", since=self._tally.started
            )

    def stepped(self, step: int, metrics: Mapping[str, float]) -> None:
        self._step = step
        reward = metrics.get("reward/mean")
        text = (
            f"reward {'–' if reward is None else f'{reward:.3f}'} · "
            f"{metrics['throughput/episodes_per_s']:.0f}/s · "
            f"groups {metrics['groups/kept']:.0f}/{metrics['groups/total']:.0f}"
        )
        if failed := metrics["rollout/episodes"] - metrics["rollout/graded"]:
            text += f" · {failed:.0f} failed"
        if self._train is not None:
            self.progress.update(self._train, completed=step, info=text)
        self.plain(f"step {step}/{self._steps}  {text}", always=step == self._steps)

    def validated(self, step: int, summary: Summary) -> None:
        text = f"step {step}: held out {percent(summary.accuracy)}"
        if summary.accuracy_interval is not None:
            low, high = summary.accuracy_interval
            text += f" (95 % {percent(low)} to {percent(high)})"
        if failed := summary.episodes - summary.graded:
            text += f", {failed} of {summary.episodes} not graded"
        self.line(text)

    def saved(self, step: int, path: Path) -> None:
        self.plain(f"step {step}: saved {path}")

    def note(self, text: str) -> None:
        self.line(text)
