"""The data of a rollout: lossless in JSON, typed, and free of behaviour.

    Episode (one attempt at one task)  >  Trajectory (one agent's run, named by role)  >  Step (one model call)

A `Step` is what the agent says about a call; its `call` is what the gateway saw of it. Token data lives only in
`CapturedCall`, and each call stores only the tokens that it adds to its parent, so a conversation of any length
costs memory linear in its tokens.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from rllm import arrays
from rllm.arrays import Floats, Ids, Versions
from rllm.ids import new_id

__all__ = [
    "AgentConfig",
    "CallError",
    "CapturedCall",
    "Episode",
    "EpisodeStatus",
    "ErrorInfo",
    "EvalOutput",
    "Exactness",
    "FinishReason",
    "JsonDict",
    "Message",
    "Signal",
    "Step",
    "Task",
    "Termination",
    "Trajectory",
    "Usage",
    "WireProtocol",
]

JsonDict = dict[str, Any]
"""User metadata: any JSON object."""
Message = dict[str, Any]
"""A chat message in OpenAI's shape: `role`, `content`, and optionally `tool_calls`, `reasoning_content` …"""


class Data(BaseModel):
    """Base of the data model: unknown fields are errors, infinities and NaN survive JSON, equality is by content."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings", arbitrary_types_allowed=True)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Data):
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name in type(self).model_fields)

    __hash__ = None  # type: ignore[assignment]  # mutable


def _same(a: Any, b: Any) -> bool:
    """Equality by content: arrays as a whole, NaN equal to NaN, at any depth."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b) or (isinstance(a, float) and isinstance(b, float) and a != a and b != b)


class EpisodeStatus(StrEnum):
    """What became of one attempt. Only `GRADED` carries a reward."""

    GRADED = "graded"
    UNGRADED = "ungraded"
    """The agent finished, but no reward could be determined."""
    AGENT_ERROR = "agent_error"
    INFRA_ERROR = "infra_error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class Termination(StrEnum):
    """Why the agent stopped, derived from evidence."""

    FINISHED = "finished"
    MAX_TOKENS = "max_tokens"
    """The last reply was cut at the token limit."""
    MAX_TURNS = "max_turns"
    CONTEXT_LENGTH = "context_length"
    """A prompt did not fit in the model's context."""
    BUDGET = "budget"
    DEADLINE = "deadline"
    ERROR = "error"
    CANCELLED = "cancelled"


class FinishReason(StrEnum):
    """Why the model stopped sampling."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    ABORT = "abort"
    """Interrupted, by a weight update or a shutdown; never a complete reply."""


class Exactness(StrEnum):
    """How a call's prompt tokens relate to the tokens sampled before it in the session."""

    EXACT = "exact"
    """First call of a path, or the parent's tokens were kept and only new messages were rendered."""
    BRIDGED = "bridged"
    """Like exact, but the seam after the parent's reply had to be closed by the renderer."""
    FORKED = "forked"
    """The history differs from every known path; a new path starts."""
    INEXACT = "inexact"
    """The prompt's tokens cannot be known or trusted. Never trained on."""


class WireProtocol(StrEnum):
    """What an agent or a model provider speaks."""

    CHAT = "chat"
    """OpenAI's chat/completions."""
    COMPLETIONS = "completions"
    """OpenAI's completions: text or token ids to be continued."""
    RESPONSES = "responses"
    """OpenAI's Responses."""
    MESSAGES = "messages"
    """Anthropic's Messages."""
    GEMINI = "gemini"
    """Google's generateContent."""


class Signal(Data):
    """One named number about an episode, such as `format` or `length`."""

    name: str
    value: float
    metadata: JsonDict = Field(default_factory=dict)


class EvalOutput(Data):
    """What an evaluator returns."""

    reward: float
    """Finite; the engine refuses NaN and infinities."""
    is_correct: bool = False
    signals: list[Signal] = Field(default_factory=list)
    metadata: JsonDict = Field(default_factory=dict)


