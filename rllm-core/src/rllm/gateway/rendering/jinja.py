"""Chat templates in a sandbox, with the environment that `transformers` gives them (compared in a test)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from rllm.errors import ModelError, RequestError, one_line
from rllm.gateway.rendering.tokens import TextTokenizer, read_json
from rllm.types import JsonDict, Message

__all__ = ["ChatTemplate"]

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class _Generation(Extension):
    """`{% generation %}` marks what a model says; for rendering it is only its content."""

    tags = {"generation"}  # noqa: RUF012 - as jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Dict:
    """`dict` for templates, without a class to climb from."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Any, value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


class _Namespace(Namespace):
    """`namespace` for templates, without names that lead into the interpreter."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"a namespace cannot hold {name!r}")
        super().__setitem__(name, value)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _now(format: str) -> str:
    return datetime.now().strftime(format)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals.update(raise_exception=_raise, strftime_now=_now, dict=_Dict(), namespace=_Namespace)
    return environment


class ChatTemplate:
    """One model's template. Rendering an untrusted one cannot reach anything but its arguments."""

    def __init__(self, source: str, special: Mapping[str, str], where: str) -> None:
        self.where = where
        self._special = dict(special)
        try:
            self._template = _environment().from_string(source)
        except TemplateError as error:
            raise ModelError(f"{where}: the chat template cannot be compiled: {one_line(error)}") from None

    @classmethod
    def load(cls, tokenizer: TextTokenizer) -> ChatTemplate:
        """The template of the tokenizer's directory. Raises `ModelError` when it has none."""
        directory = tokenizer.directory
        special = {name: token for name in _SPECIAL if (token := tokenizer.named(name)) is not None}
        path = directory / "chat_template.jinja"
        if path.is_file():
            return cls(path.read_text("utf-8"), special, str(path))
        source = _choose(read_json(directory / "chat_template.json").get("chat_template"))
        source = source or _choose(tokenizer.config.get("chat_template"))
        if source is None:
            raise ModelError(
                f"{directory} has no chat template (chat_template.jinja, or `chat_template` in "
                "tokenizer_config.json); use an instruction-tuned model or add a template"
            )
        return cls(source, special, str(directory))

    def render(self, messages: Sequence[Message], tools: list[JsonDict] | None, *, generation_prompt: bool) -> str:
        """Raises `RequestError` with the template's own complaint, `ModelError` when it left its sandbox."""
        try:
            return self._template.render(
                messages=messages,
                tools=tools,
                documents=None,
                add_generation_prompt=generation_prompt,
                **self._special,
            )
        except SecurityError as error:
            raise ModelError(f"{self.where}: the chat template left its sandbox: {one_line(error)}") from None
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise RequestError(
                f"the model's chat template refuses these messages: {one_line(error)}", code="invalid_messages"
            ) from error


def _choose(value: Any) -> str | None:
    """A template, or the one called `default` of several."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        named = {each.get("name"): each.get("template") for each in value if isinstance(each, dict)}
        return _choose(named.get("default"))
    return None
