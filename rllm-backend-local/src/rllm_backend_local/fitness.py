"""Whether a model can be sampled and trained as this package does it: found out by trying, not by its name.

Both paths assume ordinary causal attention: the sampler replaces the attention function, the learner packs rows that
share a prompt under one mask. A model with state of another kind would compute something else, silently; so each is
compared with the model's own plain forward pass on a few tokens when the model is opened.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from rllm.errors import ModelError, boundary
from rllm_backend_local.learner import token_logprobs
from rllm_backend_local.messages import Request
from rllm_backend_local.packing import Sequence1D, pack
from rllm_backend_local.policy import Policy
from rllm_backend_local.sampling import SlotSampler

__all__ = ["check_fitness"]

_PROMPT_TOKENS = 9
_REPLY_TOKENS = 4
_TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 0.5}


@torch.no_grad()
def check_fitness(policy: Policy, *, name: str) -> None:
    """Raises `ModelError` when log-probabilities by our two paths and by the model's own differ."""
    size = policy.config.get_text_config().vocab_size
    ids = np.random.default_rng(0).integers(0, size, _PROMPT_TOKENS).astype(np.int32)
    with boundary(ModelError, f"model {name!r} cannot be used by the local backend"):
        sampled, found = _sample(policy, ids)
        plain = [_plain(policy, ids, reply) for reply in sampled]
        packed = _packed(policy, ids, sampled)
    worst = max(float(np.abs(a - b).max()) for a, b in zip(plain + plain, found + packed, strict=True))
    if not worst <= _TOLERANCE[policy.dtype]:
        kind = type(policy.base).__name__
        raise ModelError(
            f"model {name!r} ({kind}) does not have ordinary causal attention: log-probabilities differ by {worst:.3g} "
            "from its own forward pass; the local backend cannot use it"
        )


def _sample(policy: Policy, prompt: NDArray[np.int32]) -> tuple[list[NDArray[np.int32]], list[NDArray[np.float32]]]:
    sampler = SlotSampler(policy.sampler, slots=2, context_length=64, cache_bytes=1 << 30, decode=lambda _: "")
    for number in range(2):
        sampler.submit(Request(number, prompt, _REPLY_TOKENS, 1.0, 1.0, 0, (), (), number, False))
    replies = {}
    while sampler.busy:
        replies.update({done.number: done for done in sampler.step()[0]})
    return [replies[n].ids for n in range(2)], [replies[n].logprobs for n in range(2)]


def _plain(policy: Policy, prompt: NDArray[np.int32], reply: NDArray[np.int32]) -> NDArray[np.float32]:
    ids = torch.from_numpy(np.concatenate([prompt, reply]).astype(np.int64))[None].to(policy.device)
    table = policy.base(input_ids=ids, use_cache=False).logits[0].float().log_softmax(-1)
    places = torch.arange(prompt.size, ids.shape[1], device=ids.device)
    logprobs: NDArray[np.float32] = table[places - 1, ids[0, places]].cpu().numpy()
    return logprobs


def _packed(
    policy: Policy, prompt: NDArray[np.int32], replies: Sequence[NDArray[np.int32]]
) -> list[NDArray[np.float32]]:
    whole = [np.concatenate([prompt, reply]) for reply in replies]
    (batch,) = pack([Sequence1D(ids, np.arange(ids.size) >= prompt.size) for ids in whole], 4096)
    heat = np.ones(batch.rows.size, np.float32)
    logp, _ = token_logprobs(policy.learner, policy.config, batch, heat, device=policy.device)
    values = logp.float().cpu().numpy()
    return [values[batch.rows == row] for row in range(len(replies))]
