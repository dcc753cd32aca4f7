"""One pass for several adapters: each gets the loss, the gradient and the scores that it has alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from attention_in_one_call import InOneCall
from fedse.learners.imitation import Imitation
from fedse.models.tiny import Tiny
from fedse.networks.swap import read_adapter
from fedse.networks.training import joint_pass, packed_llama, parallel_passes
from fedse.networks.training.graph_sizes import Sizes
from fedse.networks.training.joint_pass import JointPass
from fedse.networks.training.packed_llama import PackedLlama, PackTensors
from fedse.networks.training.parallel_passes import ParallelPasses
from fedse.networks.training.pass_graphs import PassGraphs, unfilled
from fedse.networks.training.passes import Pass, RecordedPass, pass_for
from fedse.networks.training.token_packing import Example
from fedse.networks.training.wanted import Asking, GradientWanted, ScoresWanted
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Adapter, Lesson
from fedse.worlds.maze import Maze
from padded_reference import TARGETS, adapted, conversations, further_pairs
from small_llamas import NETWORKS, SHAPE

pytestmark = pytest.mark.filterwarnings("ignore:Model has .tie_word_embeddings:UserWarning")

OPENINGS = (9, 4, 0)
PARTS = [
    conversations(40, 25, 150, 12, opening=9, seed=1),
    conversations(60, 33, opening=4, seed=2),
    conversations(31, 70, 11, opening=9, seed=3),
]


class NotRecorded(PassGraphs):
    """What graphs compute, in their sizes, without recording it."""

    def __init__(self, llama: PackedLlama) -> None:
        self._llama = llama
        self._graphs, self._scoring, self._planned = {}, {}, []

    def _recorded(self, compute: Callable[[PackTensors], torch.Tensor], sizes: Sizes, *_: Any) -> Any:
        def found(numbers: Any, factors: Any = None) -> torch.Tensor:
            weights = np.zeros(sizes.predicting, dtype=np.float32) if factors is None else factors
            held = (torch.from_numpy(numbers), torch.from_numpy(weights))
            return compute(unfilled(*held, sizes, len(self._llama.vectors)))

        return SimpleNamespace(of=found)


def stirred(adapter: Adapter, seed: int) -> Adapter:
    """Frozen tensors too."""
    random = np.random.default_rng(seed)
    tensors = {
        name: (0.7 * tensor + 0.1 * random.standard_normal(tensor.shape)).astype(np.float32)
        for name, tensor in adapter.tensors.items()
    }
    return replace(adapter, tensors=tensors)


def passes_of(network: Any, adapter: Adapter, checkpointing: bool = False) -> list[Pass]:
    first = pass_for(network, checkpointing)
    passes = [first, *(first.beside() for _ in PARTS[1:])]
    for number, through in enumerate(passes):
        through.begin(stirred(adapter, number))
    return passes


def wanted_of(passes: Sequence[Pass]) -> dict[int, GradientWanted]:
    random = np.random.default_rng(7)
    factors: list[Any] = [random.random(sum(example.agent_tokens for example in part)) for part in PARTS]
    factors[1] = 0.25
    return {
        number: GradientWanted(through, part, opening, np.float32(factor) if number != 1 else factor)
        for number, (through, part, opening, factor) in enumerate(zip(passes, PARTS, OPENINGS, factors, strict=True))
    }


@dataclass(frozen=True)
class Alone:
    """What an adapter has that is passed through the network by itself."""

    loss: float
    gradient: torch.Tensor
    scores: Any


def alone(wanted: dict[int, GradientWanted]) -> dict[int, Alone]:
    found = {}
    for number, each in wanted.items():
        each.through.vector.gradient.fill_(1.0)
        loss, _ = each.alone()
        found[number] = Alone(loss.item(), each.through.vector.gradient.clone(), scores_of(each).alone())
    return found


def scores_of(each: GradientWanted) -> ScoresWanted:
    return ScoresWanted(each.through, each.part, each.opening)


def assert_same(
    joint: JointPass, wanted: dict[int, GradientWanted], passes: Sequence[Pass], usual: dict[int, Alone]
) -> None:
    for through in passes:
        through.vector.gradient.fill_(1.0)
    found = joint.add_gradients(wanted)
    assert found.keys() == wanted.keys()
    needed = {
        number: each.opening + sum(len(item) - each.opening for item in each.part) for number, each in wanted.items()
    }
    computed = sum(tokens for _, tokens in found.values())
    padded = isinstance(joint._graphs, NotRecorded)
    if padded:
        assert min(abs(computed - sizes.tokens) for sizes in joint._graphs._graphs) <= len(wanted), "but for rounding"
    assert all(found[number][1] >= tokens + padded for number, tokens in needed.items())
    assert padded or computed == sum(needed.values())
    for number in wanted:
        own, gradient = passes[number].vector.gradient, usual[number].gradient
        assert found[number][0].item() == pytest.approx(usual[number].loss, rel=1e-5)
        assert (own - gradient).norm() < 1e-5 * (gradient - 1).norm()
    for number, through in enumerate(passes):
        assert number in wanted or (through.vector.gradient == 1.0).all(), "who wants nothing gets nothing"
    told = joint.log_probabilities({number: scores_of(each) for number, each in wanted.items()})
    for number in wanted:
        np.testing.assert_allclose(told[number], usual[number].scores, atol=2e-5)


WAYS = ["loops", "in one call", "fixed sizes", "checkpointing", "matrices apart"]


@pytest.fixture
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param in ("in one call", "fixed sizes"):
        monkeypatch.setattr(packed_llama, "kernel_for", lambda device, dtype: InOneCall())
    if request.param == "fixed sizes":
        monkeypatch.setattr(joint_pass, "PassGraphs", NotRecorded)
        monkeypatch.setattr("fedse.networks.training.passes.PassGraphs", NotRecorded)
    if request.param == "in one call":
        never = property(lambda llama: False, lambda llama, _: None)
        monkeypatch.setattr(PackedLlama, "worth_recording", never, raising=False)
    if request.param == "matrices apart":
        monkeypatch.setattr(packed_llama, "_HIGHEST_RANK", 0)
    return str(request.param)


@pytest.mark.parametrize("way", WAYS, indirect=True)
@pytest.mark.parametrize("name", ["llama", "qwen3, tied", "llama, biases everywhere"])
def test_each_has_the_loss_and_the_gradient_that_it_has_alone(name: str, way: str) -> None:
    network = adapted(NETWORKS[name](), TARGETS["some" if name == "llama" else "all"])
    passes = passes_of(network, read_adapter(network, Adapter({})), way == "checkpointing")
    joint = JointPass(passes[0].reading([through.vector for through in passes]))
    joint.expect([through.needs for through in passes])
    wanted = wanted_of(passes)
    usual = alone(wanted)
    assert_same(joint, wanted, passes, usual)
    for absent in range(len(PARTS)):
        assert_same(joint, {number: each for number, each in wanted.items() if number != absent}, passes, usual)
    assert_same(joint, {1: wanted[1]}, passes, usual)


@pytest.mark.parametrize("way", ["loops", "fixed sizes"], indirect=True)
@pytest.mark.parametrize("frozen", [("residual",), ("lora_A.weight", "residual"), ("lora_B.",)])
def test_each_reads_its_own_frozen_tensors(frozen: tuple[str, ...], way: str) -> None:
    network = adapted(NETWORKS["qwen2"](), TARGETS["all"])
    passes = passes_of(network, further_pairs(network, *frozen))
    assert len({through.vector.fixed.sum().item() for through in passes}) == len(passes)
    joint = JointPass(passes[0].reading([through.vector for through in passes]))
    wanted = wanted_of(passes)
    assert_same(joint, wanted, passes, alone(wanted))


@pytest.mark.parametrize("way", ["loops", "fixed sizes"], indirect=True)
def test_adapters_openings_and_neighbours_matter(way: str) -> None:
    """What the comparison above rests on: another adapter, or another's opening, has another gradient."""
    network = adapted(NETWORKS["llama"](), TARGETS["all"])
    passes = passes_of(network, read_adapter(network, Adapter({})))
    joint = JointPass(passes[0].reading([through.vector for through in passes]))
    wanted = wanted_of(passes)

    def gradients(asked: dict[int, GradientWanted]) -> list[torch.Tensor]:
        for through in passes:
            through.vector.gradient.zero_()
        joint.add_gradients(asked)
        return [through.vector.gradient.clone() for through in passes]

    before = gradients(wanted)
    changed = [Example(np.append((item.ids[:4] + 1) % 96, item.ids[4:]), item.train) for item in PARTS[1]]
    after = gradients({**wanted, 1: replace(wanted[1], part=changed)})
    swapped = {**wanted, 0: replace(wanted[0], part=PARTS[2], opening=9), 2: replace(wanted[2], part=PARTS[0])}
    swapped[0], swapped[2] = replace(swapped[0], importance=1.0), replace(swapped[2], importance=1.0)
    other = gradients(swapped)

    def distance(one: torch.Tensor, another: torch.Tensor) -> float:
        return ((one - another).norm() / another.norm()).item()

    assert distance(after[1], before[1]) > 1e-3
    assert max(distance(after[number], before[number]) for number in (0, 2)) < 1e-6
    assert min(distance(other[number], before[number]) for number in (0, 2)) > 0.1
    assert distance(other[1], before[1]) < 1e-6


