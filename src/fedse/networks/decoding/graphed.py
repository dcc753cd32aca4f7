"""Decoding on a GPU without waiting for Python: whole steps are recorded as CUDA graphs and draw their tokens themselves.

The state of every slot (next token, position, how long its reply may still become, its stream of random numbers) lies on
the device. The host launches a few steps, reads which tokens came out, launches the next, and lets the worlds answer some of
the complete replies while these run. There are graphs for several numbers of rows, so that a step computes few more than
there are replies.

New text is encoded on a stream of its own, beside the steps: neither fills the card. The two meet in no slot. Steps go on
with replies that were under way at their launch, and text belongs to slots whose last reply the host has read to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch

from fedse.networks.decoding.decoder import Drawn, Due
from fedse.networks.decoding.graph_recorder import GraphRecorder
from fedse.networks.decoding.graphed_network import GraphedNetwork
from fedse.networks.decoding.paged_cache import PagedCache
from fedse.networks.decoding.replies_under_way import RepliesUnderWay, Slots
from fedse.networks.decoding.slot_state import SlotState, signed
from fedse.stopwatch import during

PIECE = 16
"""Tokens of a piece: new text is encoded in pieces of this length, the last one filled up."""
PASSES = (32, 64, 96, 128, 192, 256)
"""Pieces in a pass: fixed shapes, because a graph has one."""
PARTS = 8
"""Steps are recorded for so many even parts of the slots, and for half of the smallest."""
AHEAD = 2
"""Steps that are launched before the host looks at the tokens."""
TOLD = 48
"""Complete replies that the host is told at once, while the next steps run: with more it would leave the card idle."""
SAT_OUT = 1
"""Launches without a reply whose text is being encoded, so that steps seldom wait for it."""
_MOST_SHARE = 0.45
"""A network may fill this share of the card: its matrices are there a second time, joined."""


@dataclass
class _Pass:
    """The fixed inputs of a recorded pass over new text."""

    ids: torch.Tensor
    slots: torch.Tensor
    starts: torch.Tensor
    last: torch.Tensor
    """Index of a piece's last real token."""
    target: torch.Tensor
    """Slot whose reply begins after this piece; the spare one if none does."""
    live: torch.Tensor
    logits: torch.Tensor
    run: Callable[[], None]


@dataclass(frozen=True)
class _Launch:
    """Some steps that were queued."""

    number: int
    slots: Slots
    """Whose replies they go on with."""
    done: Any
    """The event after them, on a GPU."""


_Piece = tuple[int, int, Sequence[int]]
"""A slot, where in its conversation the piece begins, and its tokens."""


