"""Attention over keys and values in pages, of decoding steps and of passes over new text.

A program computes in float32 and looks only at one piece of one conversation, or at a part of its keys. For few
conversations their keys are read in parts, by several programs at once: one for each would leave the card idle.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from fedse.networks.decoding.paged_cache import UNIT, PagedCache

COLUMNS = 64
"""Keys that attention reads at once; a page holds a multiple of them."""
ENOUGH_PROGRAMS, MOST_PARTS = 1024, 8
"""Programs of attention that a card has room for, and the most parts that one conversation's keys are read in."""


@triton.jit
def _looked_at(
    query, base, pages, keys, values, key_head, first, behind, start, token, scale,
    KEY_HEADS: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
    PAGE: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Of the columns from `first` to `behind`: the highest score of each row, the sum of weights, the values so weighed."""
    most = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, SIZE), tl.float32)
    size = tl.arange(0, SIZE)
    within = tl.arange(0, COLUMNS)[:, None] * (KEY_HEADS * SIZE) + key_head * SIZE + size[None, :]
    page = tl.load(pages + first // PAGE)
    for column in range(first, behind, COLUMNS):
        place = column + tl.arange(0, COLUMNS)
        there = place < behind
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
    return most, total, mixed


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
    at = ((piece * TOKENS + token) * KEY_HEADS * GROUP + key_head * GROUP + member)[:, None] * SIZE
    at += tl.arange(0, SIZE)[None, :]
    query = tl.load(queries + at, mask=inside[:, None], other=0.0)
    last = tl.minimum((tl.program_id(2) + 1) * ROWS - 1, TOKENS * GROUP - 1) // GROUP
    seen = tl.where(tl.load(live + piece), start + last + 1, 0)
    _, total, mixed = _looked_at(
        query, base, table + slot * width, keys, values, key_head, 0, seen, start, token, scale,
        KEY_HEADS, SIZE, ROWS, COLUMNS, PRECISION, PAGE, UNIT,
    )  # fmt: skip
    mixed = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(out + at, mixed.to(out.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _attend_in_parts(
    queries, base, table, width, keys, values, starts, slots, live, parts, sums, highest, scale,
    GROUP: tl.constexpr, KEY_HEADS: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr, PAGE: tl.constexpr, UNIT: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """As `_attend` for one token of each piece, but a program looks at a part of the columns."""
    piece = tl.program_id(0).to(tl.int64)
    key_head = tl.program_id(1)
    part = tl.program_id(2)
    row = tl.arange(0, ROWS)
    inside = row < GROUP
    start = tl.load(starts + piece)
    slot = tl.load(slots + piece).to(tl.int64)
    size = tl.arange(0, SIZE)
    at = (piece * KEY_HEADS * GROUP + key_head * GROUP + row)[:, None] * SIZE + size[None, :]
    query = tl.load(queries + at, mask=inside[:, None], other=0.0)
    seen = tl.where(tl.load(live + piece), start + 1, 0)
    share = tl.cdiv(tl.cdiv(seen, COLUMNS), PARTS) * COLUMNS
    first = tl.minimum(part * share, seen)
    most, total, mixed = _looked_at(
        query, base, table + slot * width, keys, values, key_head, first, tl.minimum(first + share, seen), start,
        row * 0, scale, KEY_HEADS, SIZE, ROWS, COLUMNS, PRECISION, PAGE, UNIT,
    )  # fmt: skip
    here = ((piece * KEY_HEADS + key_head) * PARTS + part) * ROWS + row
    tl.store(parts + here[:, None] * SIZE + size[None, :], mixed)
    tl.store(sums + here, total)
    tl.store(highest + here, most)


@triton.jit
def _join_parts(
    parts, sums, highest, out, GROUP: tl.constexpr, KEY_HEADS: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    part, size = tl.arange(0, PARTS), tl.arange(0, SIZE)
    here = ((piece * KEY_HEADS + head // GROUP) * PARTS + part) * ROWS + head % GROUP
    most = tl.load(highest + here)
    # What is not live saw nothing.
    top = tl.maximum(tl.max(most, axis=0), -1e30)
    weight = tl.exp(most - top)
    total = tl.sum(tl.load(sums + here) * weight, axis=0)
    mixed = tl.sum(tl.load(parts + here[:, None] * SIZE + size[None, :]) * weight[:, None], axis=0)
    mixed = mixed / tl.where(total == 0.0, 1.0, total)
    tl.store(out + (piece * KEY_HEADS * GROUP + head) * SIZE + size, mixed.to(out.dtype.element_ty))


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
    warps = 4 if rows > 16 else 2
    held = (cache.base, cache.table, cache.table.stride(0), *cache.parts(layer), starts, slots, live)
    parts = _parts(len(slots) * key_heads) if tokens == 1 and group <= rows else 1
    if parts == 1:
        _attend[(len(slots), key_heads, triton.cdiv(tokens * group, rows))](
            queries, *held, out, scale, tokens, group, key_heads, size, rows, COLUMNS, precision, page, UNIT,
            num_warps=warps,
        )  # fmt: skip
        return out
    mixed = torch.empty(len(slots), key_heads, parts, rows, size, dtype=torch.float32, device=queries.device)
    sums, highest = torch.empty_like(mixed[..., 0]), torch.empty_like(mixed[..., 0])
    _attend_in_parts[(len(slots), key_heads, parts)](
        queries, *held, mixed, sums, highest, scale, group, key_heads, size, rows, COLUMNS, precision, page, UNIT, parts,
        num_warps=warps,
    )  # fmt: skip
    _join_parts[(len(slots), heads)](mixed, sums, highest, out, group, key_heads, size, rows, parts, num_warps=1)
    return out


def _parts(programs: int) -> int:
    """In how many parts columns are looked at, a power of two: so many that the card is busy with a few conversations."""
    parts = 1
    while parts < MOST_PARTS and 2 * parts * programs <= ENOUGH_PROGRAMS:
        parts *= 2
    return parts
