"""Memory follows the tokens of open conversations, and where their pages lie makes no difference to what is said."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import plain_kernels
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from fedse.errors import BadInput, GpuFull
from fedse.models.tiny import Tiny
from fedse.networks.decoding import graphed, paged_cache
from fedse.networks.decoding.decoder import Due
from fedse.networks.decoding.graphed import GraphedDecoder
from fedse.networks.decoding.paged_cache import UNIT, PagedCache
from fedse.types import Sampling

KEPT_PER_TOKEN = 2 * 2 * 32 * 4
"""Bytes of keys and values of `tiny`: two layers, 32 wide."""


@pytest.fixture(scope="module")
def tiny() -> Tiny:
    return Tiny(width=32, layers=2, device="cpu", threads=1)


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged_cache, "PAGE", 16)


def small(slots: int = 4, longest: int = 100) -> PagedCache:
    return PagedCache(slots, longest, 2, 3, 16, torch.float32, torch.device("cpu"))


class Asked(TorchDispatchMode):
    """The most bytes of tensors that were there at a time, among those made here."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        given = {item.untyped_storage()._cdata for item in args if isinstance(item, torch.Tensor)}
        for item in made if isinstance(made, tuple | list) else [made]:
            if isinstance(item, torch.Tensor) and (storage := item.untyped_storage())._cdata not in given:
                self._alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self._alive = {key: held for key, held in self._alive.items() if not held[0].expired()}
        self.most = max(self.most, sum(size for _, size in self._alive.values()))
        return made


def spoken(decoder: GraphedDecoder, slots: Sequence[int]) -> dict[int, list[tuple[int, float]]]:
    """Tokens with their log-probabilities, of these replies, until they are complete."""
    said: dict[int, list[tuple[int, float]]] = {slot: [] for slot in slots}
    while any(slot in decoder.under_way for slot in slots):
        for slot, drawn in decoder.advance().items():
            if slot in said:
                said[slot] += zip(drawn.tokens, drawn.log_probs, strict=True)
    return said


def endless(model: Any, slots: int, kernels: Any) -> GraphedDecoder:
    """A decoder whose replies all come to their longest."""
    ends, model.chat.end_ids = model.chat.end_ids, frozenset({-1})
    try:
        return GraphedDecoder(model, slots, kernels)
    finally:
        model.chat.end_ids = ends


def due(slot: int, length: int, most: int, start: int = 0) -> Due:
    ids = [(7 * place + 13 * slot) % 200 + 20 for place in range(start, start + length)]
    return Due(slot, start, ids, Sampling(slot + 1, 1.0), 0, most)


@torch.inference_mode()
def test_a_long_conversation_takes_memory_for_itself_alone(tiny: Any) -> None:
    slots, long = 96, 1000
    # What attention finds does not matter here, and every token of it would be counted one by one.
    blind = SimpleNamespace(**{**vars(plain_kernels), "attend": lambda queries, *_: torch.zeros_like(queries)})
    decoder = GraphedDecoder(tiny, slots, blind)
    decoder.begin([due(slot, 20, 4) for slot in range(4)])
    spoken(decoder, range(4))
    with Asked() as asked:
        decoder.begin([due(5, long, 4)])
        spoken(decoder, [5])
    for_all = slots * long * KEPT_PER_TOKEN
    assert asked.most > long * KEPT_PER_TOKEN, "nothing was counted"
    assert asked.most < for_all / 5
    assert decoder._cache.nbytes < for_all / 5


@torch.inference_mode()
def test_conversations_one_after_another_take_the_same_pages(tiny: Any, short_pages: None) -> None:
    decoder = GraphedDecoder(tiny, 3, plain_kernels)
    for _ in range(3):
        for slot in (2, 0):
            decoder.begin([due(slot, 60, 5)])
            spoken(decoder, [slot])
        assert decoder._cache.tokens_taken == 2 * 80, "65 tokens each, in pages of 16"
        assert len(decoder._cache.stock) == 10
        for slot in (2, 0):
            decoder.close(slot)
        assert decoder._cache.tokens_taken == 0