class Task(Data):
    """One problem. What the agent sees, plus what only the grader sees."""

    id: str
    """Any characters; compared whole."""
    instruction: str | list[JsonDict]
    """Text, or OpenAI content blocks."""
    metadata: JsonDict = Field(default_factory=dict)
    reference: JsonDict = Field(default_factory=dict)
    """Gold answers and other grader data; `for_agent` removes it."""
    category: str | None = None
    """For reports per category; a benchmark with one category leaves it out."""

    def for_agent(self) -> Task:
        """A copy for one agent, without the reference; whatever the agent does to it, nobody else sees."""
        instruction = self.instruction if isinstance(self.instruction, str) else copy.deepcopy(self.instruction)
        own = {"instruction": instruction, "metadata": copy.deepcopy(self.metadata), "reference": {}}
        return self.model_copy(update=own)


class Usage(Data):
    """Tokens of one call as the model counts them."""

    prompt_tokens: int = 0
    """All of the prompt, whether cached or not."""
    completion_tokens: int = 0
    """All of the reply, its reasoning included."""
    cached_tokens: int = 0
    """Those of the prompt that the provider read from its cache."""
    reasoning_tokens: int = 0
    """Those of the reply that are reasoning, where the provider counts them."""


class CapturedCall(Data):
    """One model call as the gateway saw it: a node of the session's message graph.

    The tokens of the call in full are `tokens(parent) + added_ids + response_ids`.
    """

    id: str = Field(default_factory=lambda: new_id("call"))
    response_id: str = ""
    """Id that the client saw; ties a step to its call."""
    role: str = "default"
    """Agent role from the URL."""
    parent_id: str | None = None
    """Call whose tokens (prompt and reply) are an exact prefix of this call's prompt."""
    new_messages: list[Message] = Field(default_factory=list)
    """Messages of the request that follow the parent's reply (all of them without a parent)."""
    tools: list[JsonDict] | None = None
    reply: Message = Field(default_factory=dict)
    finish_reason: FinishReason = FinishReason.STOP
    exactness: Exactness = Exactness.EXACT
    usage: Usage = Field(default_factory=Usage)
    model: str = ""
    sampling: JsonDict = Field(default_factory=dict)
    """Parameters as enforced, canonical names."""
    started_at: float = 0.0
    """Unix seconds."""
    duration_s: float = 0.0
    added_ids: Ids = Field(default_factory=arrays.ids)
    response_ids: Ids = Field(default_factory=arrays.ids)
    logprobs: Floats = Field(default_factory=arrays.floats)
    """One per response id, of the distribution that was sampled from."""
    weight_versions: Versions = Field(default_factory=arrays.ids)
    """One per response id."""

    @property
    def trainable(self) -> bool:
        """Whether ids and log-probabilities are complete and the prompt is known exactly."""
        size = self.response_ids.size
        return (
            size > 0
            and self.exactness is not Exactness.INEXACT
            and self.finish_reason is not FinishReason.ABORT
            and self.logprobs.size == size
            and self.weight_versions.size == size
            and bool(np.isfinite(self.logprobs).all())
        )


class CallError(Data):
    """A model request that got no reply. Never a call, never training data."""

    role: str
    status: int
    """HTTP status that the agent saw; 499 when it had gone."""
    code: str
    message: str
    at: float
    """Unix seconds."""
    is_upstream: bool
    """The model server's fault rather than the request's."""


class Step(Data):
    """One turn of an agent. The flow may fill in what it knows; `call` is attached by the engine."""

    id: str = Field(default_factory=lambda: new_id("step"))
    input: Any = None
    output: Any = None
    """The flow's view of the reply; the engine fills in the reply's text when the flow left it out."""
    action: Any = None
    observation: Any = None
    thought: str = ""
    reward: float | None = None
    done: bool = False
    response_id: str | None = None
    """Set it to the `id` of the model's response to tie the step to its call."""
    metadata: JsonDict = Field(default_factory=dict)
    call: CapturedCall | None = None
    advantages: Floats | None = None
    """One per response token, when the flow computes its own."""

    @property
    def response_ids(self) -> NDArray[np.int32]:
        """Sampled token ids, shape [T]; empty without a captured call."""
        return self.call.response_ids if self.call else arrays.ids()

    @property
    def logprobs(self) -> NDArray[np.float32]:
        """Log-probabilities of `response_ids` under the behaviour policy, shape [T]."""
        return self.call.logprobs if self.call else arrays.floats()