def test_sizes_of_packs_end_to_end_are_planned_by_turns() -> None:
    needs = [
        [Sizes.of_part(part, opening)] * turns for part, opening, turns in zip(PARTS, OPENINGS, (3, 2, 1), strict=True)
    ]
    whole = Sizes.of_all([own[0] for own in needs])
    assert whole == Sizes(
        tokens=(227 - 27) + (93 - 4) + 112, opening=9, segments=5 + 3 + 3, longest=141,
        predicting=sum(own[0].predicting for own in needs), copies=36 + 8,
    )  # fmt: skip
    planned = NotRecorded.__new__(NotRecorded)
    joint = JointPass.__new__(JointPass)
    told: list[Sequence[Sizes]] = []
    planned.expect = told.append  # type: ignore[method-assign,assignment]
    joint._graphs = planned
    joint.expect(needs)
    assert told == [[whole, Sizes.of_all([own[0] for own in needs[:2]]), needs[0][0]]]


def test_scores_come_before_gradients_so_that_all_gradients_are_of_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_passes, "joins", lambda through: True)
    network = adapted(NETWORKS["llama"](), TARGETS["some"])
    parallel = ParallelPasses(pass_for(network, False))
    passes = parallel.passes(3)
    turns: list[tuple[str, list[int]]] = []
    for name in ("log_probabilities", "add_gradients"):
        usual = getattr(JointPass, name)

        def noted(joint: JointPass, wanted: Any, name: str = name, usual: Any = usual) -> Any:
            turns.append((name, sorted(wanted)))
            return usual(joint, wanted)

        monkeypatch.setattr(JointPass, name, noted)

    def lesson(number: int, scored: int, steps: int) -> Asking[None]:
        through, part, opening = passes[number], PARTS[number], OPENINGS[number]
        for _ in range(scored):
            yield ScoresWanted(through, part, opening)
        for _ in range(steps):
            loss, tokens = yield GradientWanted(through, part, opening, 1.0)
            assert loss.ndim == 0 and tokens == opening + sum(len(item) - opening for item in part)

    assert parallel.run([lesson(0, 2, 3), lesson(1, 0, 2), lesson(2, 1, 1)])
    scores, gradients = "log_probabilities", "add_gradients"
    assert turns == [
        (scores, [0, 2]), (scores, [0]), (gradients, [0, 1, 2]), (gradients, [0, 1]), (gradients, [0]),
    ]  # fmt: skip


