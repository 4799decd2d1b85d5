"""The model gateway: agents on one side, in their own wire protocol, a model on the other, exact token capture between.

async with Gateway(TokenUpstream(sampler, renderer, "model")) as gateway:
    session = gateway.open_session(SessionSpec(sampling={"temperature": 1.0}))
    …                                  # any OpenAI client at session.agent_config().base_url
    trace = await session.close()      # every call, token for token
"""

from rllm.gateway.config import GatewayConfig, SessionSpec
from rllm.gateway.providers.upstream import MessageUpstream
from rllm.gateway.recorder import Recorder
from rllm.gateway.rendering.renderer import Renderer, load_renderer
from rllm.gateway.server import Gateway
from rllm.gateway.session import Session, Trace
from rllm.gateway.token_upstream import TokenUpstream

__all__ = [
    "Gateway",
    "GatewayConfig",
    "MessageUpstream",
    "Recorder",
    "Renderer",
    "Session",
    "SessionSpec",
    "TokenUpstream",
    "Trace",
    "load_renderer",
]
