"""The parts of a decoding step that plain PyTorch does in many small pieces, each as one kernel.

Kernels compute in float32 (`draw` sums in float64) and look only at rows of their own. How many rows there are decides how
matrix products and attention add up, and so the last bits. `tests/networks/plain_kernels.py` says the same in plain PyTorch.
"""

from __future__ import annotations

from threading import Thread

import torch
import triton
import triton.language as tl

from fedse.networks.decoding.paged_cache import UNIT, PagedCache
from fedse.networks.decoding.product import LowRank, Product
from fedse.networks.decoding.slot_state import SlotState
from fedse.networks.decoding.triton_attention import attend

__all__ = ["add_norm", "attend", "draw", "hand_out", "make_ready", "silu_times", "turn_and_store"]

_GAMMA, _MIX, _MIX_AGAIN = (
    tl.constexpr(value) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def make_ready(device: torch.device) -> Thread:
    """Before Triton compiles its first kernel it reads all of itself, which takes seconds: let it, beside other work.

    The end of the process waits for it: a thread that is stopped inside torch would abort the process.
    """
    ready = Thread(target=lambda: silu_times(Product(torch.zeros(1, 2, device=device), None)))
    ready.start()
    return ready


@triton.jit
def _with_adapter(
    output, row, place, inside, inner, stride, up, width, adapters, block, first, ranks, SEVERAL: tl.constexpr
):
    """Outputs of a row, with what ranks from `first` on of its adapter add to them."""
    if SEVERAL:
        first += tl.load(adapters + row) * block
    added = tl.zeros(place.shape, tl.float32)
    for at in range(0, ranks, 8):
        for step in tl.static_range(8):
            there = at + step < ranks
            rank = first + at + step
            value = tl.load(inner + row * stride + rank, mask=there, other=0.0).to(tl.float32)
            added += value * tl.load(up + rank * width + place, mask=inside & there, other=0.0).to(tl.float32)
    return (output.to(tl.float32) + added).to(output.dtype)


def _factors(product: Product) -> tuple[torch.Tensor, int, torch.Tensor, int, torch.Tensor, int]:
    """What `_with_adapter` reads; anything will do where there is nothing to add."""
    outputs, added = product
    if added is None:
        return outputs, 0, outputs, 0, outputs, 0
    adapters = outputs if added.adapters is None else added.adapters
    return added.inner, added.inner.stride(0), added.up, added.up.stride(0), adapters, sum(added.ranks)


def _several(added: LowRank | None) -> bool:
    return added is not None and added.adapters is not None


@triton.jit
def _add_norm(
    hidden, added, stride, inner, inner_stride, up, width, adapters, block, ranks, weight, out, epsilon,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr, ADAPTED: tl.constexpr, SEVERAL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    inside = place < WIDTH
    value = tl.load(hidden + row * WIDTH + place, mask=inside, other=0.0)
    if ADD:
        more = tl.load(added + row * stride + place, mask=inside, other=0.0)
        if ADAPTED:
            more = _with_adapter(
                more, row, place, inside, inner, inner_stride, up, width, adapters, block, 0, ranks, SEVERAL
            )
        value = value + more
        tl.store(hidden + row * WIDTH + place, value, mask=inside)
    wide = value.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / WIDTH + epsilon)
    gain = tl.load(weight + place, mask=inside, other=0.0)
    tl.store(out + row * WIDTH + place, (wide * scale).to(out.dtype.element_ty) * gain, mask=inside)


def add_norm(hidden: torch.Tensor, product: Product | None, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Adds a product of one layer to `hidden` in place; returns its root-mean-square norm."""
    rows, width = hidden.shape
    out = torch.empty_like(hidden)
    more = Product(hidden, None) if product is None else product
    _add_norm[(rows,)](
        hidden, more.outputs, more.outputs.stride(0), *_factors(more), *_ranks_of(more, 1), weight, out, epsilon,
        width, triton.next_power_of_2(width), product is not None, more.added is not None, _several(more.added),
        num_warps=4,
    )  # fmt: skip
    return out


def _ranks_of(product: Product, layers: int) -> tuple[int, ...]:
    return (0,) * layers if product.added is None else product.added.ranks


@triton.jit
def _silu_times(
    gate_up, stride, inner, inner_stride, up, width, adapters, block, gate_ranks, up_ranks, out,
    INNER: tl.constexpr, BLOCK: tl.constexpr, ADAPTED: tl.constexpr, SEVERAL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < INNER
    gate = tl.load(gate_up + row * stride + place, mask=inside, other=0.0)
    other = tl.load(gate_up + row * stride + INNER + place, mask=inside, other=0.0)
    if ADAPTED:
        gate = _with_adapter(
            gate, row, place, inside, inner, inner_stride, up, width, adapters, block, 0, gate_ranks, SEVERAL
        )
        other = _with_adapter(
            other, row, INNER + place, inside, inner, inner_stride, up, width, adapters, block, gate_ranks, up_ranks,
            SEVERAL,
        )  # fmt: skip
    wide = gate.to(tl.float32)
    bent = (wide / (1.0 + tl.exp(-wide))).to(other.dtype)
    tl.store(out + row * INNER + place, bent * other, mask=inside)


def silu_times(gate_up: Product) -> torch.Tensor:
    """The first half of each row, bent, times the second."""
    outputs, added = gate_up
    rows, both = outputs.shape
    out = outputs.new_empty(rows, both // 2)
    _silu_times[(rows, triton.cdiv(both // 2, 1024))](
        outputs, outputs.stride(0), *_factors(gate_up), *_ranks_of(gate_up, 2), out,
        both // 2, 1024, added is not None, _several(added), num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def _turn_and_store(
    mixed, stride, inner, inner_stride, up, width, adapters, block, query_ranks, key_ranks, value_ranks, cosine, sine,
    positions, slots, query_weight, key_weight, queries, base, table, columns, keys, values, epsilon,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, SIZE: tl.constexpr, NORM: tl.constexpr, TOKENS: tl.constexpr,
    PAGE: tl.constexpr, UNIT: tl.constexpr, ADAPTED: tl.constexpr, SEVERAL: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    HALF: tl.constexpr = SIZE // 2
    half = tl.arange(0, HALF)
    position = tl.load(positions + token).to(tl.int64)
    slot = tl.load(slots + token // TOKENS).to(tl.int64)
    source = mixed + token * stride + head * SIZE
    first, second = tl.load(source + half), tl.load(source + HALF + half)
    if ADAPTED:
        of_value, of_key = head >= HEADS + KEY_HEADS, head >= HEADS
        before = tl.where(of_value, query_ranks + key_ranks, tl.where(of_key, query_ranks, 0))
        ranks = tl.where(of_value, value_ranks, tl.where(of_key, key_ranks, query_ranks))
        place, inside = head * SIZE + half, half < HALF
        first = _with_adapter(
            first, token, place, inside, inner, inner_stride, up, width, adapters, block, before, ranks, SEVERAL
        )
        second = _with_adapter(
            second, token, place + HALF, inside, inner, inner_stride, up, width, adapters, block, before, ranks, SEVERAL
        )
    page = base + tl.load(table + slot * columns + position // PAGE) * UNIT
    place_in_page = (position % PAGE) * KEY_HEADS
    if head >= HEADS + KEY_HEADS:
        target = page + values + (place_in_page + head - HEADS - KEY_HEADS) * SIZE
        tl.store(target + half, first)
        tl.store(target + HALF + half, second)
    else:
        a, b = first.to(tl.float32), second.to(tl.float32)
        if NORM:
            scale = 1.0 / tl.sqrt((tl.sum(a * a, axis=0) + tl.sum(b * b, axis=0)) / SIZE + epsilon)
            weight = query_weight if head < HEADS else key_weight
            a = ((a * scale).to(first.dtype) * tl.load(weight + half)).to(tl.float32)
            b = ((b * scale).to(first.dtype) * tl.load(weight + HALF + half)).to(tl.float32)
        c, s = tl.load(cosine + position * HALF + half), tl.load(sine + position * HALF + half)
        if head < HEADS:
            target = queries + (token * HEADS + head) * SIZE
        else:
            target = page + keys + (place_in_page + head - HEADS) * SIZE
        tl.store(target + half, (a * c - b * s).to(first.dtype))
        tl.store(target + HALF + half, (b * c + a * s).to(first.dtype))


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
    """Turn queries and keys by their positions; keys and values go into the slots' pages, the queries are returned.

    `mixed` is tokens x (queries, keys, values), `turns` cosine and sine of half a head for every position, `positions` one
    number a token, `slots` one number for each run of as many tokens as there are positions for it.
    """
    *_, page, key_heads, size = cache.base.shape
    tokens, outputs = len(positions), mixed.outputs
    queries = outputs.new_empty(tokens, heads, size)
    query_weight, key_weight, epsilon = norms or (outputs, outputs, 0.0)
    _turn_and_store[(tokens, heads + 2 * key_heads)](
        outputs, outputs.stride(0), *_factors(mixed), *_ranks_of(mixed, 3), *turns,
        positions, slots, query_weight, key_weight, queries,
        cache.base, cache.table, cache.table.stride(0), *cache.parts(layer), epsilon,
        heads, key_heads, size, norms is not None, tokens // len(slots), page, UNIT,
        mixed.added is not None, _several(mixed.added), num_warps=1,
    )  # fmt: skip
    return queries


@triton.jit
def _hand_out(
    rows, count, spare, token, log_prob, position, left, live, ends, cursor, history, told, columns,
    ids, slots, starts, going, ENDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = row < count
    slot = tl.load(rows + row, mask=inside, other=0)
    said = tl.load(token + slot, mask=inside, other=0)
    alive = tl.load(live + slot, mask=inside, other=0) != 0
    at = tl.load(cursor) * columns + slot
    tl.store(history + at, tl.where(alive, said, -1), mask=inside)
    tl.store(told + at, tl.load(log_prob + slot, mask=inside, other=0.0), mask=inside)
    rest = tl.load(left + slot, mask=inside, other=0) - alive.to(tl.int64)
    goes = alive & (rest > 0)
    for end in tl.static_range(ENDS):
        goes = goes & (said != tl.load(ends + end))
    start = tl.load(position + slot, mask=inside, other=0)
    tl.store(left + slot, rest, mask=inside)
    tl.store(live + slot, goes, mask=inside)
    tl.store(position + slot, start + goes.to(tl.int64), mask=inside)
    tl.store(ids + row, said, mask=inside)
    tl.store(slots + row, tl.where(goes, slot, spare), mask=inside)
    tl.store(starts + row, start, mask=inside)
    tl.store(going + row, goes, mask=inside)


def hand_out(
    state: SlotState,
    rows: torch.Tensor,
    ends: torch.Tensor,
    cursor: torch.Tensor,
    history: torch.Tensor,
    log_probs: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of the replies in these slots: write the token drawn last into line `cursor` of the history, and end a reply that ends
    with it. Returns what is to be encoded next: tokens, slots (the spare one where nothing is), positions, and whether a
    reply goes on."""
    ids, slots, starts = (torch.empty_like(rows) for _ in range(3))
    going = torch.empty_like(rows, dtype=torch.bool)
    count, block = len(rows), 128
    _hand_out[(triton.cdiv(count, block),)](
        rows, count, len(state.token) - 1, state.token, state.log_prob, state.position, state.left, state.live, ends,
        cursor, history, log_probs, history.stride(0), ids, slots, starts, going, len(ends), block, num_warps=4,
    )  # fmt: skip
    return ids, slots, starts, going


@triton.jit
def _uniform(key, index):
    """`seeds.uniform`."""
    state = key.to(tl.uint64, bitcast=True) + (index + 1).to(tl.uint64, bitcast=True) * _GAMMA
    state = (state ^ (state >> 30)) * _MIX
    state = (state ^ (state >> 27)) * _MIX_AGAIN
    return ((state ^ (state >> 31)) >> 11).to(tl.int64, bitcast=True).to(tl.float64) * (1.0 / 9007199254740992.0)


@triton.jit
def _draw(
    logits,
    stride,
    targets,
    keys,
    indices,
    temperatures,
    token_of,
    log_prob_of,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row)
    temperature = tl.load(temperatures + target).to(tl.float32)
    index = tl.load(indices + target)
    most = -float("inf")
    token = 0
    for begin in range(0, WORDS, BLOCK):
        place = begin + tl.arange(0, BLOCK)
        value = tl.load(logits + row * stride + place, mask=place < WORDS, other=-float("inf")).to(tl.float32)
        highest = tl.max(value, axis=0)
        if highest > most:
            most = highest
            token = tl.min(tl.where(value == highest, place, WORDS), axis=0)
    log_prob = tl.zeros((), tl.float32)
    if temperature > 0:
        total = tl.zeros((), tl.float64)
        for begin in range(0, WORDS, BLOCK):
            place = begin + tl.arange(0, BLOCK)
            value = tl.load(logits + row * stride + place, mask=place < WORDS, other=-float("inf")).to(tl.float32)
            total += tl.sum(tl.exp((value - most) / temperature).to(tl.float64), axis=0)
        aim = _uniform(tl.load(keys + target), index) * total
        before = tl.zeros((), tl.float64)
        token = WORDS - 1
        for begin in range(0, WORDS, BLOCK):
            place = begin + tl.arange(0, BLOCK)
            value = tl.load(logits + row * stride + place, mask=place < WORDS, other=-float("inf")).to(tl.float32)
            share = tl.exp((value - most) / temperature).to(tl.float64)
            ladder = before + tl.cumsum(share, axis=0)
            token = tl.minimum(token, tl.min(tl.where((ladder > aim) & (place < WORDS), place, WORDS), axis=0))
            before += tl.sum(share, axis=0)
        chosen = tl.load(logits + row * stride + token).to(tl.float32)
        log_prob = (chosen - most) / temperature - tl.log(total.to(tl.float32))
    tl.store(token_of + target, token.to(tl.int64))
    tl.store(log_prob_of + target, log_prob)
    tl.store(indices + target, index + 1)


def draw(logits: torch.Tensor, state: SlotState, targets: torch.Tensor) -> None:
    """The next token of the reply in each row's slot: the likeliest, or, where the temperature is above 0, the one that the
    next number of the slot's stream falls on, with its log-probability."""
    rows, words = logits.shape
    _draw[(rows,)](
        logits, logits.stride(0), targets, state.key, state.drawn, state.temperature, state.token, state.log_prob,
        words, 4096, num_warps=8,
    )  # fmt: skip
