"""The decoder for GPUs, run on the CPU with plain kernels: it must say what the stepwise one says."""

from __future__ import annotations

from typing import Any

import plain_kernels
import pytest
import torch

from fedse.models.tiny import Tiny
from fedse.networks.decoding import graphed
from fedse.networks.decoding.decoder import Decoder, Due
from fedse.networks.decoding.graphed import GraphedDecoder
from fedse.networks.decoding.network_forward import NetworkForward
from fedse.networks.decoding.probe import probe_gap
from fedse.networks.decoding.product import Product
from fedse.networks.decoding.slot_state import signed
from fedse.networks.decoding.stepwise import StepwiseDecoder
from fedse.policies.transformer import TransformerPolicy
from fedse.rollouts.player import Player
from fedse.seeds import generator, stream, uniform
from fedse.types import Adapter, Episode, Purpose, Sampling, Trajectory
from fedse.worlds.maze import Maze


@pytest.fixture(scope="module")
def tiny() -> Tiny:
    return Tiny(width=32, layers=2, device="cpu", threads=1)


class Graphed(TransformerPolicy):
    kernels: Any = plain_kernels

    def make_decoder(self) -> Decoder:
        return GraphedDecoder(self.model, self.slots, self.kernels)


class Stepwise(TransformerPolicy):
    def make_decoder(self) -> Decoder:
        return StepwiseDecoder(self.model, self.slots, NetworkForward(self.model.network))


def make_maze() -> Maze:
    return Maze(rules="brief", observation_length="brief", turn_limit=4)


def stirred(model: Any) -> Adapter:
    start = model.initial_adapter(3)
    noise = {name: generator("stirred", name).standard_normal(held.shape) for name, held in start.tensors.items()}
    return Adapter(
        {name: (held + 0.05 * noise[name]).astype("float32") for name, held in start.tensors.items()}, start.config
    )


def played(policy: TransformerPolicy, adapter: Adapter, tasks: int) -> list[Trajectory]:
    policy.load(adapter)
    episodes = [
        Episode("c", "maze", make_maze, task, Purpose.EXPLORE, 1, 0, Sampling(stream(task.id), temperature))
        for task in make_maze().tasks("train")[:tasks]
        for temperature in (0.0, 1.0)
    ]
    return Player(policy, policy.model.chat, policy.model.context).play(episodes, "adapter")


def assert_log_probabilities_agree(mine: list[Trajectory], usual: list[Trajectory]) -> None:
    """Of those episodes that are the same; every other one is greedy and has none."""
    same = [pair for pair in zip(mine, usual, strict=True) if pair[0] == pair[1]]
    for one, other in same:
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)
    assert {len(one.log_probs) == one.agent_tokens > 0 for one, _ in same[1::2]} == {True}
    assert not any(one.log_probs for one, _ in same[::2])


@pytest.mark.slow
def test_episodes_are_those_of_the_stepwise_decoder(tiny: Any) -> None:
    """More episodes than slots, so that slots are taken again; replies end early, late and at their longest."""
    adapter = stirred(tiny)
    usual = played(TransformerPolicy(tiny, slots=5, reply_tokens=10), adapter, 4)
    graphed = Graphed(tiny, slots=5, reply_tokens=10)
    mine = played(graphed, adapter, 4)
    assert mine == usual
    assert len({trajectory.token_ids for trajectory in usual}) > len(usual) // 2
    assert_log_probabilities_agree(mine, usual)


@pytest.mark.slow
def test_another_adapter_is_seen_without_building_anew(tiny: Any) -> None:
    graphed = Graphed(tiny, slots=3, reply_tokens=6)
    first = played(graphed, tiny.initial_adapter(0), 2)
    assert probe_gap(graphed.model, graphed._decoder) < 1e-4
    other = played(graphed, stirred(tiny), 2)
    assert probe_gap(graphed.model, graphed._decoder) < 1e-4
    assert first != other
    assert played(graphed, tiny.initial_adapter(0), 2) == first


