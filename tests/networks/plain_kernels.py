"""What `fedse.networks.decoding.triton_kernels` computes, in plain PyTorch: the same functions with the same arguments."""

from __future__ import annotations

import torch
from torch.nn import functional

from fedse.networks.decoding.paged_cache import PagedCache
from fedse.networks.decoding.product import Product
from fedse.networks.decoding.slot_state import SlotState

_GAMMA, _MIX, _MIX_AGAIN = (value - (1 << 64) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def add_norm(hidden: torch.Tensor, product: Product | None, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    if product is not None:
        hidden += product.whole()
    return functional.rms_norm(hidden, weight.shape, weight, epsilon)


def silu_times(gate_up: Product) -> torch.Tensor:
    gate, up = gate_up.whole().chunk(2, dim=-1)
    return functional.silu(gate) * up


def turn_and_store(
    mixed: Product,
    turns: tuple[torch.Tensor, torch.Tensor],
    positions: torch.Tensor,
    slots: torch.Tensor,
    norms: tuple[torch.Tensor, torch.Tensor, float] | None,
    cache: PagedCache,
    layer: int,
    heads: int,
) -> torch.Tensor:
    *_, length, key_heads, size = cache.base.shape
    apart = mixed.whole().reshape(len(positions), heads + 2 * key_heads, size)
    queries, new_keys, new_values = apart.split([heads, key_heads, key_heads], dim=1)
    if norms is not None:
        query_weight, key_weight, epsilon = norms
        queries = functional.rms_norm(queries, (size,), query_weight, epsilon)
        new_keys = functional.rms_norm(new_keys, (size,), key_weight, epsilon)
    cosine, sine = (table[positions][:, None] for table in turns)

    def turned(heads_: torch.Tensor) -> torch.Tensor:
        first, second = heads_.float().chunk(2, dim=-1)
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).to(
            mixed.outputs.dtype
        )

    rows = slots.repeat_interleave(len(positions) // len(slots))
    new = torch.stack((turned(new_keys), new_values), dim=1)
    pages = _pages(cache)
    for row, position, both in zip(rows.tolist(), positions.tolist(), new, strict=True):
        pages[int(cache.table[row, position // length])][layer, :, position % length] = both
    return turned(queries)


def _pages(cache: PagedCache) -> dict[int, torch.Tensor]:
    """By what the table says of them."""
    return {cache.unit_of(page): page for page in (cache.base, *cache.stock)}


def attend(
    queries: torch.Tensor,
    cache: PagedCache,
    layer: int,
    starts: torch.Tensor,
    slots: torch.Tensor,
    live: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    total, heads, size = queries.shape
    tokens, group = total // len(slots), heads // cache.base.shape[3]
    pages = _pages(cache)
    out = torch.zeros_like(queries).view(len(slots), tokens, heads, size)
    for piece in range(len(slots)):
        if not live[piece]:
            continue
        held = -(-(int(starts[piece]) + tokens) // cache.base.shape[2])
        units = cache.table[slots[piece], :held].tolist()
        keys, values = torch.cat([pages[unit][layer] for unit in units], dim=1)
        for token in range(tokens):
            seen = slice(0, int(starts[piece]) + token + 1)
            key = keys[seen].repeat_interleave(group, dim=1).float()
            value = values[seen].repeat_interleave(group, dim=1).float()
            query = queries.view(len(slots), tokens, heads, size)[piece, token].float()
            weight = torch.softmax(torch.einsum("hs,nhs->hn", query, key) * scale, dim=-1)
            out[piece, token] = torch.einsum("hn,nhs->hs", weight, value).to(out.dtype)
    return out.view(total, heads, size)


def hand_out(
    state: SlotState,
    rows: torch.Tensor,
    ends: torch.Tensor,
    cursor: torch.Tensor,
    history: torch.Tensor,
    log_probs: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    line, live, token, starts = int(cursor), state.live[rows], state.token[rows], state.position[rows]
    history[line, rows] = torch.where(live, token, -1)
    log_probs[line, rows] = state.log_prob[rows]
    state.left[rows] -= live.long()
    going = live & (state.left[rows] > 0) & ~torch.isin(token, ends)
    state.live[rows] = going
    state.position[rows] += going
    return token, torch.where(going, rows, len(state.token) - 1), starts, going


def draw(logits: torch.Tensor, state: SlotState, targets: torch.Tensor) -> None:
    tokens, log_probs = drawn(logits, uniform_of(state.key[targets], state.drawn[targets]), state.temperature[targets])
    state.token[targets], state.log_prob[targets] = tokens, log_probs
    state.drawn[targets] += 1


def drawn(logits: torch.Tensor, draws: torch.Tensor, temperatures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The token that each number falls on, or the likeliest at temperature 0, and its log-probability."""
    warm = temperatures > 0
    scaled = logits.double() / torch.where(warm, temperatures, 1.0)[:, None]
    ladder = torch.softmax(scaled, dim=-1).cumsum(dim=-1)
    aims = draws[:, None] * ladder[:, -1:]
    tokens = torch.searchsorted(ladder, aims, right=True).squeeze(1).clamp(max=logits.shape[1] - 1)
    log_probs = torch.log_softmax(scaled, dim=-1).gather(1, tokens[:, None]).squeeze(1)
    return torch.where(warm, tokens, logits.argmax(dim=-1)), torch.where(warm, log_probs, 0.0).float()


def uniform_of(key: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """`seeds.uniform` for many streams: 64-bit integers wrap around in the same way, shifts must not carry the sign."""
    state = key + (index + 1) * _GAMMA
    state = (state ^ _shifted(state, 30)) * _MIX
    state = (state ^ _shifted(state, 27)) * _MIX_AGAIN
    return _shifted(state ^ _shifted(state, 31), 11).double() * 2.0**-53


def _shifted(state: torch.Tensor, bits: int) -> torch.Tensor:
    return (state >> bits) & ((1 << (64 - bits)) - 1)
