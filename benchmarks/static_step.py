"""A step of transformers' own forward pass with its static cache and the merged adapter, recorded as a CUDA graph.

`generate` compiles such a step by itself, which takes minutes at these sizes (`rollouts_gpu.py --ways static` waits for it).
Recording takes a second and spares the same launches; it does not fuse what lies between the matrix products. The adapter
is merged into the weights, which spares two products for each linear layer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch


@torch.no_grad()
def static_step(model: Any, given: Sequence[Sequence[int]], tokens: int) -> float:
    """Seconds of one step in which every conversation gets a token, on the average of as many as a reply has."""
    from transformers import StaticCache

    model.network.merge_adapter()
    # Not PEFT's wrapper, whose forward pass the Trainer may have wrapped once more.
    network = model.network.get_base_model()
    length = len(given[0])
    cache = StaticCache(config=network.config.get_text_config(), max_cache_len=length + tokens + 2)
    ids = torch.tensor(given, device=model.device)
    places = torch.arange(length + tokens + 2, device=model.device)
    token = ids[:, -1:].clone()
    position = torch.full((len(given), 1), length, device=model.device)
    network(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)

    def step() -> None:
        logits = network(
            input_ids=token,
            attention_mask=(places <= position)[:, None, None],
            position_ids=position,
            past_key_values=cache,
            use_cache=True,
        ).logits[:, -1]
        shares = torch.softmax(logits.float(), dim=-1)
        # The same as `multinomial`, which looks at its weights first.
        token.copy_((shares / torch.empty_like(shares).exponential_()).argmax(-1, keepdim=True))
        position.add_(1)

    step()
    replay = _recorded(step) if model.device.startswith("cuda") else step
    _wait()
    begun = time.perf_counter()
    for _ in range(tokens):
        replay()
    _wait()
    return (time.perf_counter() - begun) / tokens


def _recorded(step: Callable[[], None]) -> Callable[[], None]:
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
