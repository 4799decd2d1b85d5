"""The error tree, and `boundary`, which attributes a plugin's exception to that plugin.

    RllmError
    ├── ConfigError(ValueError)            a setting is impossible; may carry several faults
    ├── UnknownName(LookupError)           nothing is registered under that name
    ├── PluginError(RuntimeError)          a plugin could not be loaded or broke its contract
    │   ├── DuplicateName                  two plugins offer one name
    │   └── MissingDependency(ImportError) an upstream package is not installed
    ├── DataError(ValueError)              a data set, task or row is not what it should be
    ├── ModelError(ValueError)             a model cannot be found, loaded or used
    ├── StoreError(OSError)                the run on disk cannot be read or written
    ├── GatewayError(RuntimeError)
    │   ├── RequestError                   the agent's request cannot be answered (4xx)
    │   │   └── ContextOverflow            prompt and reply do not fit in the model's context
    │   └── UpstreamError                  the model server failed; carries status and Retry-After
    ├── RolloutError(RuntimeError)
    │   ├── AgentError                     the agent program raised or returned nonsense
    │   ├── InfraError                     sandbox, network or model server; worth a retry
    │   └── RolloutTimeout(TimeoutError)   a deadline passed
    ├── GradingError(RuntimeError)         a grader raised or gave no valid reward
    └── BackendError(RuntimeError)         sampling, learning or checkpointing failed

A message says what was found (`!r`), what was expected and what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

__all__ = [
    "AgentError",
    "BackendError",
    "ConfigError",
    "ContextOverflow",
    "DataError",
    "DuplicateName",
    "GatewayError",
    "GradingError",
    "InfraError",
    "MissingDependency",
    "ModelError",
    "PluginError",
    "RequestError",
    "RllmError",
    "RolloutError",
    "RolloutTimeout",
    "StoreError",
    "UnknownName",
    "UpstreamError",
    "boundary",
    "one_line",
]


class RllmError(Exception):
    """Everything that rllm raises on purpose; the command line prints it as one line."""

    exit_status = 1
    """Exit status of the command line when this error ends it."""


class ConfigError(RllmError, ValueError):
    """A configuration is impossible. `faults` holds every problem that was found, at least one."""

    exit_status = 2

    def __init__(self, *faults: str) -> None:
        self.faults: tuple[str, ...] = faults or ("invalid configuration",)
        super().__init__("\n".join(self.faults))


class UnknownName(RllmError, LookupError):
    """Nothing of that kind is registered under that name."""

    exit_status = 2


class PluginError(RllmError, RuntimeError):
    """A plugin could not be loaded, or broke its contract."""


class DuplicateName(PluginError):
    """Two plugins offer the same name of the same kind."""


class MissingDependency(PluginError, ImportError):
    """A package that the plugin adapts is not installed; the message holds the pip line."""

    exit_status = 2


class DataError(RllmError, ValueError):
    """A data set, task or row is missing, empty or malformed."""

    exit_status = 2


class ModelError(RllmError, ValueError):
    """A model cannot be found, loaded or used for what was asked."""

    exit_status = 2


class StoreError(RllmError, OSError):
    """The run folder cannot be read or written."""


class GatewayError(RllmError, RuntimeError):
    """The model gateway cannot do what was asked."""


class RequestError(GatewayError):
    """The agent's request cannot be answered; reported to it in its protocol's own shape."""

    def __init__(self, message: str, *, status: int = 400, code: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class ContextOverflow(RequestError):
    """Prompt and reply do not fit in the model's context.

    The numbers let each protocol say so in the words by which its clients recognise it; None where unknown.
    """

    def __init__(self, message: str, *, prompt_tokens: int | None = None, limit_tokens: int | None = None) -> None:
        super().__init__(message, status=400, code="context_length_exceeded")
        self.prompt_tokens = prompt_tokens
        self.limit_tokens = limit_tokens


class UpstreamError(GatewayError):
    """The model server answered with an error, or not at all."""

    def __init__(
        self, message: str, *, status: int = 502, body: str = "", protocol: str = "", retry_after: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.protocol = protocol
        """What the body is written in (`WireProtocol`); an agent that speaks it is given the body as it came."""
        self.retry_after = retry_after


class RolloutError(RllmError, RuntimeError):
    """One rollout failed; the engine records it and goes on."""


class AgentError(RolloutError):
    """The agent program raised, or returned something that is not an episode."""


class InfraError(RolloutError):
    """Sandbox, network or model server failed; not the agent's fault, so worth a retry."""


class RolloutTimeout(RolloutError, TimeoutError):
    """A deadline of the rollout passed."""


class GradingError(RllmError, RuntimeError):
    """A grader raised, or gave something that is not a finite reward."""


class BackendError(RllmError, RuntimeError):
    """A training backend failed to sample, learn, publish or checkpoint."""


def _attribute(error: Exception | SystemExit, kind: type[RllmError], who: str) -> RllmError:
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return kind(f"{who}: {type(error).__name__}: {error}" if str(error) else f"{who}: {type(error).__name__}")


class boundary:  # noqa: N801 - reads as a statement: `with boundary(GradingError, "grader 'exact'"):`
    """Turn whatever a plugin raises inside the block into `kind`, naming `who`; ours pass unchanged.

    For `with` and `async with`. `SystemExit` counts as the plugin's error; `KeyboardInterrupt` and cancellation pass.
    """

    __slots__ = ("kind", "who")

    def __init__(self, kind: type[RllmError], who: str) -> None:
        self.kind = kind
        self.who = who

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception | SystemExit) and not isinstance(error, RllmError):
            raise _attribute(error, self.kind, self.who) from error

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def one_line(error: BaseException, *, faults: Sequence[str] = ()) -> str:
    """The error as a person should read it: its own message, on one line."""
    text = "; ".join(faults) if faults else str(error)
    return " ".join(text.split()) or type(error).__name__