def test_a_joint_pass_serves_fewer_adapters_and_feels_nothing_of_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_passes, "joins", lambda through: True)
    network = adapted(NETWORKS["llama"](), TARGETS["some"])
    parallel = ParallelPasses(pass_for(network, False))
    held = read_adapter(network, Adapter({}))

    def lesson(through: Pass, number: int) -> Asking[None]:
        yield GradientWanted(through, PARTS[number], OPENINGS[number], 1.0)

    for count in (3, 2):
        passes = parallel.passes(count)
        for number, through in enumerate(passes):
            through.begin(stirred(held, number))
            through.vector.gradient.zero_()
        if count == 3:
            with torch.no_grad():
                passes[2].vector.values.fill_(torch.nan)
        finite = parallel.run([lesson(through, number) for number, through in enumerate(passes)])
        assert finite == (count == 2)
    joint = parallel._joint
    assert joint is not None and joint.adapters == 3
    assert all(through.vector.gradient.isfinite().all() for through in passes)
    parallel.passes(4)[3].begin(held)
    parallel.run([lesson(through, 0) for through in parallel.passes(4)])
    assert parallel._joint is not joint and parallel._joint is not None and parallel._joint.adapters == 4


def test_high_ranks_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_passes, "joins", lambda through: True)
    parallel = ParallelPasses(pass_for(adapted(NETWORKS["llama"](), TARGETS["some"]), False))
    assert parallel.most_adapters == 32  # Of rank 4.
    monkeypatch.setattr(parallel_passes, "joins", lambda through: False)
    assert parallel.most_adapters == 1