@torch.inference_mode()
def test_what_outgrows_its_pages_says_the_same_as_what_never_had_to(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, log-probabilities included: turn by turn in pages of 16, and in one page from the beginning. What was not
    written is not a number, so that whoever read it would say so."""
    turns = {0: (50, 10), 1: (9, 4), 2: (33, 12)}
    said = []
    grow = PagedCache._grow

    def poisoned(self: PagedCache, lacking: int) -> None:
        before = len(self.stock)
        grow(self, lacking)
        for page in (self.base, *self.stock[before:]):
            page.fill_(torch.nan)

    monkeypatch.setattr(PagedCache, "_grow", poisoned)
    for page in (16, 2048):
        monkeypatch.setattr(paged_cache, "PAGE", page)
        decoder = endless(tiny, 3, plain_kernels)
        replies = []
        for turn in range(3):
            # One more token each turn than the reply has left in the cache: its last one was not fed back.
            decoder.begin([due(slot, ids, most, turn * (ids + most - 1)) for slot, (ids, most) in turns.items()])
            replies.append(spoken(decoder, list(turns)))
        assert [len(reply[0]) for reply in replies] == [10] * 3
        assert all(math.isfinite(chance) for reply in replies for own in reply.values() for _, chance in own)
        said.append(replies)
        assert len(decoder._cache.stock) == (24 if page == 16 else 3)
    assert said[0] == said[1]


@torch.inference_mode()
def test_a_conversation_that_is_closed_while_it_speaks_harms_no_other(tiny: Any, short_pages: None) -> None:
    alone = endless(tiny, 2, plain_kernels)
    alone.begin([due(1, 40, 30)])
    expected = spoken(alone, [1])
    decoder = endless(tiny, 2, plain_kernels)
    decoder.begin([due(0, 40, 60), due(1, 9, 2)])
    assert list(decoder.advance()) == [1]
    held = set(decoder._cache._taken[0])
    assert decoder._unread is not None and decoder._unread.slots.tolist() == [0], "it must be speaking still"
    for slot in (1, 0):
        decoder.close(slot)
    decoder.begin([due(1, 40, 30)])
    assert held & set(decoder._cache._taken[1]), "nothing was taken over"
    assert decoder.under_way == [1]
    mine, alone_said = spoken(decoder, [1])[1], expected[1]
    assert [token for token, _ in mine] == [token for token, _ in alone_said]
    # A step of two rows may round the last bits otherwise than one of a single row.
    assert [chance for _, chance in mine] == pytest.approx([chance for _, chance in alone_said], abs=1e-5)


def test_the_table_says_where_pages_are(short_pages: None) -> None:
    cache = small()
    cache.reserve({1: 33, 3: 16})
    cache.reserve({1: 20, 0: 1})
    cache.reserve({1: 49})
    taken = [[cache.stock[number] for number in own] for own in cache._taken]
    assert [len(own) for own in taken] == [1, 4, 0, 1]
    assert len({page.data_ptr() for own in taken for page in own}) == 6, "each page has one owner"
    for slot, own in enumerate(taken):
        found = cache.base.data_ptr() + cache.table[slot] * UNIT * cache.base.dtype.itemsize
        unowned = [cache.base.data_ptr()] * (cache.table.shape[1] - len(own))
        assert found.tolist() == [page.data_ptr() for page in own] + unowned
    address = cache.table.data_ptr()
    cache.release(1)
    assert not cache.table[1].any() and cache.table[3].any()
    cache.release_all()
    assert not cache.table.any() and cache.tokens_taken == 0
    assert cache.table.data_ptr() == address, "recorded graphs know it"


def test_what_is_copied_out_is_what_was_copied_in(short_pages: None) -> None:
    cache = small()
    told = torch.arange(2 * 2 * 40 * 3 * 16, dtype=torch.float32).view(2, 2, 40, 3, 16)
    cache.reserve({0: 5})
    cache.copy_in(2, told.split(16, dim=2))
    cache.release(0)
    for length in (1, 16, 17, 40):
        copied = cache.copy_out(2, length)
        assert torch.equal(torch.cat(list(copied), dim=2), told[:, :, :length])
    cache.copy_in(0, cache.copy_out(2, 40))
    for page in (cache.stock[number] for number in cache._taken[2]):
        page.zero_()
    assert torch.equal(torch.cat(list(cache.copy_out(0, 40)), dim=2), told)


def test_more_than_the_longest_is_refused(short_pages: None) -> None:
    cache = small(longest=100)
    cache.reserve({0: 100})
    with pytest.raises(ValueError, match="of 101 tokens, where 100"):
        cache.reserve({1: 101})


def gpu_with(pages: int, page: torch.Tensor) -> Callable[..., torch.Tensor]:
    """Memory for so many pages at a time."""
    empty = torch.empty

    def asked(shape: Sequence[int], **given: Any) -> torch.Tensor:
        if shape[0] > pages:
            raise torch.OutOfMemoryError(f"{shape[0] * page.nbytes} bytes are too many")
        return empty(shape, **given)

    return asked


def test_a_full_gpu_gives_what_is_needed_or_says_what_was(short_pages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = small(slots=32)
    monkeypatch.setattr(torch, "empty", gpu_with(3, cache.base))
    cache.reserve({0: 48})
    assert len(cache.stock) == 3, "where there is no room for a generous stock, what is lacking suffices"
    for total, kind in ((2**40, GpuFull), (20, BadInput)):
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, t=total: SimpleNamespace(total_memory=t))
        with pytest.raises(kind, match=r"policy.slots: 32 conversations need 0.0 GiB .* of 112 tokens"):
            cache.reserve({0: 49, 1: 48})
    assert cache.tokens_taken == 48, "a conversation has what it had"
    cache.release(0)
    cache.reserve({1: 48})
    assert len(cache.stock) == 3


@pytest.mark.gpu
@torch.inference_mode()
def test_on_a_gpu_a_stock_that_grows_records_nothing_again_and_moves_nothing() -> None:
    """As above, with recorded steps: what was recorded before the stock grew says the same as what was recorded after."""
    from fedse.networks.decoding import triton_kernels

    model = Tiny(device="cuda", dtype="bfloat16")
    slots, long = 192, 1000

    def made() -> GraphedDecoder:
        return endless(model, slots, triton_kernels)

    grown, fresh = made(), made()
    for pieces in graphed.PASSES:
        grown._pass(pieces)
    for rows in grown._sizes:
        grown._step(rows)
    grown.begin([due(slot, 20, 4) for slot in range(64)])
    spoken(grown, range(64))
    for slot in range(0, 64, 16):
        grown.close(slot)  # What is free afterwards lies here and there.
    recorded = {**grown._passes}, {**grown._steps}
    addresses = [page.data_ptr() for page in grown._cache.stock]
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for decoder in (grown, fresh):
        replies = {}
        for turn in range(3):
            both = [due(slot, 300, 20, turn * 319) for slot in (70, 71)] + [due(72, long, 20)][turn:]
            decoder.begin(both)
            replies[turn] = spoken(decoder, [item.slot for item in both])
        if decoder is grown:
            torch.cuda.synchronize()
            most = torch.cuda.max_memory_allocated() - before
            said = replies
    assert said == replies
    for now, held in zip((grown._passes, grown._steps), recorded, strict=True):
        assert now.keys() == held.keys() and all(now[size] is held[size] for size in held), "recorded again"
    assert [page.data_ptr() for page in grown._cache.stock[: len(addresses)]] == addresses
    kept = grown._cache.base.nbytes / paged_cache.PAGE
    assert most < slots * long * kept / 5
    assert len(grown._cache.stock) > len(addresses)
