"""What to do about a plugin's failure, by phase."""

from __future__ import annotations

from rllm.errors import DuplicateName
from rllm.plugins.records import Announcement, Phase

__all__ = ["remedy"]


def remedy(plugin: Announcement, phase: Phase, error: BaseException) -> str:
    """One line that a user can act on."""
    name = plugin.distribution
    cause = error.__cause__ or error
    if isinstance(error, DuplicateName):
        return "uninstall one of them, or choose with RLLM_PLUGINS"
    if phase is Phase.COMPATIBILITY:
        return f"pip install --upgrade {name} rllm-core"
    if phase is Phase.DISCOVER:
        return f"install it (pip install {name}), or take it out of RLLM_PLUGINS"
    if phase in (Phase.IMPORT, Phase.CONSTRUCT) and isinstance(cause, ModuleNotFoundError) and cause.name:
        top = cause.name.partition(".")[0]
        own = plugin.value.partition(".")[0]
        if top == own:
            return f"pip install --force-reinstall {name}"
        return f"install what provides the module {top!r}"
    return f"report it to the authors of {name}; until then: pip uninstall {name}"
