"""Agents of a few lines on the official SDKs and the well-known frameworks: each has a shell tool of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig, Runner, function_tool
from client_rig import ODD, Rig, call_text, kinds, served, turns
from google import genai
from google.genai import types
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

from rllm.types import Exactness

pytestmark = [
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:create_react_agent has been moved"),
]
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
ABOUT = "Runs a command."
TASK = "Run the command please"
Shell = Callable[[str], str]
AgentRun = Callable[[Rig, Shell, bool], Awaitable[str]]


async def chat(rig: Rig, shell: Shell, stream: bool) -> str:
    messages: list[Any] = [{"role": "user", "content": TASK}]
    offered = {"type": "function", "function": {"name": "shell", "description": ABOUT, "parameters": SCHEMA}}
    async with openai.AsyncOpenAI(base_url=f"{rig.base}/v1", api_key=rig.key) as client:
        while True:
            asked = {"model": "toy", "messages": messages, "tools": [offered]}
            if stream:
                async with client.chat.completions.stream(**asked) as events:
                    message = (await events.get_final_completion()).choices[0].message
            else:
                message = (await client.chat.completions.create(**asked)).choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
            for call in message.tool_calls:
                said = shell(json.loads(call.function.arguments)["command"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": said})


async def responses(rig: Rig, shell: Shell, stream: bool) -> str:
    items: list[Any] = [{"role": "user", "content": TASK}]
    offered = {"type": "function", "name": "shell", "description": ABOUT, "parameters": SCHEMA, "strict": True}
    async with openai.AsyncOpenAI(base_url=f"{rig.base}/v1", api_key=rig.key) as client:
        while True:
            asked: dict[str, Any] = {"model": "toy", "input": items, "tools": [offered]}
            if stream:
                async with client.responses.stream(**asked) as events:
                    reply = await events.get_final_response()
            else:
                reply = await client.responses.create(**asked)
            calls = [item for item in reply.output if item.type == "function_call"]
            if not calls:
                return reply.output_text
            items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in reply.output]
            for call in calls:
                said = shell(json.loads(call.arguments)["command"])
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": said})


async def messages(rig: Rig, shell: Shell, stream: bool) -> str:
    history: list[Any] = [{"role": "user", "content": TASK}]
    offered = {"name": "shell", "description": ABOUT, "input_schema": SCHEMA}
    async with anthropic.AsyncAnthropic(base_url=rig.base, api_key=rig.key) as client:
        while True:
            asked: dict[str, Any] = {"model": "toy", "max_tokens": 500, "messages": history, "tools": [offered]}
            if stream:
                async with client.messages.stream(**asked) as events:
                    reply = await events.get_final_message()
            else:
                reply = await client.messages.create(**asked)
            history.append({"role": "assistant", "content": reply.content})
            used = [block for block in reply.content if block.type == "tool_use"]
            if not used:
                return "".join(block.text for block in reply.content if block.type == "text")
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": shell(block.input["command"])}
                for block in used
            ]
            history.append({"role": "user", "content": results})


async def gemini(rig: Rig, shell: Shell, stream: bool) -> str:
    """The SDK's own loop, which calls Python functions by itself."""

    def run(command: str) -> str:
        """Runs a command."""
        return shell(command)

    run.__name__ = "shell"
    client = genai.Client(api_key=rig.key, http_options=types.HttpOptions(base_url=rig.base))
    try:
        config = types.GenerateContentConfig(tools=[run])
        if not stream:
            reply = await client.aio.models.generate_content(model="toy", contents=TASK, config=config)
            return reply.text or ""
        said = ""
        async for chunk in await client.aio.models.generate_content_stream(model="toy", contents=TASK, config=config):
            parts = chunk.candidates[0].content.parts or []
            said += "".join(part.text or "" for part in parts if not part.thought)
        return said
    finally:
        await client.aio.aclose()
        client.close()


def openai_agents(model_kind: Any) -> AgentRun:
    async def run(rig: Rig, shell: Shell, stream: bool) -> str:
        @function_tool(name_override="shell", description_override=ABOUT)
        def run_shell(command: str) -> str:
            return shell(command)

        async with openai.AsyncOpenAI(base_url=f"{rig.base}/v1", api_key=rig.key) as client:
            agent = Agent(name="a", tools=[run_shell], model=model_kind(model="toy", openai_client=client))
            config = RunConfig(tracing_disabled=True)
            if not stream:
                return str((await Runner.run(agent, TASK, run_config=config)).final_output)
            result = Runner.run_streamed(agent, TASK, run_config=config)
            async for _ in result.stream_events():
                pass
            return str(result.final_output)

    return run


def langgraph(make_model: Callable[[Rig, bool], Any]) -> AgentRun:
    async def run(rig: Rig, shell: Shell, stream: bool) -> str:
        @tool("shell")
        def run_shell(command: str) -> str:
            """Runs a command."""
            return shell(command)

        graph = create_react_agent(make_model(rig, stream), [run_shell])
        state = await graph.ainvoke({"messages": [("user", TASK)]})
        content = state["messages"][-1].content
        return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)

    return run


def openai_model(**options: Any) -> Callable[[Rig, bool], Any]:
    return lambda rig, stream: ChatOpenAI(
        model="toy", base_url=f"{rig.base}/v1", api_key=rig.key, streaming=stream, **options
    )


def anthropic_model(rig: Rig, stream: bool) -> Any:
    return ChatAnthropic(model="toy", base_url=rig.base, api_key=rig.key, streaming=stream, max_tokens=500)


AGENTS: dict[str, AgentRun] = {
    "openai chat": chat,
    "openai responses": responses,
    "anthropic": messages,
    "google-genai": gemini,
    "openai-agents chat": openai_agents(OpenAIChatCompletionsModel),
    "openai-agents responses": openai_agents(OpenAIResponsesModel),
    "langgraph chat": langgraph(openai_model()),
    "langgraph responses": langgraph(openai_model(use_responses_api=True)),
    "langgraph anthropic": langgraph(anthropic_model),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streaming"])
@pytest.mark.parametrize("agent", AGENTS)
async def test_an_agent_runs_its_tool_and_finishes_and_its_trace_is_exact(
    agent: str, stream: bool, model_dir: Path, tmp_path: Path
) -> None:
    def shell(command: str) -> str:
        return subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    first = "<think>\nLet me think.\n</think>\n\n" + ODD
    first += call_text("shell", {"command": "echo one > one.txt"}, odd=True)
    first += call_text("shell", {"command": 'echo "é" > two.txt'}, odd=True)
    second = call_text("shell", {"command": "cat one.txt two.txt"})
    async with served(model_dir, turns(first, second, "All done.")) as rig:
        said = await AGENTS[agent](rig, shell, stream)
        trace = await rig.finish()
    assert said.endswith("All done.")
    assert ((tmp_path / "one.txt").read_text(), (tmp_path / "two.txt").read_text()) == ("one\n", "é\n")
    assert kinds(trace) == [Exactness.EXACT] * 3
    assert trace.errors == []
