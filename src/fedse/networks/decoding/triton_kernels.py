"""The parts of a decoding step that plain PyTorch does in many small pieces, each as one kernel.

Every kernel computes in float32 and looks only at rows of its own, so that a conversation gets the same numbers whatever
is decoded beside it. `tests/networks/plain_kernels.py` says the same in plain PyTorch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from fedse.networks.decoding.paged_cache import UNIT, PagedCache


@triton.jit
def _add_norm(hidden, added, stride, weight, out, epsilon, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    inside = place < WIDTH
    value = tl.load(hidden + row * WIDTH + place, mask=inside, other=0.0)
    if ADD:
        value = value + tl.load(added + row * stride + place, mask=inside, other=0.0)
        tl.store(hidden + row * WIDTH + place, value, mask=inside)
    wide = value.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / WIDTH + epsilon)
    gain = tl.load(weight + place, mask=inside, other=0.0)
    tl.store(out + row * WIDTH + place, (wide * scale).to(out.dtype.element_ty) * gain, mask=inside)


def add_norm(hidden: torch.Tensor, added: torch.Tensor | None, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Adds to `hidden` in place; returns its root-mean-square norm."""
    rows, width = hidden.shape
    out = torch.empty_like(hidden)
    more = hidden if added is None else added
    _add_norm[(rows,)](
        hidden, more, more.stride(0), weight, out, epsilon, width, triton.next_power_of_2(width), added is not None,
        num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def _silu_times(gate_up, stride, out, INNER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < INNER
    gate = tl.load(gate_up + row * stride + place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * stride + INNER + place, mask=inside, other=0.0)
    bent = (gate / (1.0 + tl.exp(-gate))).to(up.dtype)
    tl.store(out + row * INNER + place, bent * up, mask=inside)


def silu_times(gate_up: torch.Tensor) -> torch.Tensor:
    """The first half of each row, bent, times the second."""
    rows, both = gate_up.shape
    out = gate_up.new_empty(rows, both // 2)
    _silu_times[(rows, triton.cdiv(both // 2, 1024))](gate_up, gate_up.stride(0), out, both // 2, 1024, num_warps=4)
    return out


@triton.jit
def _turn_and_store(
    mixed, stride, cosine, sine, positions, slots, query_weight, key_weight, queries, base, table, width, keys, values,
    epsilon, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, SIZE: tl.constexpr, NORM: tl.constexpr, TOKENS: tl.constexpr,
    PAGE: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    HALF: tl.constexpr = SIZE // 2
    half = tl.arange(0, HALF)
    position = tl.load(positions + token).to(tl.int64)
    slot = tl.load(slots + token // TOKENS).to(tl.int64)
    source = mixed + token * stride + head * SIZE
    first, second = tl.load(source + half), tl.load(source + HALF + half)
    page = base + tl.load(table + slot * width + position // PAGE) * UNIT
    place = (position % PAGE) * KEY_HEADS
    if head >= HEADS + KEY_HEADS:
        target = page + values + (place + head - HEADS - KEY_HEADS) * SIZE
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
            target = page + keys + (place + head - HEADS) * SIZE
        tl.store(target + half, (a * c - b * s).to(first.dtype))
        tl.store(target + HALF + half, (b * c + a * s).to(first.dtype))


def turn_and_store(
    mixed: torch.Tensor,
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
    tokens = len(positions)
    queries = mixed.new_empty(tokens, heads, size)
    query_weight, key_weight, epsilon = norms or (mixed, mixed, 0.0)
    _turn_and_store[(tokens, heads + 2 * key_heads)](
        mixed, mixed.stride(0), *turns, positions, slots, query_weight, key_weight, queries,
        cache.base, cache.table, cache.table.stride(0), *cache.parts(layer), epsilon,
        heads, key_heads, size, norms is not None, tokens // len(slots), page, UNIT, num_warps=1,
    )  # fmt: skip
    return queries


@triton.jit
def _attend(
    queries, base, table, width, keys, values, starts, slots, live, out, scale,
    TOKENS: tl.constexpr, GROUP: tl.constexpr, KEY_HEADS: tl.constexpr, SIZE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr, PAGE: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0).to(tl.int64)
    key_head = tl.program_id(1)
    # A row is one query: token by token, the heads of a group that share keys one after another.
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    token, member = row // GROUP, row % GROUP
    inside = row < TOKENS * GROUP
    start = tl.load(starts + piece)
    slot = tl.load(slots + piece).to(tl.int64)
    size = tl.arange(0, SIZE)
    at = ((piece * TOKENS + token) * KEY_HEADS * GROUP + key_head * GROUP + member)[:, None] * SIZE + size[None, :]
    query = tl.load(queries + at, mask=inside[:, None], other=0.0)
    most = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, SIZE), tl.float32)
    last = tl.minimum((tl.program_id(2) + 1) * ROWS - 1, TOKENS * GROUP - 1) // GROUP
    seen = tl.where(tl.load(live + piece), start + last + 1, 0)
    within = tl.arange(0, COLUMNS)[:, None] * (KEY_HEADS * SIZE) + key_head * SIZE + size[None, :]
    pages = table + slot * width
    page = tl.load(pages)
    for column in range(0, seen, COLUMNS):
        place = column + tl.arange(0, COLUMNS)
        there = place < seen
        where = base + (page * UNIT + (column % PAGE) * (KEY_HEADS * SIZE)) + within
        key = tl.load(where + keys, mask=there[:, None], other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
        score = tl.where((place[None, :] <= start + token[:, None]) & there[None, :], score, -float("inf"))
        higher = tl.maximum(most, tl.max(score, axis=1))
        weight = tl.exp(score - higher[:, None])
        fade = tl.exp(most - higher)
        total = total * fade + tl.sum(weight, axis=1)
        value = tl.load(where + values, mask=there[:, None], other=0.0)
        mixed = mixed * fade[:, None] + tl.dot(weight.to(value.dtype), value, input_precision=PRECISION)
        most = higher
        # One step ahead: a page looked up in the step that reads it would take a stage of the pipeline from its keys.
        page = tl.load(pages + (column + COLUMNS) // PAGE)
    mixed = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(out + at, mixed.to(out.dtype.element_ty), mask=inside[:, None])


def attend(
    queries: torch.Tensor,
    cache: PagedCache,
    layer: int,
    starts: torch.Tensor,
    slots: torch.Tensor,
    live: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Each query looks at its own slot up to its own position.

    `queries` is (pieces * tokens) x heads x size; a piece is a run of tokens of one slot from `starts` on. What is not
    `live` gets anything.
    """
    total, heads, size = queries.shape
    *_, page, key_heads, _ = cache.base.shape
    tokens, group = total // len(slots), heads // key_heads
    out = torch.empty_like(queries)
    rows = max(16, min(64, triton.next_power_of_2(tokens * group)))
    precision = "ieee" if queries.dtype == torch.float32 else "tf32"
    _attend[(len(slots), key_heads, triton.cdiv(tokens * group, rows))](
        queries, cache.base, cache.table, cache.table.stride(0), *cache.parts(layer), starts, slots, live, out, scale,
        tokens, group, key_heads, size, rows, 64, precision, page, UNIT, num_warps=4 if rows > 16 else 2,
    )  # fmt: skip
    return out


@triton.jit
def _draw(logits, stride, draws, temperatures, out, log_probs, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperatures + row).to(tl.float32)
    most = -float("inf")
    token = 0
    for begin in range(0, WORDS, BLOCK):
        place = begin + tl.arange(0, BLOCK)
        value = tl.load(logits + row * stride + place, mask=place < WORDS, other=-float("inf")).to(tl.float32)
        highest = tl.max(value, axis=0)
        if highest > most:
            most = highest
            token = tl.min(tl.where(value == highest, place, WORDS), axis=0)
    if temperature > 0:
        total = tl.zeros((), tl.float64)
        for begin in range(0, WORDS, BLOCK):
            place = begin + tl.arange(0, BLOCK)
            value = tl.load(logits + row * stride + place, mask=place < WORDS, other=-float("inf")).to(tl.float32)
            total += tl.sum(tl.exp((value - most) / temperature).to(tl.float64), axis=0)
        aim = tl.load(draws + row) * total
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
        tl.store(log_probs + row, (chosen - most) / temperature - tl.log(total.to(tl.float32)))
    tl.store(out + row, token.to(tl.int64))


def draw(logits: torch.Tensor, draws: torch.Tensor, temperatures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The likeliest token of each row, or, where the temperature is above 0, the one that a number in [0, 1) falls on; and
    the log-probability of one that was drawn."""
    rows, words = logits.shape
    out = torch.empty(rows, dtype=torch.long, device=logits.device)
    log_probs = torch.zeros(rows, dtype=torch.float32, device=logits.device)
    _draw[(rows,)](logits, logits.stride(0), draws, temperatures, out, log_probs, words, 4096, num_warps=8)
    return out, log_probs
