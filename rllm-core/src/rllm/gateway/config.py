"""What a gateway and a session are told. Both are plain values; the configuration file has its own schema."""

from __future__ import annotations

from dataclasses import dataclass, field

from rllm.types import JsonDict

__all__ = ["GatewayConfig", "SessionSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Where the gateway listens, and its limits."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free one."""
    allow_remote: bool = False
    """Must be set to listen on anything but loopback: whoever reaches the port can try to use the model."""
    limit_request_bytes: int = 64 * 1024 * 1024
    """Largest request body; a longer one is answered with 413."""
    read_timeout_s: float = 60.0
    """For a request's body to arrive in full."""
    idle_timeout_s: float = 75.0
    """After which an idle connection is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """One session: an agent's conversation with the model, however many calls and roles that takes."""

    id: str | None = None
    """Any characters, unique among the open sessions; a fresh one without it."""
    sampling: JsonDict = field(default_factory=dict)
    """Canonical names (`temperature`, `top_p`, `top_k`, `max_tokens`, `stop`, `seed`) that override the client's.
    `max_tokens` is a cap: a client may ask for less."""
    default_max_tokens: int | None = None
    """For clients that name no limit in a session that sets none; without it a reply may fill the context."""
    max_calls: int | None = None
    """Requests that are answered; a request for `n` choices is one."""
    max_tokens: int | None = None
    """Completion tokens of the whole session, counted when a reply is complete."""
    deadline_s: float | None = None
    """Seconds after opening at which calls in flight are cut and later ones refused."""
    is_validation: bool = False
    seed: int | None = None
    """Makes every sample of the session reproducible; None samples freshly."""
