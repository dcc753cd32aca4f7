"""Whether a decoder and a plain forward pass of the network agree about a text."""

from __future__ import annotations

from typing import Any

from fedse.errors import SwapFailed
from fedse.networks.decoding.decoder import Decoder

_TEXT = "Which adapter is speaking?"
_PLACES = 8
_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}
"""At a single place two right computations in bfloat16 differed by 0.07: logits around 20 are a tenth apart there."""


def check_agrees(model: Any, decoder: Decoder) -> None:
    """Raises `SwapFailed` where a decoder says something else with the adapter that the network holds."""
    gap, allowed = probe_gap(model, decoder), allowed_gap(model.network)
    if not gap <= allowed:
        raise SwapFailed(
            f"after the swap, decoding and learning disagree about the same text by {gap:.3g} (allowed {allowed})."
        )


def allowed_gap(network: Any) -> float:
    import torch

    return _TOLERANCE["float32" if network.dtype == torch.float32 else "bfloat16"]


def probe_ids(model: Any) -> list[int]:
    """The text, up to where a reply would begin."""
    return [*model.chat.opening(_TEXT), *model.chat.turn(_TEXT)]


def probe_gap(model: Any, decoder: Decoder) -> float:
    """How much a next-token probability differs at most between the two, on the average of some places in a text. No
    conversation may be open."""
    import torch

    ids = probe_ids(model)
    ends = [max(1, len(ids) * place // _PLACES) for place in range(1, _PLACES + 1)]
    with torch.inference_mode():
        network_ids = torch.tensor([ids], device=model.device)
        plain = model.network(input_ids=network_ids, use_cache=False).logits[0].float()
        gaps = []
        for end in ends:
            cached = decoder.encode(0, ids[:end]).float()
            decoder.close(0)
            gaps.append((torch.softmax(plain[end - 1], -1) - torch.softmax(cached, -1)).abs().max())
        return float(torch.stack(gaps).mean())
