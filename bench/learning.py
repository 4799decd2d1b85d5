"""How much the embedded model learns on countdown: `rllm eval`, `rllm train`, `rllm eval`, for several seeds.

    .venv/bin/python bench/learning.py [--seeds 0 1 2] [--svg docs/images/learning-curve.svg]

Prints a table and writes bench/results/learning.json; `--svg` draws the curves of the runs that it has just made.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 320, 52, 16, 20, 44
SMOOTHING = 10
"""Steps over which the training reward is averaged."""


def rllm(home: str, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "rllm", *words, "--json"],
        env={**os.environ, "RLLM_HOME": home},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)


def one_seed(home: str, seed: int) -> dict[str, Any]:
    before = rllm(home, "eval", "countdown", "--model", f"embedded:{seed}")
    started = time.perf_counter()
    train = rllm(home, "train", "countdown", "--model", f"embedded:{seed}", "--seed", str(seed))
    seconds = time.perf_counter() - started
    after = rllm(home, "eval", "countdown", "--model", f"run:{train['run']}")
    shown = rllm(home, "runs", "show", train["run"])
    return {
        "seed": seed,
        "before": before["accuracy"],
        "before_interval": before["accuracy_interval"],
        "after": after["accuracy"],
        "after_interval": after["accuracy_interval"],
        "problems": before["graded"],
        "train_seconds": seconds,
        "validation": train["validation"],
        "reward": shown["reward"],
        "steps": train["steps"],
    }


def smooth(values: list[float]) -> list[float]:
    means = []
    for index in range(len(values)):
        part = values[max(0, index - SMOOTHING + 1) : index + 1]
        means.append(sum(part) / len(part))
    return means


def draw(results: list[dict[str, Any]]) -> str:
    """The training reward of each seed, and the held-out accuracy before and after as dots, as SVG."""
    steps = max(result["steps"] for result in results)

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / steps

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for tick in range(0, 101, 20):
        level = y(tick / 100)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{level:.1f}" y2="{level:.1f}" stroke="#dee2e6"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{level + 4:.1f}" text-anchor="end" fill="#495057">{tick} %</text>')
    for tick in range(0, steps + 1, max(1, steps // 6)):
        parts.append(f'<text x="{x(tick):.1f}" y="{HEIGHT - 24}" text-anchor="middle" fill="#495057">{tick}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle" fill="#495057">learner step</text>')
    for result, colour in zip(results, COLOURS, strict=False):
        curve = smooth([value for value in result["reward"] if value is not None])
        points = " ".join(f"{x(step + 1):.1f},{y(value):.1f}" for step, value in enumerate(curve))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for step, value in ((0, result["before"]), (result["steps"], result["after"])):
            parts.append(f'<circle cx="{x(step):.1f}" cy="{y(value):.1f}" r="5" fill="{colour}"/>')
    for row, (result, colour) in enumerate(zip(results, COLOURS, strict=False)):
        level = TOP + 16 + 18 * row
        text = f"seed {result['seed']}: held out {100 * result['before']:.0f} % → {100 * result['after']:.0f} %"
        parts.append(f'<circle cx="{LEFT + 14}" cy="{level - 4}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 26}" y="{level}" fill="#212529">{text}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as home:
        for seed in args.seeds:
            results.append(one_seed(home, seed))
            print(f"seed {seed} done", file=sys.stderr)
    print(f"{'seed':>4} {'before':>8} {'after':>8} {'points':>7} {'problems':>9} {'train s':>8}")
    for each in results:
        gain = 100 * (each["after"] - each["before"])
        print(
            f"{each['seed']:>4} {100 * each['before']:>7.1f}% {100 * each['after']:>7.1f}% {gain:>+7.1f} "
            f"{each['problems']:>9} {each['train_seconds']:>8.0f}"
        )
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "learning.json").write_text(json.dumps(results, indent=1) + "\n")
    if args.svg is not None:
        args.svg.write_text(draw(results))


if __name__ == "__main__":
    main()
