"""Google's generateContent, streamGenerateContent, countTokens and models, as REST clients speak them.

Either spelling of every key is understood. Tools that Google would run (search, code execution) are not offered to
the model; `mode: ANY` and allowed names are a wish, as `tool_choice` is in chat/completions. Thoughts are part of the
reply unless the client said `includeThoughts: false`. A stream without `alt=sse` is answered with a JSON array, whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from rllm.errors import RequestError, RllmError, UpstreamError
from rllm.gateway.json_text import dumps
from rllm.gateway.protocols.gemini_contents import parts_of, read_contents, read_instruction
from rllm.gateway.protocols.gemini_events import GeminiEvents, candidate, gemini_error, usage_body
from rllm.gateway.protocols.gemini_keys import entry, json_schema, listed, show
from rllm.gateway.sampling import ClientSampling
from rllm.gateway.wire import Incoming, Reply, Request
from rllm.ids import new_id
from rllm.types import JsonDict, WireProtocol

__all__ = ["GeminiAdapter", "model_entry"]

_MAX_CHOICES = 128
_METHODS = ("generateContent", "streamGenerateContent", "countTokens")
_EFFORTS = ((1024, "low"), (8192, "medium"))
"""Thinking budgets in tokens up to which an effort goes, as Google's own OpenAI endpoint has them; above is high."""


@dataclass(slots=True)
class _GeminiRequest(Request):
    """And what only this protocol's reply depends on."""

    thoughts: bool = True
    is_array: bool = False


class GeminiAdapter:
    """`POST …/models/{model}:generateContent`, `:streamGenerateContent` and `:countTokens`."""

    protocol = WireProtocol.GEMINI

    def parse(self, incoming: Incoming) -> Request:
        try:
            return _parse(incoming)
        except RecursionError:
            raise RequestError("the body is nested too deeply to be understood") from None

    def body(self, request: Request, reply: Reply) -> bytes:
        body = reply.raw
        if body is None:
            thoughts = _thoughts(request)
            body = {
                "candidates": [
                    candidate(request, choice, index, parts_of(choice.message, thoughts=thoughts))
                    for index, choice in enumerate(reply.choices)
                ],
                "usageMetadata": usage_body(reply.usage),
                "modelVersion": reply.model,
                "responseId": reply.id,
            }
        is_array = isinstance(request, _GeminiRequest) and request.is_array
        return dumps([body] if is_array else body)

    def events(self, request: Request) -> GeminiEvents:
        return GeminiEvents(request, thoughts=_thoughts(request))

    def error(self, error: RllmError) -> tuple[int, bytes]:
        """A provider's own error passes through as it came."""
        if isinstance(error, UpstreamError) and error.body and error.protocol == WireProtocol.GEMINI:
            return error.status, error.body.encode()
        status, body = gemini_error(error)
        return status, dumps(body)

    def count(self, tokens: int) -> bytes:
        return dumps({"totalTokens": tokens})

    def models(self, names: Sequence[str], created: int) -> bytes:
        return dumps({"models": [model_entry(name) for name in names]})


def model_entry(name: str) -> JsonDict:
    """A model in Gemini's list of them."""
    return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": list(_METHODS)}


def _thoughts(request: Request) -> bool:
    return not isinstance(request, _GeminiRequest) or request.thoughts