ON_A_GPU = {"vocab_size": 1000, "hidden_size": 192, "intermediate_size": 512, "max_position_embeddings": 2048}


def on_a_gpu(dtype: str, frozen: tuple[str, ...] = ()) -> tuple[Any, list[Pass]]:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    base = LlamaForCausalLM(LlamaConfig(**SHAPE | ON_A_GPU)).to(getattr(torch, dtype))
    network = adapted(base, TARGETS["all"]).to("cuda")
    held = further_pairs(network, *frozen) if frozen else read_adapter(network, Adapter({}))
    passes = passes_of(network, held)
    assert (type(passes[0]) is RecordedPass) == (dtype == "bfloat16")
    return network, passes


def longer(seed: int, lengths: Sequence[Sequence[int]] = ((400, 250, 700, 120), (330, 95), (1200, 300, 110))) -> Any:
    return [
        conversations(*own, opening=opening, vocabulary=1000, seed=10 * seed + number)
        for number, (own, opening) in enumerate(zip(lengths, (90, 37, 9), strict=True))
    ]


def gradients_of(passes: Sequence[Pass], run: Callable[[], Any]) -> tuple[Any, list[torch.Tensor]]:
    for through in passes:
        through.vector.gradient.zero_()
    found = run()
    return found, [through.vector.gradient.clone() for through in passes]