def test_many_ranks_are_added_by_a_product_of_their_own(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    left_to_kernels: list[bool] = []
    silu_times = plain_kernels.silu_times

    def watched(product: Product) -> torch.Tensor:
        left_to_kernels.append(product.added is not None)
        return silu_times(product)

    monkeypatch.setattr("fedse.networks.decoding.graphed_network._FEW_RANKS", tiny.options.lora.rank - 1)
    monkeypatch.setattr(plain_kernels, "silu_times", watched)
    adapter = stirred(tiny)
    assert played(Graphed(tiny, slots=3, reply_tokens=4), adapter, 1) == played(
        TransformerPolicy(tiny, slots=3, reply_tokens=4), adapter, 1
    )
    assert left_to_kernels and not any(left_to_kernels)


@pytest.mark.slow
def test_a_slot_grows_with_its_conversation(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedse.networks.decoding.paged_cache.PAGE", 64)
    adapter = stirred(tiny)
    usual = played(TransformerPolicy(tiny, slots=3, reply_tokens=6), adapter, 2)
    graphed = Graphed(tiny, slots=3, reply_tokens=6)
    assert played(graphed, adapter, 2) == usual
    assert len(graphed._decoder._cache.stock) > 3, "some conversation must have had a second page"  # type: ignore[attr-defined]


@torch.inference_mode()
def test_whole_replies_are_told_a_few_at_a_time(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphed, "TOLD", 2)
    decoder = GraphedDecoder(tiny, 5, plain_kernels)
    decoder.begin([Due(slot, 0, [20 + slot] * 9, Sampling(slot, 1.0), 0, 1) for slot in range(5)])
    told = [decoder.advance() for _ in range(3)]
    assert [list(item) for item in told] == [[0, 1], [2, 3], [4]]
    assert {len(drawn.tokens) for item in told for drawn in item.values()} == {1}
    with pytest.raises(ValueError, match="no reply is due"):
        decoder.advance()


@torch.inference_mode()
def test_a_reply_sits_out_the_launch_before_which_its_text_may_not_be_encoded(tiny: Any) -> None:
    ends, tiny.chat.end_ids = tiny.chat.end_ids, frozenset({-1})
    decoder = GraphedDecoder(tiny, 3, plain_kernels)
    tiny.chat.end_ids = ends
    decoder.begin([Due(0, 0, [20] * 9, Sampling(0, 1.0), 0, 40), Due(1, 0, [21] * 9, Sampling(1, 1.0), 0, 2)])
    assert list(decoder.advance()) == [1]
    decoder.begin([Due(2, 0, [22] * 9, Sampling(2, 1.0), 0, 2)])
    launches: list[list[int]] = []
    launch = decoder._launch

    def watched() -> None:
        launch()
        assert decoder._unread is not None
        launches.append(decoder._unread.slots.tolist())

    decoder._launch = watched  # type: ignore[method-assign]
    assert list(decoder.advance()) == [2]
    assert launches == [[0], [0, 2], [0]], "one went out while slot 1 was told, one sits out"


@torch.inference_mode()
def test_a_slot_that_is_closed_while_it_speaks_waits_for_the_steps(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = GraphedDecoder(tiny, 2, plain_kernels)
    ordered: list[list[int]] = []
    monkeypatch.setattr(decoder, "_in_order", lambda: ordered.append(decoder._cache._taken[0].copy()))
    decoder.begin([Due(0, 0, [20] * 9, Sampling(0, 1.0), 0, 40), Due(1, 0, [21] * 9, Sampling(1, 1.0), 0, 1)])
    assert list(decoder.advance()) == [1]
    decoder.close(1)
    assert not ordered
    decoder.close(0)
    [pages] = ordered
    assert pages, "they must not be free before"


def test_random_numbers_of_the_plain_kernels_are_those_of_seeds() -> None:
    keys = [0, 1, 2**63, 2**64 - 1, stream("any", 1)]
    indices = [0, 1, 7, 100_000, 3]
    drawn = plain_kernels.uniform_of(torch.tensor([signed(key) for key in keys]), torch.tensor(indices))
    assert drawn.tolist() == [uniform(key, index) for key, index in zip(keys, indices, strict=True)]


def test_a_cpu_keeps_the_stepwise_decoder(tiny: Any) -> None:
    assert not GraphedDecoder.suits(tiny.network)


@pytest.mark.gpu
def test_on_a_gpu_episodes_are_those_of_the_stepwise_decoder() -> None:
    """In float32 the two differ in the last bits only, which turns a draw now and then."""
    from fedse.networks.decoding import triton_kernels

    class OnGpu(Graphed):
        kernels = triton_kernels

    model = Tiny(device="cuda", dtype="float32")
    adapter = stirred(model)
    graphed = OnGpu(model, slots=5, reply_tokens=10)
    mine = played(graphed, adapter, 12)
    assert probe_gap(graphed.model, graphed._decoder) < 1e-4
    usual = played(Stepwise(model, slots=5, reply_tokens=10), adapter, 12)
    assert sum(one == other for one, other in zip(mine, usual, strict=True)) >= 22
    for one, other in zip(mine, usual, strict=True):
        if one == other:
            assert one.log_probs == pytest.approx(other.log_probs, abs=1e-3)
    again = played(OnGpu(model, slots=5, reply_tokens=10), adapter, 12)
    assert mine == again and [item.log_probs for item in mine] == [item.log_probs for item in again]
    assert [bool(item.log_probs) for item in mine] == [False, True] * 12


@pytest.mark.gpu
@torch.inference_mode()
def test_a_recording_between_steps_writes_where_it_may() -> None:
    from fedse.networks.decoding import triton_kernels

    decoder = GraphedDecoder(Tiny(device="cuda", dtype="bfloat16"), 64, triton_kernels)
    lines = {name: getattr(decoder, name) for name in ("_history", "_log_probs")}
    behind = {}
    for name, held in lines.items():
        whole = torch.full((2 * len(held), held.shape[1]), 7, dtype=held.dtype, device="cuda")
        setattr(decoder, name, whole[: len(held)])
        behind[name] = whole[len(held) :]
    decoder.begin([Due(0, 0, list(range(20, 40)), Sampling(1, 1.0), 0, 12)])
    decoder.advance()
    for rows in decoder._sizes:
        decoder._step(rows)
    torch.cuda.synchronize()
    assert all((held == 7).all() for held in behind.values())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_new_text_beside_the_steps_changes_nothing(dtype: str) -> None:
    """Which replies are under way in a step depends on what was said, never on what took how long."""
    from fedse.networks.decoding import triton_kernels

    class OnGpu(Graphed):
        kernels = triton_kernels

    model = Tiny(device="cuda", dtype=dtype, width=512, layers=8)
    adapter = stirred(model)
    beside = OnGpu(model, slots=96, reply_tokens=24)
    one_after_another = OnGpu(model, slots=96, reply_tokens=24)
    decoder: Any = one_after_another._decoder
    decoder._new_text = torch.cuda.current_stream()
    first, usual = played(beside, adapter, 150), played(one_after_another, adapter, 150)
    assert first == usual
    assert [item.log_probs for item in first] == [item.log_probs for item in usual]
    assert len({item.token_ids for item in usual}) > 150
    for _ in range(3):
        assert played(beside, adapter, 150) == usual
