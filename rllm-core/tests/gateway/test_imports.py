"""What importing the gateway, and loading a renderer, brings along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("tokenizers", "jinja2", "renderers", "transformers", "torch", "openai")


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import rllm.gateway", ()),
        ("from rllm.gateway import load_renderer; load_renderer(sys.argv[1], 'embedded')", ("tokenizers", "jinja2")),
    ],
)
def test_heavy_packages_come_only_when_used(model_dir: Path, code: str, allowed: tuple[str, ...]) -> None:
    program = f"import sys; {code}; print([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program, str(model_dir)], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == repr(list(allowed))
