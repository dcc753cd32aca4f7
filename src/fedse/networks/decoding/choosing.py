"""Which decoder a network gets."""

from __future__ import annotations

from typing import Any

from fedse.errors import BadInput
from fedse.networks.decoding.decoder import Decoder


def decoder_for(model: Any, slots: int, window: int, restricted: bool) -> Decoder:
    """The fastest that computes what the network does. `restricted`: some replies may not say just anything."""
    from fedse.networks.decoding.graphed import GraphedDecoder
    from fedse.networks.decoding.llama_forward import LlamaForward
    from fedse.networks.decoding.network_forward import NetworkForward
    from fedse.networks.decoding.packed import PackedDecoder
    from fedse.networks.decoding.stepwise import StepwiseDecoder

    network = model.network
    # What a restricted reply may say next is worked out on the host, which recorded steps do not wait for.
    if not restricted and not window and GraphedDecoder.suits(network):
        return GraphedDecoder(model, slots)
    if window or not LlamaForward.suits(network):
        return StepwiseDecoder(model, slots, NetworkForward(network, window))
    if network.device.type == "cpu":
        return PackedDecoder(model, slots)
    return StepwiseDecoder(model, slots, LlamaForward(network))


def window_of(model: Any) -> int:
    """How many tokens the network's layers with sliding attention see; 0 where nothing is out of sight."""
    config = model.network.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or []
    if odd := next((kind for kind in kinds if kind not in ("full_attention", "sliding_attention")), None):
        raise BadInput(
            f"model: {model.name} has layers with {odd.replace('_', ' ')}, and the transformer policy knows full and "
            "sliding attention only: choose a model without them."
        )
    window = int(getattr(config, "sliding_window", None) or 0) if set(kinds) != {"full_attention"} else 0
    # One as wide as the context hides nothing.
    return window if window < model.context else 0
