"""The kernels against plain PyTorch: on a GPU, or on a CPU with Triton's interpreter (TRITON_INTERPRET=1)."""

from __future__ import annotations

import os
from collections.abc import Sequence

import plain_kernels
import pytest
import torch

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from fedse.networks.decoding import paged_cache, triton_attention, triton_kernels  # noqa: E402
from fedse.networks.decoding.paged_cache import PagedCache  # noqa: E402
from fedse.networks.decoding.product import LowRank, Product  # noqa: E402
from fedse.networks.decoding.slot_state import SlotState, signed  # noqa: E402
from fedse.seeds import stream  # noqa: E402

pytestmark = pytest.mark.gpu if DEVICE == "cuda" else []
DTYPES = [torch.float32, torch.bfloat16] if DEVICE == "cuda" else [torch.float32]
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype)


ADAPTERS = ["none", "one", "several"]
"""How many there are to choose from."""


def product(outputs: torch.Tensor, widths: Sequence[int], ranks: tuple[int, ...], adapters: str) -> Product:
    """With factors that lie as `GraphedNetwork` has them: each layer's ranks reach its own outputs, and inner values stand
    behind all outputs. Where there are several adapters, one that nobody has diverged."""
    if adapters == "none":
        return Product(outputs, None)
    rows, width = outputs.shape
    blocks = 3 if adapters == "several" else 1
    block = sum(ranks)
    inner = numbers(rows, blocks * block, dtype=outputs.dtype)
    up = torch.zeros(blocks * block, width, dtype=outputs.dtype, device=DEVICE)
    for adapter in range(blocks):
        rank, output = adapter * block, 0
        for count, wide in zip(ranks, widths, strict=True):
            up[rank : rank + count, output : output + wide] = numbers(count, wide, dtype=outputs.dtype) / 4
            rank, output = rank + count, output + wide
    own = torch.arange(rows, device=DEVICE) % 2 * 2 if adapters == "several" else None
    if own is not None:
        inner[:, block : 2 * block] = torch.nan
        up[block : 2 * block] = 0.0
    both = torch.cat([outputs, inner], dim=1)
    return Product(both[:, :width], LowRank(both[:, width:], up, ranks, own))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("adapters", ["", *ADAPTERS])
def test_add_norm(dtype: torch.dtype, adapters: str) -> None:
    hidden, more, weight = numbers(5, 72, dtype=dtype), numbers(5, 72, dtype=dtype) * 2, numbers(72, dtype=dtype)
    added = product(more, [72], (11,), adapters) if adapters else None
    mine, theirs = hidden.clone(), hidden.clone()
    result = triton_kernels.add_norm(mine, added, weight, 1e-5)
    expected = plain_kernels.add_norm(theirs, added, weight, 1e-5)
    torch.testing.assert_close(result, expected, atol=CLOSE[dtype], rtol=CLOSE[dtype])
    torch.testing.assert_close(mine, theirs, atol=CLOSE[dtype], rtol=CLOSE[dtype])
    assert torch.equal(mine, hidden) is not bool(adapters)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("adapters", ADAPTERS)
def test_silu_times(dtype: torch.dtype, adapters: str) -> None:
    both = numbers(4, 2 * 1100, dtype=dtype)
    for part in (both, numbers(4, 4 * 1100, dtype=dtype)[:, : 2 * 1100]):
        given = product(part, [1100, 1100], (8, 3), adapters)
        torch.testing.assert_close(
            triton_kernels.silu_times(given), plain_kernels.silu_times(given), atol=CLOSE[dtype], rtol=CLOSE[dtype]
        )


def state(slots: int) -> SlotState:
    """Replies at different places, some of them over, some at their last token."""
    made = SlotState.of(slots, torch.device(DEVICE))
    place = torch.arange(slots + 1, device=DEVICE)
    made.token += place % 5
    made.log_prob -= place
    made.position += 10 + place
    made.left += place % 3
    made.live |= made.left > 0
    made.live[slots] = False
    made.key += torch.tensor([signed(stream("key", number)) for number in range(slots + 1)], device=DEVICE)
    made.drawn += place % 7
    made.temperature += torch.tensor([0.0, 1.0, 0.3, 2.0], device=DEVICE)[place % 4]
    return made


def assert_equal_states(mine: SlotState, theirs: SlotState) -> None:
    """Of all slots but the spare one, which keeps whatever was written last."""
    expected = theirs.copy()
    for name, held in mine.copy().items():
        torch.testing.assert_close(held[:-1], expected[name][:-1], atol=1e-5, rtol=1e-5)


def test_hand_out() -> None:
    slots = 300
    rows = torch.tensor([*range(1, 299), *[slots] * 22], device=DEVICE)
    ends, cursor = torch.tensor([3, 4], device=DEVICE), torch.tensor([2], device=DEVICE)
    found = []
    for kernels in (triton_kernels, plain_kernels):
        held = state(slots)
        history = torch.full((4, slots + 1), -1, device=DEVICE)
        told = torch.zeros(4, slots + 1, device=DEVICE)
        encoded = kernels.hand_out(held, rows, ends, cursor, history, told)
        found.append((held, history, told, *encoded))
    (mine, *others), (theirs, *expected) = found
    assert_equal_states(mine, theirs)
    assert all(torch.equal(one, other) for one, other in zip(others, expected, strict=True))
    going = expected[-1]
    assert 0 < going.sum() < (expected[0] >= 0).sum() < len(rows), "some go on, some end, some had ended"
    assert (expected[3][~going] == slots).all()