class Trajectory(Data):
    """One agent's run, named by its role."""

    uid: str = Field(default_factory=lambda: new_id("traj"))
    name: str = "default"
    """The role; groups are formed by (task, role)."""
    steps: list[Step] = Field(default_factory=list)
    reward: float | None = None
    input: Any = None
    output: Any = None
    signals: dict[str, float] = Field(default_factory=dict)
    trainable: bool = True
    """False for calls that were captured but that the flow did not report; they are kept, never trained on."""
    metadata: JsonDict = Field(default_factory=dict)


class ErrorInfo(Data):
    """A failure as data."""

    kind: str
    """Class name in the error tree."""
    message: str
    phase: str = ""
    traceback: str = ""


class Episode(Data):
    """One attempt at one task."""

    id: str = Field(default_factory=lambda: new_id("ep"))
    task_id: str = ""
    attempt: int = 0
    task: Task | None = None
    trajectories: list[Trajectory] = Field(default_factory=list)
    status: EpisodeStatus = EpisodeStatus.UNGRADED
    termination: Termination = Termination.FINISHED
    reward: float | None = None
    is_correct: bool | None = None
    signals: list[Signal] = Field(default_factory=list)
    artifacts: JsonDict = Field(default_factory=dict)
    """What the flow produced; the final answer by convention under `answer`."""
    metrics: dict[str, float] = Field(default_factory=dict)
    """Seconds, tokens and counts of this attempt."""
    metadata: JsonDict = Field(default_factory=dict)
    error: ErrorInfo | None = None

    def calls(self) -> Iterator[CapturedCall]:
        """Every captured call, in the order of the trajectories."""
        for trajectory in self.trajectories:
            for step in trajectory.steps:
                if step.call is not None:
                    yield step.call

    def final_text(self) -> str:
        """The last reply's text, from the artifacts if the flow set `answer`, else from the last step; calls that
        the flow did not report count only where there is nothing else."""
        if isinstance(answer := self.artifacts.get("answer"), str):
            return answer
        reported = [each for each in self.trajectories if each.trainable] or self.trajectories
        for trajectory in reversed(reported):
            for step in reversed(trajectory.steps):
                if isinstance(step.output, str):
                    return step.output
                if step.call is not None and isinstance(step.call.reply.get("content"), str):
                    return str(step.call.reply["content"])
        return ""


def tokens_of(call: CapturedCall, calls: Iterable[CapturedCall]) -> NDArray[np.int32]:
    """All ids of `call`, prompt and reply, following parents through `calls`. Raises KeyError if one is missing."""
    by_id = {each.id: each for each in calls}
    parts: list[NDArray[np.int32]] = []
    node: CapturedCall | None = call
    while node is not None:
        parts += [node.response_ids, node.added_ids]
        node = by_id[node.parent_id] if node.parent_id is not None else None
    return np.concatenate(parts[::-1])


@dataclasses.dataclass(frozen=True, slots=True)
class AgentConfig:
    """How an agent reaches the model. Any client that takes a base URL and a key can use it."""

    base_url: str
    """Ends in `/v1`."""
    model: str
    api_key: str = dataclasses.field(repr=False)
    session_id: str = ""
    is_validation: bool = False
    sampling: JsonDict = dataclasses.field(default_factory=dict)
    """For information: the gateway enforces it."""
    metadata: JsonDict = dataclasses.field(default_factory=dict)

    def for_agent(self, role: str) -> AgentConfig:
        """A copy whose calls are recorded under `role`."""
        head, _, _ = self.base_url.partition("/agents/")
        head = head.removesuffix("/v1")
        return dataclasses.replace(self, base_url=f"{head}/agents/{quote_role(role)}/v1")


def quote_role(role: str) -> str:
    """A role as one segment of a URL path."""
    from urllib.parse import quote

    if not role:
        raise ValueError("an agent's role must not be empty")
    return quote(role, safe="")