class GraphedDecoder:
    """All slots in one batch, on one GPU."""

    most_adapters = 8

    def __init__(self, model: Any, slots: int, kernels: Any = None) -> None:
        if kernels is None:
            from fedse.networks.decoding import triton_kernels as kernels
        self._model = model
        self._kernels = kernels
        self._network = GraphedNetwork(model.network, kernels)
        self._device = self._network.device
        self._slots = slots
        self._end_ids = torch.tensor(sorted(model.chat.end_ids), device=self._device)
        self._replies = RepliesUnderWay(slots, sorted(model.chat.end_ids))
        self._history = torch.full((AHEAD, slots + 1), -1, device=self._device)
        self._read = self._history.cpu().pin_memory() if self._on_gpu else self._history
        self._log_probs = torch.zeros(AHEAD, slots + 1, dtype=torch.float32, device=self._device)
        self._read_log_probs = self._log_probs.cpu().pin_memory() if self._on_gpu else self._log_probs
        self._cursor = torch.zeros(1, dtype=torch.long, device=self._device)
        self._state = SlotState.of(slots, self._device)
        self._sizes = sorted({-(-slots * part // (2 * PARTS)) for part in (1, *range(2, 2 * PARTS + 1, 2))})
        self._rows = {size: torch.full((size,), slots, device=self._device) for size in self._sizes}
        """The slots whose replies a step goes on with, by the number of its rows; the spare one where there are fewer."""
        network, longest = self._network, model.context + PIECE
        self._cache = PagedCache(
            slots, longest, len(network.layers), network.key_heads, network.head_size, network.dtype, network.device
        )
        self._turns = network.turns(longest)
        self._new_text = torch.cuda.Stream() if self._on_gpu else None  # type: ignore[no-untyped-call]
        self._of_passes, self._of_steps = GraphRecorder(), GraphRecorder(priority=-1)
        self._ready = kernels.make_ready(self._device) if self._on_gpu else None
        self._drop_graphs()
        self._forget()
        self._in_order()

    @property
    def _on_gpu(self) -> bool:
        return bool(self._device.type == "cuda")

    @staticmethod
    def suits(network: Any) -> bool:
        """One NVIDIA GPU with Triton, a network that is known in every part, and room for its matrices twice."""
        parameters = list(network.parameters())
        if any(parameter.device != parameters[0].device for parameter in parameters):
            return False
        if parameters[0].device.type != "cuda" or network.config._attn_implementation != "sdpa":
            return False
        try:
            import triton  # noqa: F401
        except ImportError:
            return False
        weights = {p.dtype for p in parameters if not p.requires_grad}
        card = torch.cuda.get_device_properties(parameters[0].device).total_memory
        return (
            weights in ({torch.bfloat16}, {torch.float32})
            and sum(parameter.nbytes for parameter in parameters) <= _MOST_SHARE * card
            and GraphedNetwork.knows(network)
        )

    def _drop_graphs(self) -> None:
        self._passes: dict[int, _Pass] = {}
        self._steps: dict[int, Callable[[], None]] = {}
        self._of_passes.forget()
        self._of_steps.forget()

    def _forget(self) -> None:
        self._state.live.zero_()
        self._state.adapter.zero_()
        self._cache.release_all()
        self._replies.forget()
        self._launches = 0
        """So far; each is known by its number."""
        self._unread: _Launch | None = None
        self._encoded = deque[tuple[int, Any]]()
        """For a launch, after what on the other stream it comes."""

    @property
    def under_way(self) -> list[int]:
        """Slots whose replies are not told yet."""
        return self._replies.untold

    def load(self) -> None:
        self.hold(0, of=1)

    def _beside(self) -> AbstractContextManager[object]:
        """What is queued inside runs beside the steps that are under way."""
        return nullcontext() if self._new_text is None else torch.cuda.stream(self._new_text)

    def _in_order(self) -> None:
        """What is queued from here on, beside the steps or not, comes after all that was queued before."""
        if self._new_text is not None:
            steps = torch.cuda.current_stream()
            steps.wait_stream(self._new_text)
            self._new_text.wait_stream(steps)

    def hold(self, adapter: int, of: int) -> None:
        self._in_order()
        # One, or as many as there can be: a product's rounding must not depend on how many were held before.
        blocks = 1 if of == 1 else self.most_adapters
        if self._network.outgrown() or self._network.adapters != blocks:
            self._drop_graphs()
            del self._network  # Its matrices leave the memory before others come.
            self._network = GraphedNetwork(self._model.network, self._kernels, blocks)
        self._network.load(adapter)
        self._forget()
        self._in_order()

    def assign(self, slot: int, adapter: int) -> None:
        with self._beside():
            self._state.adapter[slot] = adapter

    def close(self, slot: int) -> None:
        if self._replies.give_up(slot):
            # Steps that are under way write into its pages.
            self._in_order()
        with self._beside():
            self._cache.release(slot)

    def copy_out(self, slot: int, length: int) -> Sequence[torch.Tensor]:
        with self._beside():
            return self._cache.copy_out(slot, length)

    def copy_in(self, slot: int, content: Sequence[torch.Tensor]) -> None:
        with self._beside():
            self._cache.copy_in(slot, content)

    def encode(self, slot: int, ids: Sequence[int]) -> torch.Tensor:
        # Whoever asked before may still be reading the logits, and whoever asks now reads them at once.
        self._in_order()
        with self._beside():
            self._cache.reserve({slot: _filled_up(ids)})
            for chosen in _in_passes(_pieces(slot, 0, ids)):
                recorded = self._run_pass(chosen, [self._slots] * len(chosen))
        self._in_order()
        return recorded.logits[len(chosen) - 1]

    def begin(self, due: Sequence[Due]) -> None:
        with self._beside():
            self._begin(due)

    def _begin(self, due: Sequence[Due]) -> None:
        self._cache.reserve(
            {item.slot: item.start + max(_filled_up(item.ids), len(item.ids) + item.most) for item in due}
        )
        self._set_state(due)
        pieces, targets = [], []
        for item in due:
            own = _pieces(item.slot, item.start, item.ids)
            pieces += own
            targets += [self._slots] * (len(own) - 1) + [item.slot]
        for chosen in _in_passes(pieces):
            self._run_pass(chosen, targets[: len(chosen)])
            del targets[: len(chosen)]
        launch = self._launches + 1 + SAT_OUT
        self._replies.begin(due, launch)
        if self._new_text is not None:
            self._encoded.append((launch, self._new_text.record_event()))

    def advance(self) -> Mapping[int, Drawn]:
        """Whole replies, at most `TOLD` of them."""
        if not self._replies.untold:
            raise ValueError("no reply is due")
        while True:
            if self._unread is None and self._replies.speaking:
                self._launch()
            if self._unread is not None:
                self._read_tokens(self._unread)
            if told := self._replies.tell(TOLD):
                return told

    def _read_tokens(self, launch: _Launch) -> None:
        if self._on_gpu:
            launch.done.synchronize()
        with during("transfer"):
            # The next steps write into the same memory.
            tokens, log_probs = self._read.numpy().copy(), self._read_log_probs.numpy().copy()
        self._unread = None
        self._replies.read(launch.number, launch.slots, tokens, log_probs)
        if self._replies.speaking:
            # What runs from here on runs while the worlds answer.
            self._launch()

    def _launch(self) -> None:
        """Queue some steps and the copy of their tokens."""
        self._launches = max(self._launches + 1, self._replies.next_launch)
        slots = self._replies.of_launch(self._launches)
        size = next(size for size in self._sizes if size >= len(slots))
        step = self._step(size)
        while self._encoded and self._encoded[0][0] <= self._launches:
            torch.cuda.current_stream().wait_event(self._encoded.popleft()[1])
        rows = np.full(size, self._slots)
        rows[: len(slots)] = slots
        self._rows[size].copy_(torch.from_numpy(rows), non_blocking=True)
        self._cursor.zero_()
        self._history.fill_(-1)
        for _ in range(AHEAD):
            step()
        if self._on_gpu:
            self._read.copy_(self._history, non_blocking=True)
            self._read_log_probs.copy_(self._log_probs, non_blocking=True)
        done = torch.cuda.current_stream().record_event() if self._on_gpu else None
        self._unread = _Launch(self._launches, slots, done)

    def _step(self, size: int) -> Callable[[], None]:
        if size not in self._steps:
            with during("recording", whole=True):
                self._steps[size] = self._recorded(self._of_steps, lambda: self._decode_one(self._rows[size]))
        return self._steps[size]

    def _decode_one(self, rows: torch.Tensor) -> None:
        """The replies in these slots: hand out the token drawn last; unless the reply ends with it, encode it and draw the
        next."""
        state = self._state
        handed = self._kernels.hand_out(state, rows, self._end_ids, self._cursor, self._history, self._log_probs)
        token, slots, position, live = handed
        self._cursor += 1
        own = state.adapter[slots]
        hidden = self._network(token[:, None], slots, position, live, self._cache, self._turns, own)[:, 0]
        self._kernels.draw(self._network.logits(hidden, own), state, slots)

    def _encode_pieces(self, given: _Pass) -> None:
        own = self._state.adapter[given.slots]
        hidden = self._network(given.ids, given.slots, given.starts, given.live, self._cache, self._turns, own)
        rows = torch.arange(len(given.last), device=self._device)
        logits = self._network.logits(hidden[rows, given.last], own)
        given.logits.copy_(logits)
        self._kernels.draw(logits, self._state, given.target)

    def _set_state(self, due: Sequence[Due]) -> None:
        new = {
            "position": [item.start + len(item.ids) for item in due],
            "left": [item.most for item in due],
            "key": [signed(item.sampling.key) for item in due],
            "drawn": [item.drawn for item in due],
        }
        slots, *numbers = self._rows_of([item.slot for item in due], *new.values())
        for name, row in zip(new, numbers, strict=True):
            getattr(self._state, name).index_copy_(0, slots, row)
        temperatures = torch.tensor([item.sampling.temperature for item in due], dtype=torch.float64)
        self._state.temperature.index_copy_(0, slots, temperatures.to(self._device, non_blocking=True))
        self._state.live.index_fill_(0, slots, True)

    def _run_pass(self, pieces: Sequence[_Piece], targets: Sequence[int]) -> _Pass:
        size = _pass_for(len(pieces))
        recorded = self._pass(size)
        spare = self._slots
        empty = size - len(pieces)
        filled = [[*ids, *[0] * (PIECE - len(ids))] for *_, ids in pieces]
        recorded.ids.copy_(self._rows_of(*filled, *[[0] * PIECE] * empty))
        given = self._rows_of(
            [slot for slot, *_ in pieces] + [spare] * empty,
            [start for _, start, _ in pieces] + [0] * empty,
            [len(ids) - 1 for *_, ids in pieces] + [0] * empty,
            [*targets, *[spare] * empty],
            [1] * len(pieces) + [0] * empty,
        )
        held = (recorded.slots, recorded.starts, recorded.last, recorded.target, recorded.live)
        for tensor, row in zip(held, given, strict=True):
            tensor.copy_(row)
        recorded.run()
        return recorded

    def _pass(self, size: int) -> _Pass:
        if size not in self._passes:
            spare = torch.full((size,), self._slots, device=self._device)
            given = _Pass(
                ids=torch.zeros(size, PIECE, dtype=torch.long, device=self._device),
                slots=spare.clone(),
                starts=torch.zeros_like(spare),
                last=torch.zeros_like(spare),
                target=spare,
                live=torch.zeros(size, dtype=torch.bool, device=self._device),
                logits=torch.zeros(size, self._network.vocabulary, dtype=self._network.dtype, device=self._device),
                run=lambda: None,
            )
            with during("recording", whole=True):
                given.run = self._recorded(self._of_passes, lambda: self._encode_pieces(given))
            self._passes[size] = given
        return self._passes[size]

    def _recorded(self, recorder: GraphRecorder, work: Callable[[], None]) -> Callable[[], None]:
        """The same work as one CUDA graph. Recording and the run before it leave the state as it was, for which nothing else
        may be under way."""
        if self._ready is None:
            return work
        self._ready.join()
        torch.cuda.synchronize()
        kept, cursor, history = self._state.copy(), self._cursor.clone(), self._history.clone()
        self._state.live.zero_()
        self._cursor.zero_()
        replay = recorder.recorded(work)
        self._state.restore(kept)
        self._cursor.copy_(cursor)
        self._history.copy_(history)
        torch.cuda.synchronize()
        return replay

    def _rows_of(self, *rows: Sequence[int]) -> torch.Tensor:
        """Rows of whole numbers on the device. torch reads a list of lists six times as slowly as NumPy reads one list, and
        the GPU would wait for it."""
        with during("transfer"):
            numbers = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(rows[0]))
            return torch.from_numpy(numbers).view(len(rows), -1).to(self._device, non_blocking=True)


def _pieces(slot: int, start: int, ids: Sequence[int]) -> list[_Piece]:
    return [(slot, start + at, ids[at : at + PIECE]) for at in range(0, len(ids), PIECE)]


def _in_passes(pieces: Sequence[_Piece]) -> Iterator[Sequence[_Piece]]:
    return (pieces[at : at + PASSES[-1]] for at in range(0, len(pieces), PASSES[-1]))


def _pass_for(pieces: int) -> int:
    """The smallest that has room for so many."""
    return next(size for size in PASSES if size >= pieces)


def _filled_up(ids: Sequence[int]) -> int:
    """Tokens of a text's pieces: what fills up the last one is written as well."""
    return -(-len(ids) // PIECE) * PIECE
