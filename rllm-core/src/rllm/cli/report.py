"""What an evaluation came to, as text in 80 columns."""

from __future__ import annotations

from pathlib import Path

import click

from rllm.engine.statistics import Summary

__all__ = ["print_report", "report_lines"]


def print_report(run_id: str, path: Path, summary: Summary) -> None:
    """Print the summary to stdout."""
    for label, value in report_lines(summary):
        click.echo(f"{label:<13} {value}")
    click.echo(f"{'run':<14}{run_id}")
    click.echo(f"{'folder':<14}{path}")


def report_lines(summary: Summary) -> list[tuple[str, str]]:
    """(label, value) pairs, in order."""
    lines: list[tuple[str, str]] = []
    if summary.accuracy is not None and summary.accuracy_interval is not None:
        low, high = summary.accuracy_interval
        lines.append(
            (
                "accuracy",
                f"{100 * summary.accuracy:.1f} %  ({summary.correct} of {summary.graded} graded; "
                f"95 % interval {100 * low:.1f} to {100 * high:.1f})",
            )
        )
    if summary.graded < summary.episodes and summary.accuracy_with_failures is not None:
        lines.append(("with failures", f"{100 * summary.accuracy_with_failures:.1f} %  (failures count as wrong)"))
    if summary.mean_reward is not None:
        lines.append(("reward", f"{summary.mean_reward:.4f} mean"))
    if len(summary.pass_at) > 1:
        lines.append(("pass@k", "  ".join(f"{k}: {100 * v:.1f} %" for k, v in summary.pass_at.items())))
    lines += [(f"  {name}", f"{100 * value:.1f} %") for name, value in summary.categories.items()]
    lines.append(("episodes", "  ".join(f"{count} {status}" for status, count in summary.statuses.items())))
    if summary.errors:
        lines.append(("errors", "  ".join(f"{count} {kind}" for kind, count in summary.errors.items())))
        lines.append(("  such as", summary.failure or ""))
    if summary.seconds:
        spread = "  ".join(f"{name} {value:.2f}" for name, value in summary.seconds.items())
        lines.append(("seconds", spread))
    lines.append(
        (
            "tokens",
            f"{summary.tokens.get('prompt_tokens', 0):.0f} in  {summary.tokens.get('completion_tokens', 0):.0f} out",
        )
    )
    return lines
