"""Packages that offer a name which is not installed. Used for hints in messages, for nothing else."""

from __future__ import annotations

__all__ = ["package_for", "well_known"]

_PACKAGES: dict[str, dict[str, str]] = {
    "harness": {
        **dict.fromkeys(("react", "bash", "tool-calling", "search", "oracle", "nop"), "rllm-harness-basic"),
        **{
            name: f"rllm-harness-{name}"
            for name in ("claude-code", "codex", "gemini-cli", "mini-swe-agent", "opencode", "qwen-code")
        },
    },
    "sandbox": {name: f"rllm-sandbox-{name}" for name in ("local", "docker", "modal", "daytona")},
    "backend": {name: f"rllm-backend-{name}" for name in ("local", "tinker", "verl", "fireworks")},
    "benchmark": dict.fromkeys(
        ("countdown", "gsm8k", "math500", "aime24", "aime25", "mmlu", "gpqa", "humaneval", "mbpp", "ifeval"),
        "rllm-bench",
    ),
}


def well_known(kind: str) -> list[str]:
    """Names of `kind` that some package of ours offers."""
    return sorted(_PACKAGES.get(kind, {}))


def package_for(kind: str, name: str) -> str | None:
    """The distribution that offers `name`, if it is one of ours."""
    return _PACKAGES.get(kind, {}).get(name)
