"""A new plugin package on disk: the working implementation of its kind in `rllm.testing.examples`, under the new
name, with the kind's conformance kit as its tests."""

from __future__ import annotations

import importlib.resources
import keyword
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template

from rllm.errors import ConfigError
from rllm.plugins.discovery import core_version
from rllm.plugins.suggest import did_you_mean

__all__ = ["write_package"]

_SUMMARIES = {
    "algorithm": "The reward minus the mean of its group",
    "backend": "A table of bigram logits, trained in numpy",
    "benchmark": "Sums of two numbers",
    "harness": "Asks the model once",
    "sandbox": "A temporary folder, not isolated",
    "tracker": "Writes metrics as JSON lines",
}
_HOOKS = {
    "algorithm": "rllm_algorithms",
    "backend": "rllm_backends",
    "benchmark": "rllm_benchmarks",
    "harness": "rllm_harnesses",
    "sandbox": "rllm_sandboxes",
    "tracker": "rllm_trackers",
}
_EXTRA = {
    "backend": '\n            models=("bigram",),',
    "benchmark": "\n            procedural=True,",
    "tracker": '\n            options=("path",),',
}


def write_package(kind: str, name: str, parent: Path) -> Path:
    """Write `rllm-{kind}-{name}` into `parent`, and return its folder.

    Raises `ConfigError` for a kind or name that cannot be, or when the folder exists.
    """
    if kind not in _HOOKS:
        kinds = ", ".join(_HOOKS)
        raise ConfigError(f"no kind is called {kind!r}{did_you_mean(kind, _HOOKS)} Kinds: {kinds}.")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ConfigError(f"{name!r} cannot be a name; expected small letters, digits and single hyphens: my-{kind}")
    snake = name.replace("-", "_")
    if keyword.iskeyword(snake):
        raise ConfigError(f"{name!r} cannot be a name: it is a word of Python")
    folder = parent / f"rllm-{kind}-{name}"
    if folder.exists():
        raise ConfigError(f"{str(folder)!r} exists; choose another name or --path")
    for path, text in _files(kind, name, snake).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return folder


def _files(kind: str, name: str, snake: str) -> Mapping[str, str]:
    package = f"rllm_{kind}_{snake}"
    camel = "".join(part.capitalize() for part in name.split("-"))
    attribute = snake if kind == "algorithm" else f"{camel}{kind.capitalize()}"
    major, minor = core_version().split(".")[:2]
    values = {
        "kind": kind,
        "name": name,
        "package": package,
        "distribution": f"rllm-{kind}-{name}",
        "attribute": attribute,
        "summary": _SUMMARIES[kind],
        "hook": _HOOKS[kind],
        "spec": f"{kind.capitalize()}Spec",
        "extra": _EXTRA.get(kind, ""),
        "core": f">={major}.{minor},<{major}.{int(minor) + 1}",
    }
    source = importlib.resources.files("rllm.testing.examples").joinpath(f"{kind}.py").read_text(encoding="utf-8")
    templates = {
        "pyproject.toml": _PYPROJECT,
        "README.md": _README,
        "CHANGELOG.md": "# Changes\n\n## 0.1.0\n\n* First version.\n",
        f"src/{package}/__init__.py": '"""The $kind `$name` of rllm."""\n',
        f"src/{package}/plugin.py": _PLUGIN,
        f"tests/test_{snake}.py": _tests(kind),
    }
    return {
        **{path: Template(template).substitute(values) for path, template in templates.items()},
        f"src/{package}/{kind}.py": re.sub(r"\bexample\b", snake, source.replace("Example", camel)).replace(
            '"example-', f'"{name}-'
        ),
        f"src/{package}/py.typed": "",
    }


_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = "$distribution"
version = "0.1.0"
description = "$summary"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["rllm-core$core"]

[project.optional-dependencies]
testing = ["rllm-core[testing]"]

[project.entry-points.rllm]
$name = "$package.plugin"

[tool.hatch.build.targets.wheel]
packages = ["src/$package"]

[tool.pytest.ini_options]
testpaths = ["tests"]
"""

_README = """\
# $distribution

$summary: the $kind `$name` of [rllm](https://github.com/rllm-org/rllm).

    pip install -e .
    rllm plugins info $name

`src/$package/plugin.py` announces it and imports nothing heavy; `src/$package/$kind.py` is the code. The tests are the
conformance kit of its kind:

    pip install -e ".[testing]"
    python -m pytest
"""

_PLUGIN = '''\
"""What this package offers to rllm. Importing it imports nothing heavy: the code is imported when it is used."""

from __future__ import annotations

from collections.abc import Iterable

from rllm.hookspecs import hookimpl
from rllm.interfaces.spec import $spec


@hookimpl
def $hook() -> Iterable[$spec]:
    """The $kind `$name`."""
    return [
        $spec(
            name="$name",
            summary="$summary",
            target="$package.$kind:$attribute",$extra
        )
    ]
'''

_HEAD = '''\
"""The conformance kit of every $kind of rllm."""

import pytest
from rllm.testing import {kit}

from $package.$kind import $attribute
'''


def _tests(kind: str) -> str:
    """The subclassed kit: one class, one fixture."""
    body, arguments, fixture = "return $attribute", "self", f"make_{kind}"
    lines = ""
    if kind == "algorithm":
        fixture = "estimator"
    elif kind == "backend":
        lines = '    model = "bigram"\n\n'
    elif kind == "sandbox":
        body = "async def make():\n            return $attribute()\n\n        return make"
    elif kind == "tracker":
        arguments = "self, tmp_path"
        body = 'return lambda: $attribute(path=str(tmp_path / "metrics.jsonl"))'
    kit = f"{kind.capitalize()}Conformance"
    return (
        _HEAD.format(kit=kit)
        + f"\n\nclass TestConformance({kit}):\n{lines}"
        + f"    @pytest.fixture\n    def {fixture}({arguments}):\n        {body}\n"
    )
