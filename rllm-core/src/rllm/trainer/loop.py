"""The training loop, on one screen: tasks, rollouts, groups, filters, advantages, rows, step, publish.

Strictly on-policy for now: a step's rollouts are all sampled from the weights that the step before it published.
`batch` turns episodes into rows; `validation` measures; `checkpoint` makes a run resumable at any step.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing

from rllm.algorithms.schedules import learning_rate
from rllm.engine.gate import InexactGate
from rllm.engine.pool import run_rollouts
from rllm.engine.rollout import Limits, RolloutRequest
from rllm.engine.source import open_backend, serve
from rllm.engine.statistics import summarize
from rllm.errors import BackendError, RllmError, boundary
from rllm.ids import derive_seed
from rllm.interfaces.backend import OptimizerSpec, StepResult
from rllm.plugins import events
from rllm.store import RunStore
from rllm.trainer.batch import Batch, make_batch
from rllm.trainer.checkpoint import Checkpoints, CheckpointState
from rllm.trainer.data import Cursor, TaskStream
from rllm.trainer.interrupt import Interrupt, Interrupted
from rllm.trainer.observer import TrainObserver
from rllm.trainer.plan import Plan
from rllm.trainer.trackers import Trackers
from rllm.types import Episode, Task

__all__ = ["Trainer", "TrainingStalled"]

logger = logging.getLogger(__name__)


class TrainingStalled(RllmError, RuntimeError):
    """The run cannot learn: no group has been informative for too many steps."""


class Trainer:
    """One training run. `run` may be called once."""

    def __init__(self, plan: Plan, store: RunStore, observer: TrainObserver) -> None:
        self.plan = plan
        self.config = plan.config
        self.store = store
        self.observer = observer
        self.checkpoints = Checkpoints(store.path / "checkpoints", keep=self.config.trainer.keep_checkpoints)
        self.interrupt = Interrupt()
        self.state = CheckpointState(step=0, cursor=Cursor(), version=0, episodes=0)
        self.trackers = Trackers(zip(self.config.trainer.trackers, plan.trackers, strict=True))
        self.saved_step = -1
        self._validated_step = -1
        self._gate = InexactGate(self.config.gateway.max_inexact)
        self._ahead = False
        """Whether the backend may hold updates that `state` does not count; such weights are never saved."""

    async def run(self, *, resume: bool = False) -> None:
        """Train to the last step. Raises Interrupted after a clean stop; whatever is raised, a checkpoint of the
        last finished step is written first if the disk allows it."""
        config = self.config
        async with AsyncExitStack() as stack:
            stack.enter_context(self.interrupt.installed())
            stack.push_async_callback(self.plan.program.close)
            opening = open_backend(self.plan.backend, model=config.model.name, seed=config.trainer.seed, trainable=True)
            info, upstream = await self.interrupt.guard(stack.enter_async_context(opening))
            self.plan.check_model(info)
            self.gateway = await stack.enter_async_context(serve(upstream, config.gateway))
            if resume:
                await self._restore()
            self.observer.opened(info, step=self.state.step, steps=config.trainer.steps)
            try:
                await self._train()
            except BaseException:
                await self._save_quietly()
                raise
            await self._save()

    async def _train(self) -> None:
        config = self.config
        stream = TaskStream(self.plan.train_tasks, seed=config.trainer.seed, cursor=self.state.cursor)
        await self._validate_if_due()
        while self.state.step < config.trainer.steps:
            await self._step(stream)
            await self._validate_if_due()
            step = self.state.step
            last = step == config.trainer.steps
            if config.trainer.checkpoint_every and step % config.trainer.checkpoint_every == 0 and not last:
                await self._save()
            if self.interrupt.requested:
                raise Interrupted

    async def _step(self, stream: TaskStream) -> None:
        """One learner step. Cancelled rollouts leave no trace; the update itself is never cut in two."""
        started = time.perf_counter()
        step = self.state.step + 1
        cursor = stream.cursor
        try:
            requests = self._train_requests(stream, step)
            episodes = await self.interrupt.guard(self._roll_out(requests, what="train"))
        except BaseException:
            stream.cursor = cursor
            raise
        rolled_out = time.perf_counter()
        batch = make_batch(episodes, self.plan, step=step)
        learning = asyncio.ensure_future(self._learn(batch, step))
        try:
            await asyncio.sleep(0)
            self.store.add_episodes(episodes, step=step, split="train")  # while the backend is busy with the rows
        finally:
            result = await learning
        self._check_progress(batch, episodes)
        finished = time.perf_counter()
        self.state = CheckpointState(
            step=step,
            cursor=stream.cursor,
            version=self.plan.backend.version,
            episodes=self.state.episodes + len(episodes),
            idle_steps=0 if batch.rows else self.state.idle_steps + 1,
        )
        self._ahead = False
        metrics = dict(batch.metrics)
        metrics |= _learner_metrics(result, self._rate(step))
        metrics |= _timing(batch, started, rolled_out, finished, len(episodes))
        self.store.add_metrics(step, metrics)
        self.observer.stepped(step, metrics)
        self.trackers.log(step, metrics)
        events().rllm_step_finished(run_id=self.store.id, step=step, metrics=metrics)

    def _train_requests(self, stream: TaskStream, step: int) -> list[RolloutRequest]:
        config, size = self.config, self.config.rollout.group_size
        return [
            RolloutRequest(
                task=task,
                attempt=epoch * size + member,
                seed=derive_seed(config.trainer.seed, "train", step, task.id, epoch * size + member),
                sampling=self.plan.train_sampling,
            )
            for epoch, task in stream.take(config.trainer.tasks_per_step)
            for member in range(size)
        ]

    async def _roll_out(self, requests: list[RolloutRequest], *, what: str) -> list[Episode]:
        """All episodes, in the order of the requests, whatever order they finished in."""
        rollout = self.config.rollout
        limits = Limits(timeout_s=rollout.timeout_s, max_retries=rollout.max_retries, max_calls=rollout.max_calls)
        self.observer.rollouts(what=what, total=len(requests))
        done: dict[tuple[str, int], Episode] = {}
        async with aclosing(
            run_rollouts(
                self.plan.program,
                requests,
                self.gateway,
                limits,
                concurrency=min(rollout.concurrency, len(requests)),
            )
        ) as episodes:
            async for episode in episodes:
                done[episode.task_id, episode.attempt] = episode
                self.observer.rollout(episode)
                self._gate.check(episode)
                events().rllm_rollout_finished(run_id=self.store.id, episode=episode)
        return [done[request.key] for request in requests]

    async def _learn(self, batch: Batch, step: int) -> list[StepResult]:
        """Optimizer steps on the batch, one a mini-batch, then publish. Nothing to learn from: nothing changes."""
        backend = self.plan.backend
        results: list[StepResult] = []
        optimizer = self._optimizer(step)
        async with boundary(BackendError, f"backend {self.config.backend.name!r}"):
            for rows in batch.minibatches(self.config.optimizer.minibatches):
                self._ahead = True
                try:
                    results.append(await backend.step(rows, self.plan.loss, optimizer))
                except BackendError:  # the weights are as before, by contract; after any other error, who knows
                    self._ahead = bool(results)
                    raise
            if results:
                await backend.publish()
        return results

    def _rate(self, step: int) -> float:
        optimizer = self.config.optimizer
        return optimizer.lr * learning_rate(
            optimizer.schedule,
            step,
            self.config.trainer.steps,
            warmup_steps=optimizer.warmup_steps,
            min_ratio=optimizer.min_lr_ratio,
        )

    def _optimizer(self, step: int) -> OptimizerSpec:
        optimizer = self.config.optimizer
        return OptimizerSpec(
            lr=self._rate(step),
            betas=optimizer.betas,
            eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
            grad_clip=optimizer.grad_clip,
        )

    def _check_progress(self, batch: Batch, episodes: list[Episode]) -> None:
        """Raise TrainingStalled when learning has become impossible; say why, with the commonest failure."""
        limit = self.config.trainer.max_idle_steps
        if batch.rows or self.state.idle_steps + 1 < limit:
            return
        errors = summarize(episodes).errors
        example = next((each.error.message for each in episodes if each.error is not None), None)
        reason = batch.idle_reason + (f"; most recent failure: {example}" if errors and example else "")
        raise TrainingStalled(f"nothing to learn from in {limit} steps in a row: {reason}")

    async def _validate_if_due(self) -> None:
        """Validate after the step that was finished last, if the configuration says so and it has not been done."""
        step, validation = self.state.step, self.config.validation
        if step == self._validated_step or not self.plan.val_tasks:
            return
        if step == 0:
            due = validation.at_start
        elif step == self.config.trainer.steps:
            due = validation.at_end
        else:
            due = validation.every > 0 and step % validation.every == 0
        if due:
            await self._validate(step)
            self._validated_step = step

    async def _validate(self, step: int) -> None:
        """Measure on the held-out tasks; every rollout counts, failures as failures."""
        requests = [
            self._validation_request(task, attempt)
            for task in self.plan.val_tasks
            for attempt in range(self.config.validation.attempts)
        ]
        episodes = await self.interrupt.guard(self._roll_out(requests, what="validation"))
        summary = summarize(episodes)
        self.store.add_episodes(episodes, step=step, split="validation")
        metrics = {
            name: value
            for name, value in (
                ("validation/accuracy", summary.accuracy),
                ("validation/accuracy_with_failures", summary.accuracy_with_failures),
                ("validation/reward", summary.mean_reward),
                ("validation/graded", float(summary.graded)),
                ("validation/episodes", float(summary.episodes)),
            )
            if value is not None
        }
        self.store.add_metrics(step, metrics, kind="validation")
        self.observer.validated(step, summary)
        events().rllm_evaluation_finished(run_id=self.store.id, summary=summary.as_dict())

    def _validation_request(self, task: Task, attempt: int) -> RolloutRequest:
        return RolloutRequest(
            task=task,
            attempt=attempt,
            seed=derive_seed(self.config.trainer.seed, "validation", task.id, attempt),
            sampling=self.plan.validation_sampling,
            is_validation=True,
        )

    async def _save(self) -> None:
        if self.saved_step == self.state.step:
            return
        self.store.flush()
        path = await self.checkpoints.save(self.plan.backend, self.state)
        self.saved_step = self.state.step
        self.observer.saved(self.state.step, path)

    async def _save_quietly(self) -> None:
        """Save on the way out of a failure, which must not be hidden by a second one."""
        if self._ahead:
            return
        try:
            await self._save()
        except (RllmError, OSError) as error:
            logger.warning("no checkpoint was written: %s", error)

    async def _restore(self) -> None:
        self.checkpoints.sweep()
        steps = self.checkpoints.steps()
        if steps:
            self.state = await self.checkpoints.load(self.plan.backend, steps[-1])
            self.saved_step = self.state.step
            if self.plan.backend.version != self.state.version:
                raise BackendError(
                    f"the backend restored weight version {self.plan.backend.version}, "
                    f"the checkpoint says {self.state.version}"
                )
        self.store.rewind(self.state.step)
        self._validated_step = max((int(row["step"]) for row in self.store.metrics("validation")), default=-1)
        self._gate.add(sum(row.get("gateway/calls_inexact", 0.0) for row in self.store.metrics("train")))


def _learner_metrics(results: list[StepResult], rate: float) -> dict[str, float]:
    if not results:
        return {"learner/updates": 0.0}
    metrics = {
        "learner/updates": float(len(results)),
        "learner/lr": rate,
        "learner/loss": sum(each.loss for each in results) / len(results),
        "learner/grad_norm": sum(each.grad_norm for each in results) / len(results),
        "learner/tokens": float(sum(each.tokens for each in results)),
    }
    for name in results[0].metrics:
        metrics[f"learner/{name}"] = sum(each.metrics[name] for each in results) / len(results)
    return metrics


def _timing(batch: Batch, started: float, rolled_out: float, finished: float, episodes: int) -> Mapping[str, float]:
    return {
        "time/rollout_s": rolled_out - started,
        "time/learn_s": finished - rolled_out,
        "time/step_s": finished - started,
        "throughput/episodes_per_s": episodes / (finished - started),
        "throughput/sampled_tokens_per_s": batch.metrics["rollout/completion_tokens"] / (rolled_out - started),
    }
