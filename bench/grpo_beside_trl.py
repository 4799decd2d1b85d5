"""GRPO on countdown with the embedded model: rllm beside TRL's GRPOTrainer, one after the other on the same machine.

Same weights to start from, same tasks, same number of samples a step, same learning rate and clipping, same estimator
and loss. TRL generates in process with transformers (`use_vllm=False`); rllm goes through its HTTP gateway, as every
agent does. TRL is not a dependency of rllm: `.venv/bin/pip install -c constraints.txt trl` first.

    .venv/bin/python bench/grpo_beside_trl.py [--steps 100] [--seed 0] [--goal 0.5]

Prints a table and writes bench/results/grpo_beside_trl.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TASKS_PER_STEP = 32
GROUP_SIZE = 8
MAX_TOKENS = 16
LEARNING_RATE = 5e-4
WINDOW = 10
"""Steps over which the reward is averaged before it is compared with the goal."""


def time_to_goal(rewards: list[float], ends_s: list[float], goal: float) -> float | None:
    """Seconds of training until the mean reward of the last WINDOW steps reaches `goal`."""
    for index in range(WINDOW, len(rewards) + 1):
        if statistics.fmean(rewards[index - WINDOW : index]) >= goal:
            return ends_s[index - 1]
    return None


def report(rewards: list[float], ends_s: list[float], tokens: float, sampling_s: float, goal: float) -> dict[str, Any]:
    steps = len(rewards)
    return {
        "steps": steps,
        "seconds": ends_s[-1],
        "samples_per_s": steps * TASKS_PER_STEP * GROUP_SIZE / ends_s[-1],
        "sampled_tokens_per_s": tokens / sampling_s,
        "reward_first": statistics.fmean(rewards[:WINDOW]),
        "reward_last": statistics.fmean(rewards[-WINDOW:]),
        "seconds_to_goal": time_to_goal(rewards, ends_s, goal),
    }


def run_ours(model: str, steps: int, seed: int, goal: float) -> dict[str, Any]:
    from rllm.trainer import AgentTrainer
    from rllm.trainer.observer import Silent

    class Clock(Silent):
        def __init__(self) -> None:
            self.rewards: list[float] = []
            self.ends_s: list[float] = []
            self.tokens = 0.0
            self.sampling_s = 0.0
            self.started = 0.0

        def opened(self, info: Any, *, step: int, steps: int) -> None:
            self.started = time.perf_counter()

        def stepped(self, step: int, metrics: Mapping[str, float]) -> None:
            self.rewards.append(metrics["reward/mean"])
            self.ends_s.append(time.perf_counter() - self.started)
            self.tokens += metrics["rollout/completion_tokens"]
            self.sampling_s += metrics["time/rollout_s"]

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = AgentTrainer(
            config={
                "benchmark.name": "countdown",
                "model.name": model,
                "rollout.group_size": GROUP_SIZE,
                "rollout.max_tokens": MAX_TOKENS,
                "trainer.tasks_per_step": TASKS_PER_STEP,
                "trainer.steps": steps,
                "trainer.seed": seed,
                "trainer.checkpoint_every": 0,
                "optimizer.lr": LEARNING_RATE,
                "optimizer.schedule": "constant",
                "optimizer.betas": [0.9, 0.95],
                "optimizer.minibatches": 1,
                "algorithm.estimator": "grpo",
                "algorithm.loss": "ppo_clip",
                "algorithm.aggregation": "seq-mean-token-mean",
                "validation.at_start": False,
                "validation.at_end": False,
            },
            observer=clock,
            runs=folder,
        )
        trainer.train()
    return report(clock.rewards, clock.ends_s, clock.tokens, clock.sampling_s, goal)


def run_trl(model: str, steps: int, seed: int, goal: float) -> dict[str, Any]:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from rllm.types import Episode
    from rllm_bench.countdown import Countdown

    benchmark = Countdown()
    tasks = benchmark.tasks("train", seed=seed)
    by_prompt = {task.instruction: task for task in tasks}
    rewards: list[float] = []
    ends_s: list[float] = []
    sampling = {"tokens": 0.0, "seconds": 0.0}
    started = 0.0

    def reward(prompts: Any, completions: Any, **_: Any) -> list[float]:
        values = []
        for prompt, completion in zip(prompts, completions, strict=True):
            episode = Episode(artifacts={"answer": completion[0]["content"]})
            values.append(benchmark.grader.grade(by_prompt[prompt[0]["content"]], episode).reward)
        rewards.append(statistics.fmean(values))
        return values

    class Clock(TrainerCallback):  # type: ignore[misc]  # TRL is untyped here
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends_s.append(time.perf_counter() - started)

    class Timed(GRPOTrainer):  # type: ignore[misc]  # TRL is untyped here
        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
            before = time.perf_counter()
            result = super()._generate_single_turn(*args, **kwargs)
            sampling["seconds"] += time.perf_counter() - before
            sampling["tokens"] += sum(len(ids) for ids in result[0])
            return result

    with tempfile.TemporaryDirectory() as folder:
        size = TASKS_PER_STEP * GROUP_SIZE
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            use_vllm=False,
            bf16=False,
            per_device_train_batch_size=size,
            generation_batch_size=size,
            num_generations=GROUP_SIZE,
            max_completion_length=MAX_TOKENS,
            max_steps=steps,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            adam_beta1=0.9,
            adam_beta2=0.95,
            max_grad_norm=1.0,
            beta=0.0,
            loss_type="grpo",
            temperature=1.0,
            seed=seed,
            save_strategy="no",
            report_to=[],
            logging_steps=steps,
            disable_tqdm=True,
            gradient_checkpointing=False,
        )
        rows = [{"prompt": [{"role": "user", "content": task.instruction}]} for task in tasks]
        trainer = Timed(
            model=model,
            reward_funcs=[reward],
            args=config,
            train_dataset=Dataset.from_list(rows),
            callbacks=[Clock()],
        )
        started = time.perf_counter()
        trainer.train()
    return report(rewards, ends_s, sampling["tokens"], sampling["seconds"], goal)


def embedded_folder(seed: int) -> str:
    """A directory with the embedded model, as both sides load it."""
    import asyncio

    from rllm import plugins

    async def save(path: Path) -> None:
        backend = plugins.registry("backend").load("local")()
        await backend.open(model=f"embedded:{seed}", seed=seed, trainable=True)
        try:
            await backend.save(path)
        finally:
            await backend.close()

    path = Path(tempfile.mkdtemp()) / "saved"
    asyncio.run(save(path))
    return str(path / "model")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--goal", type=float, default=0.5)
    parser.add_argument("--side", choices=["ours", "trl"], help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        run = {"ours": run_ours, "trl": run_trl}[args.side]
        print("RESULT " + json.dumps(run(args.model, args.steps, args.seed, args.goal)))
        return
    model = embedded_folder(args.seed)
    results = {}
    for side in ("trl", "ours"):
        words = ["--side", side, "--model", model, "--steps", str(args.steps), "--seed", str(args.seed)]
        found = subprocess.run(
            [sys.executable, __file__, *words, "--goal", str(args.goal)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
        (line,) = [line for line in found.stdout.splitlines() if line.startswith("RESULT ")]
        results[side] = json.loads(line.removeprefix("RESULT "))
    print(f"{'':<24}{'TRL':>12}{'rllm':>12}{'ratio':>8}")
    for key in ("samples_per_s", "sampled_tokens_per_s", "seconds", "seconds_to_goal", "reward_first", "reward_last"):
        trl, ours = results["trl"][key], results["ours"][key]
        cells = ["–" if value is None else f"{value:.3g}" for value in (trl, ours)]
        ratio = "" if trl is None or ours is None else f"{ours / trl:.2f}"
        print(f"{key:<24}{cells[0]:>12}{cells[1]:>12}{ratio:>8}")
    path = Path(__file__).parent / "results" / "grpo_beside_trl.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"goal": args.goal, **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