@pytest.mark.gpu
@pytest.mark.parametrize("frozen", [(), ("residual", "lora_A.weight")], ids=["plain", "frozen parts"])
@pytest.mark.parametrize(("dtype", "likeness", "near"), [("float32", 0.999999, 1e-3), ("bfloat16", 0.99, 0.1)])
def test_on_a_gpu_each_has_what_it_has_alone(dtype: str, likeness: float, near: float, frozen: tuple[str, ...]) -> None:
    """The first packs are recorded, the next replayed with other contents, and the last have sizes of their own."""
    _, passes = on_a_gpu(dtype, frozen)
    joint = JointPass(passes[0].reading([through.vector for through in passes]))
    assert (joint._graphs is not None) == (dtype == "bfloat16")
    openings = (90, 37, 0)
    short = ((100, 120), (40,), (50, 60, 70))
    turns = [(longer(1), ()), (longer(2), ()), (longer(3), (1,)), (longer(4, short), ()), (longer(5), (0, 2))]
    joint.expect([[Sizes.of_part(own, opening)] * 2 for own, opening in zip(turns[0][0], openings, strict=True)])
    for parts, absent in turns:
        wanted = {
            number: GradientWanted(passes[number], part, openings[number], 0.5 + number)
            for number, part in enumerate(parts)
            if number not in absent
        }
        told, usual = gradients_of(passes, lambda asked=wanted: {n: each.alone() for n, each in asked.items()})
        found, ours = gradients_of(passes, lambda asked=wanted: joint.add_gradients(asked))
        for number in wanted:
            one, other = ours[number], usual[number]
            assert found[number][0].item() == pytest.approx(told[number][0].item(), rel=1e-4 if near < 0.01 else 0.02)
            assert torch.cosine_similarity(one, other, dim=0) > likeness
            assert one.norm().item() == pytest.approx(other.norm().item(), rel=near)
        assert not any(ours[number].any() for number in absent)
        scores = {number: ScoresWanted(each.through, each.part, each.opening) for number, each in wanted.items()}
        for number, values in joint.log_probabilities(scores).items():
            assert np.abs(values - scores[number].alone()).mean() < (1e-3 if near < 0.01 else 0.1)
    if joint._graphs is not None:
        assert len(joint._graphs._graphs) <= 3, "those of the first served most"


@pytest.mark.gpu
def test_on_a_gpu_a_replay_reads_what_the_vectors_hold_now() -> None:
    _, passes = on_a_gpu("bfloat16")
    joint = JointPass(passes[0].reading([through.vector for through in passes]))
    wanted = {
        number: GradientWanted(passes[number], part, opening, 1.0)
        for number, (part, opening) in enumerate(zip(longer(1), (90, 37, 0), strict=True))
    }
    _, before = gradients_of(passes, lambda: joint.add_gradients(wanted))
    with torch.no_grad():
        passes[1].vector.values.mul_(0.5)
    _, after = gradients_of(passes, lambda: joint.add_gradients(wanted))
    _, alone_now = gradients_of(passes, lambda: [each.alone() for each in wanted.values()])
    assert torch.cosine_similarity(after[1], alone_now[1], dim=0) > 0.99
    assert torch.cosine_similarity(after[1], before[1], dim=0) < 0.99
    for number in (0, 2):
        assert torch.cosine_similarity(after[number], before[number], dim=0) > 0.999
    joint.add_gradients(wanted)
    assert torch.cosine_similarity(passes[0].vector.gradient, alone_now[0], dim=0) > 0.99, "added to what was there"
    assert passes[0].vector.gradient.norm() > 1.9 * alone_now[0].norm()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_on_a_gpu_lessons_in_one_pass_end_where_each_ends_alone(dtype: str) -> None:
    """Two equal runs differ a little, as kernels add in varying order."""
    model = Tiny(width=64, layers=2, device="cuda", dtype=dtype)
    worlds = [Maze(rules=rules, observation_length="brief") for rules in ("brief", "bare", "brief")]
    shown = [
        Demonstrations(count).trajectories("c", "maze", world, model.chat, 0)
        for count, world in zip((24, 11, 17), worlds, strict=True)
    ]
    start = model.initial_adapter(0)
    lessons = [Lesson(stirred(start, number), own, number) for number, own in enumerate(shown)]
    learner = Imitation(model, learning_rate=1e-3, batch_size=4, epochs=1)

    def changes(learned: Sequence[Any]) -> list[torch.Tensor]:
        return [
            torch.cat([torch.from_numpy(found.tensors[name] - held).flatten() for name, held in begun.tensors.items()])
            for (found, _), begun in zip(learned, (lesson.start for lesson in lessons), strict=True)
        ]

    in_turn = changes([learner.learn(lesson) for lesson in lessons])
    for _ in range(2):
        for ours, usual in zip(changes(learner.learn_together(lessons)), in_turn, strict=True):
            assert torch.cosine_similarity(ours, usual, dim=0) > (0.99 if dtype == "bfloat16" else 0.9999)
    kept = learner._passes._kept
    assert kept is not None and kept._joint is not None
