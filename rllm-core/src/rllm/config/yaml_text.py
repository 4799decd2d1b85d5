"""YAML as people mean it: the core schema of YAML 1.2, without the surprises of 1.1, and no key twice.

`1e-3` is a number, `no` and `1:30` are text, dates stay text. What `dump` writes, `parse` reads back unchanged.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

__all__ = ["dump", "parse"]

_RESOLVERS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
)


class _Loader(yaml.SafeLoader):
    """Resolves plain scalars by the core schema and refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As the base class does, but the second of two equal keys is an error."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key_node.value!r} stands twice", key_node.start_mark
                    )
                seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """Quotes exactly the strings that `_Loader` would take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        """Equal values are written out each time."""
        return True


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    return int(node.value)


def _construct_float(loader: _Loader, node: yaml.ScalarNode) -> float:
    text = node.value.lower()
    return float(text.replace(".inf", "inf")) if "inf" in text else float(text.replace(".nan", "nan"))


def _represent_float(dumper: _Dumper, value: float) -> yaml.ScalarNode:
    if value != value or value in (float("inf"), float("-inf")):
        text = {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}[str(value)]
    else:
        text = repr(value)
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


def _install() -> None:
    for kind in (_Loader, _Dumper):
        kind.yaml_implicit_resolvers = {}
        for name, pattern, first in _RESOLVERS:
            regexp = re.compile(rf"^(?:{pattern})$")
            kind.add_implicit_resolver(f"tag:yaml.org,2002:{name}", regexp, first)
    _Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"])
    _Dumper.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"])
    _Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
    _Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
    _Dumper.add_representer(float, _represent_float)


_install()


def parse(text: str) -> Any:
    """The value of one YAML document; None for an empty one. Raises ValueError with the place of the fault."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{where}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def dump(value: Any) -> str:
    """`value` as YAML, keys in their own order."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return str(text)
