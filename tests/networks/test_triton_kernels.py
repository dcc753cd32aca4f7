"""The kernels against plain PyTorch: on a GPU, or on a CPU with Triton's interpreter (TRITON_INTERPRET=1)."""

from __future__ import annotations

import os

import plain_kernels
import pytest
import torch

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from fedse.networks.decoding import paged_cache, triton_kernels  # noqa: E402
from fedse.networks.decoding.paged_cache import PagedCache  # noqa: E402

DTYPES = [torch.float32, torch.bfloat16] if DEVICE == "cuda" else [torch.float32]
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("added", [True, False])
def test_add_norm(dtype: torch.dtype, added: bool) -> None:
    hidden, more, weight = numbers(5, 72, dtype=dtype), numbers(5, 72, dtype=dtype) * 2, numbers(72, dtype=dtype)
    mine, theirs = hidden.clone(), hidden.clone()
    result = triton_kernels.add_norm(mine, more if added else None, weight, 1e-5)
    expected = plain_kernels.add_norm(theirs, more if added else None, weight, 1e-5)
    torch.testing.assert_close(result, expected, atol=CLOSE[dtype], rtol=CLOSE[dtype])
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_times(dtype: torch.dtype) -> None:
    both = numbers(3, 2 * 1100, dtype=dtype)
    for part in (both, numbers(3, 4 * 1100, dtype=dtype)[:, : 2 * 1100]):
        torch.testing.assert_close(
            triton_kernels.silu_times(part), plain_kernels.silu_times(part), atol=CLOSE[dtype], rtol=CLOSE[dtype]
        )


@pytest.mark.parametrize("words", [300, 5000])
def test_draw(words: int) -> None:
    logits = numbers(64, words) * 3
    draws = torch.rand(64, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(DEVICE)
    temperatures = torch.tensor([0.0, 1.0, 0.3, 2.0] * 16, dtype=torch.float64, device=DEVICE)
    mine, log_probs = triton_kernels.draw(logits, draws, temperatures)
    tokens, expected = plain_kernels.draw(logits, draws, temperatures)
    assert mine.tolist() == tokens.tolist()
    assert len(set(mine.tolist())) > 20
    torch.testing.assert_close(log_probs, expected, atol=1e-5, rtol=1e-5)
    assert log_probs[temperatures > 0].min() < -3 and not log_probs[temperatures == 0].any()


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
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize(("tokens", "pieces"), [(1, 4), (32, 3)])
def test_turn_store_and_attend(
    dtype: torch.dtype, normed: bool, tokens: int, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads, key_heads, size, capacity, layer = 6, 2, 32, 192, 1
    mixed = numbers(pieces * tokens, (heads + 2 * key_heads) * size, dtype=dtype)
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
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, atol=CLOSE[dtype], rtol=CLOSE[dtype], equal_nan=True)


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