@pytest.mark.parametrize("words", [300, 5000])
def test_draw(words: int) -> None:
    slots = 70
    logits = numbers(66, words) * 3
    targets = torch.tensor([*range(64), slots, slots], device=DEVICE)
    mine, theirs = state(slots), state(slots)
    triton_kernels.draw(logits, mine, targets)
    plain_kernels.draw(logits, theirs, targets)
    assert_equal_states(mine, theirs)
    warm = mine.temperature[:64] > 0
    assert len(set(mine.token[:64].tolist())) > 20
    assert mine.log_prob[:64][warm].min() < -3 and not mine.log_prob[:64][~warm].any()
    before = state(slots)
    assert torch.equal(mine.drawn[:64], before.drawn[:64] + 1), "a stream goes on with its next number"
    assert torch.equal(mine.token[64:slots], before.token[64:slots]), "nobody else's token changes"


def paged(monkeypatch: pytest.MonkeyPatch, key_heads: int, size: int, dtype: torch.dtype) -> PagedCache:
    """Short pages in no order, and nothing but what is not a number in them."""
    monkeypatch.setattr(paged_cache, "PAGE", 64)
    cache = PagedCache(5, 192, 3, key_heads, size, dtype, torch.device(DEVICE))
    for slot, length in ((2, 192), (0, 65), (3, 1), (4, 192), (0, 192), (3, 192), (1, 192)):
        cache.reserve({slot: length})
    for page in cache.stock:
        page.fill_(torch.nan)
    return cache


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("adapters", ADAPTERS)
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize(("tokens", "pieces"), [(1, 4), (32, 3)])
def test_turn_store_and_attend(
    dtype: torch.dtype, adapters: str, normed: bool, tokens: int, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads, key_heads, size, capacity, layer = 6, 2, 32, 192, 1
    widths = [heads * size, key_heads * size, key_heads * size]
    mixed = product(numbers(pieces * tokens, sum(widths), dtype=dtype), widths, (8, 3, 5), adapters)
    angles = torch.arange(capacity, device=DEVICE)[:, None] * torch.logspace(0, -3, size // 2, device=DEVICE)
    turns = (angles.cos(), angles.sin())
    slots = torch.tensor([3, 0, 4, 1][:pieces], device=DEVICE)
    starts = torch.tensor([0, 110, 17, 127][:pieces], device=DEVICE)
    live = torch.tensor([True, True, True, False][:pieces], device=DEVICE)
    positions = (starts[:, None] + torch.arange(tokens, device=DEVICE)).flatten()
    norms = (numbers(size, dtype=dtype), numbers(size, dtype=dtype) + 1, 1e-6) if normed else None
    results = []
    for kernels in (triton_kernels, plain_kernels):
        cache = paged(monkeypatch, key_heads, size, dtype)
        told = numbers(3, 2, capacity, key_heads, size, dtype=dtype)
        for slot, start in zip(slots.tolist(), starts.tolist(), strict=True):
            cache.copy_in(slot, told[:, :, :start].split(64, dim=2))
        queries = kernels.turn_and_store(mixed, turns, positions, slots, norms, cache, layer, heads)
        seen = kernels.attend(queries, cache, layer, starts, slots, live, size**-0.5)
        seen = seen.view(pieces, tokens, heads, size)[live]
        assert seen.isfinite().all(), "something was read that nobody wrote"
        results.append((queries, torch.stack(cache.stock), seen))
    # An adapter's share is rounded once here and twice there, and then turned.
    close = CLOSE[dtype] * (1 if adapters == "none" else 2)
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, atol=close, rtol=close, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_pages_lie_changes_no_bit(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    heads, key_heads, size, length = 6, 2, 32, 150
    told, queries = numbers(3, 2, length, key_heads, size, dtype=dtype), numbers(1, heads, size, dtype=dtype)
    start, live = torch.tensor([length - 1], device=DEVICE), torch.tensor([True], device=DEVICE)
    cache = paged(monkeypatch, key_heads, size, dtype)
    seen = []
    for slot in range(5):
        cache.copy_in(slot, told.split(64, dim=2))
        own = torch.tensor([slot], device=DEVICE)
        seen.append(triton_kernels.attend(queries, cache, 2, start, own, live, size**-0.5))
    assert all(torch.equal(seen[0], other) for other in seen[1:])
    assert cache.table[0, :3].diff().tolist() != cache.table[2, :3].diff().tolist(), "their pages must lie differently"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("parts", [2, 8])
def test_keys_may_be_looked_at_in_parts(dtype: torch.dtype, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of conversations shorter than a part, of several parts, and with a last part that has nothing; one is not live."""
    heads, key_heads, size = 6, 2, 32
    told, queries = numbers(3, 2, 192, key_heads, size, dtype=dtype), numbers(5, heads, size, dtype=dtype)
    starts = torch.tensor([0, 63, 64, 130, 191], device=DEVICE)
    live = torch.tensor([True, True, True, False, True], device=DEVICE)
    slots = torch.arange(5, device=DEVICE)
    cache = paged(monkeypatch, key_heads, size, dtype)
    for slot, start in enumerate(starts.tolist()):
        cache.copy_in(slot, told[:, :, : start + 1].split(64, dim=2))
    seen = []
    for most in (1, parts):
        monkeypatch.setattr(triton_attention, "MOST_PARTS", most)
        seen.append(triton_kernels.attend(queries, cache, 2, starts, slots, live, size**-0.5)[live])
    assert seen[1].isfinite().all(), "something was read that nobody wrote"
    torch.testing.assert_close(*seen, atol=CLOSE[dtype], rtol=CLOSE[dtype])


def test_few_conversations_are_looked_at_in_many_parts() -> None:
    assert [triton_attention._parts(programs) for programs in (1, 96, 192, 384, 1536)] == [8, 8, 4, 2, 1]