def _parse(incoming: Incoming) -> _GeminiRequest:
    body = incoming.body
    if incoming.action == "countTokens":
        body = _object(entry(body, "generateContentRequest"), "generateContentRequest") or body
    if (cached := entry(body, "cachedContent")) is not None:
        raise RequestError(f"cachedContent is {show(cached)}, which is not here; send the contents themselves")
    config = _object(entry(body, "generationConfig"), "generationConfig")
    n = entry(config, "candidateCount")
    if n is None:
        n = 1
    elif isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MAX_CHOICES:
        raise RequestError(f"candidateCount is {n!r}, expected a whole number from 1 to {_MAX_CHOICES}")
    is_stream = incoming.action == "streamGenerateContent"
    is_sse = is_stream and "sse" in parse_qs(incoming.query).get("alt", ())
    thinking = _object(entry(config, "thinkingConfig"), "thinkingConfig")
    form, unsupported = _response_format(config)
    tool_choice = _tool_choice(entry(body, "toolConfig"))
    return _GeminiRequest(
        messages=read_instruction(entry(body, "systemInstruction")) + read_contents(body.get("contents")),
        sampling=ClientSampling.parse(config),
        reply_id=new_id("gen"),
        protocol=WireProtocol.GEMINI,
        tools=_tools(body.get("tools")),
        parse_tools=tool_choice != "none",
        tool_choice=tool_choice,
        response_format=form,
        reasoning_effort=_effort(thinking),
        n=n,
        stream=is_sse,
        include_usage=True,
        logprobs=entry(config, "responseLogprobs") is True,
        unsupported=unsupported,
        raw=incoming.body,
        headers=incoming.headers,
        thoughts=entry(thinking, "includeThoughts") is not False,
        is_array=is_stream and not is_sse,
    )


def _tools(value: Any) -> list[JsonDict] | None:
    found: list[JsonDict] = []
    for at, tool in enumerate(listed(value, "tools")):
        where = f"tools[{at}].functionDeclarations"
        for index, declared in enumerate(listed(entry(tool, "functionDeclarations"), where)):
            name = declared.get("name")
            if not isinstance(name, str) or not name:
                raise RequestError(f"{where}[{index}] is {show(declared)}, expected an object with a name")
            function: JsonDict = {"name": name}
            if isinstance(description := declared.get("description"), str):
                function["description"] = description
            schema = entry(declared, "parametersJsonSchema")
            if schema is None:
                schema = json_schema(declared.get("parameters"))
            if schema is not None:
                function["parameters"] = schema
            found.append({"type": "function", "function": function})
    return found or None


def _tool_choice(value: Any) -> str | JsonDict | None:
    config = _object(entry(_object(value, "toolConfig"), "functionCallingConfig"), "functionCallingConfig")
    mode = config.get("mode")
    match mode.upper() if isinstance(mode, str) else None:
        case "NONE":
            return "none"
        case "AUTO" | "VALIDATED":
            return "auto"
        case "ANY":
            allowed = entry(config, "allowedFunctionNames")
            if isinstance(allowed, list) and len(allowed) == 1 and isinstance(allowed[0], str):
                return {"type": "function", "function": {"name": allowed[0]}}
            return "required"
    return None


def _response_format(config: Mapping[str, Any]) -> tuple[JsonDict | None, tuple[str, ...]]:
    """The form of the reply in chat/completions' spelling, and every constraint that only a server could enforce."""
    form: JsonDict | None = None
    unsupported = []
    kind = entry(config, "responseMimeType")
    schema = entry(config, "responseJsonSchema")
    if schema is None:
        schema = entry(config, "responseSchema")
    if schema is not None:
        schema = json_schema(schema)  # measured: Gemini CLI writes OpenAPI types under both names
        form = {"type": "json_schema", "json_schema": {"name": "response", "schema": schema}}
        unsupported.append("a response schema")
    elif kind == "application/json":
        form = {"type": "json_object"}
    if kind not in (None, "", "text/plain") and schema is None:
        unsupported.append(f"responseMimeType {show(kind)}")
    if entry(config, "responseFormat"):
        unsupported.append("responseFormat")
    modalities = entry(config, "responseModalities")
    if isinstance(modalities, list) and any(str(each).upper() != "TEXT" for each in modalities):
        unsupported.append(f"responseModalities {show(modalities)}")
    unsupported += [name for name in ("frequencyPenalty", "presencePenalty") if entry(config, name)]
    return form, tuple(unsupported)


def _effort(thinking: Mapping[str, Any]) -> str | None:
    level = entry(thinking, "thinkingLevel")
    if isinstance(level, str) and level.upper() in ("MINIMAL", "LOW", "MEDIUM", "HIGH"):
        return level.lower()
    budget = entry(thinking, "thinkingBudget")
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 0:
        return None
    return "none" if budget == 0 else next((effort for most, effort in _EFFORTS if budget <= most), "high")


def _object(value: Any, where: str) -> JsonDict:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError(f"{where} is {show(value)}, expected an object")
    return value
