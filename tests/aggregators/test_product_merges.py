"""Merges in product space against dense matrices written out, and against PEFT's where PEFT has the same one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedse.adapters.packing import pack
from fedse.adapters.plan import RESIDUAL, part
from fedse.aggregators.check import HeldUpdate, at_client, check_aggregator, effect, some_state, some_updates
from fedse.aggregators.compress_then_merge import CompressThenMerge, directions
from fedse.aggregators.core_space import CoreSpace
from fedse.aggregators.fedexp_products import FedExPProducts
from fedse.aggregators.iso_merge import IsoMerge
from fedse.aggregators.product_merge import ProductMerge
from fedse.aggregators.task_arithmetic import TaskArithmetic
from fedse.aggregators.ties_merge import TiesMerge
from fedse.aggregators.tsv_merge import TsvMerge
from fedse.plugins import resolve
from fedse.plugins.shipped import KNOWN
from fedse.types import Adapter, ServerState

RANK = 3
Dense = np.ndarray[Any, Any]
MODULE = "layers.0.q_proj.lora_A.weight"
RULES = (TaskArithmetic, TsvMerge, IsoMerge, TiesMerge, FedExPProducts, CompressThenMerge)


def changed_products(state: ServerState, updates: Sequence[Any]) -> dict[str, list[Dense]]:
    """The dense change of each module's product, client by client."""
    before, after = effect(state.adapter), [effect(at_client(state, update)) for update in updates]
    return {name: [own[name] - before[name] for own in after] for name in before if ".lora_A." in name}


def merged_by(rule: Any, state: ServerState, updates: Sequence[Any]) -> dict[str, Dense]:
    following, _ = rule.aggregate(state, updates)
    return {name: effect(following.adapter)[name] - before for name, before in effect(state.adapter).items()}


def orthonormal(vectors: Dense) -> Dense:
    """The polar factor by the inverse root of the Gram matrix, another way than the rule's."""
    values, turned = np.linalg.eigh(vectors.T @ vectors)
    kept = values > 1e-9 * values.max()
    return vectors @ (turned[:, kept] / np.sqrt(values[kept])) @ turned[:, kept].T


def dense_sum(changes: list[Dense]) -> Dense:
    return np.sum(changes, axis=0)


def dense_tsv(changes: list[Dense], ranks: Sequence[int] = (RANK,) * 5) -> Dense:
    found = [np.linalg.svd(change, full_matrices=False) for change in changes]
    lefts = np.hstack([one[0][:, :rank] for one, rank in zip(found, ranks, strict=False)])
    values = np.concatenate([one[1][:rank] for one, rank in zip(found, ranks, strict=False)])
    rights = np.hstack([one[2][:rank].T for one, rank in zip(found, ranks, strict=False)])
    return orthonormal(lefts) @ np.diag(values) @ orthonormal(rights).T


def dense_iso(changes: list[Dense]) -> Dense:
    lefts, values, rights = np.linalg.svd(np.sum(changes, axis=0), full_matrices=False)
    count = int(np.sum(values > 1e-6 * values[0]))
    return values[:count].mean() * lefts[:, :count] @ rights[:count]


@pytest.mark.parametrize(("rule", "dense"), [(TaskArithmetic, dense_sum), (TsvMerge, dense_tsv), (IsoMerge, dense_iso)])
@pytest.mark.parametrize("clients", [1, 2, 5])
def test_the_merged_change_is_that_of_the_dense_products(rule: Any, dense: Any, clients: int) -> None:
    state = some_state()
    updates = some_updates(rule(), state, spread=0.5)[:clients]
    found = merged_by(rule(scale=0.7, rank=None), state, updates)
    for name, changes in changed_products(state, updates).items():
        np.testing.assert_allclose(found[name], 0.7 * dense(changes), atol=2e-5, err_msg=name)


def test_tsv_takes_no_vectors_of_what_a_client_did_not_change() -> None:
    """A singular vector without a value is arbitrary, and would turn the others away from itself."""
    state = some_state()
    whole = some_updates(TsvMerge(), state, spread=0.5)[0]
    same = HeldUpdate("same", state.adapter.layout, pack(state.adapter))
    direction = {
        name: tensor + (np.eye(*tensor.shape, dtype=np.float32)[:, :1] @ np.eye(1, RANK, dtype=np.float32))
        if ".lora_B." in name
        else tensor
        for name, tensor in state.adapter.tensors.items()
    }
    one_rank = Adapter(direction, state.adapter.config)
    short = HeldUpdate("short", one_rank.layout, pack(one_rank))
    for updates, ranks in (([whole, same], (RANK, 0)), ([whole, short], (RANK, 1)), ([same, same], (0, 0))):
        found = merged_by(TsvMerge(rank=None), state, updates)
        turned = merged_by(TsvMerge(rank=None), state, updates[::-1])
        for name, changes in changed_products(state, updates).items():
            wanted = dense_tsv(changes, ranks) if any(ranks) else np.zeros_like(changes[0])
            np.testing.assert_allclose(found[name], wanted, atol=5e-5, err_msg=name)
            np.testing.assert_allclose(turned[name], wanted, atol=5e-5, err_msg=name)


@pytest.mark.parametrize("name", KNOWN["aggregator"])
def test_whoever_broadcasts_further_ranks_says_so_before_a_run(name: str) -> None:
    rule: Any = resolve("aggregator", name)()
    state = some_state()
    following, _ = rule.aggregate(state, some_updates(rule, state, spread=0.5))
    more = any(part(tensor) == RESIDUAL for tensor in following.adapter.tensors)
    assert more <= getattr(rule, "adds_ranks", False)


def test_ties_goes_by_the_entries_of_the_cores() -> None:
    state = some_state()
    updates = some_updates(TiesMerge(), state, spread=0.5)
    found = merged_by(TiesMerge(keep=0.3, rank=None), state, updates)
    for name, changes in changed_products(state, updates).items():
        partner = name.replace(".lora_A.", ".lora_B.")
        held = [state.adapter, *(at_client(state, update) for update in updates)]
        # Singular vectors as eigenvectors of the Gram matrices; TIES does not mind their signs.
        left = np.linalg.eigh(sum(one.tensors[partner].astype(float) @ one.tensors[partner].T for one in held))[1]
        right = np.linalg.eigh(sum(one.tensors[name].T.astype(float) @ one.tensors[name] for one in held))[1]
        columns = min(left.shape[0], len(held) * RANK), min(right.shape[0], len(held) * RANK)
        left, right = left[:, -columns[0] :], right[:, -columns[1] :]
        cores = np.stack([left.T @ change @ right for change in changes])
        for core in cores:
            core[np.abs(core) < np.sort(np.abs(core).ravel())[-round(0.3 * core.size)]] = 0.0
        sign = np.sign(cores.sum(axis=0))
        agreeing = np.where(np.sign(cores) == sign, cores, 0.0)
        count = np.maximum((agreeing != 0).sum(axis=0), 1)
        np.testing.assert_allclose(found[name], left @ (agreeing.sum(axis=0) / count) @ right.T, atol=2e-5)


def test_core_space_loses_nothing_and_is_small() -> None:
    random = np.random.default_rng(0)
    ups, downs = random.standard_normal((4, 300, 5)), random.standard_normal((4, 5, 200))
    space = CoreSpace.of(ups[0], downs[0], list(ups[1:]), list(downs[1:]))
    assert space.broadcast.shape == (20, 20)
    for core, up, down in zip([space.broadcast, *space.clients], ups, downs, strict=True):
        np.testing.assert_allclose(space.left @ core @ space.right, up @ down, atol=1e-10)
        # B is as tall as the core has columns, and the product of both is the core's.
        again = space.factors(core)
        np.testing.assert_allclose(again[0] @ again[1], up @ down, atol=1e-10)


def test_what_does_not_fit_into_the_pair_is_broadcast_beside_it_or_lost_and_told() -> None:
    state = some_state()
    updates = some_updates(TaskArithmetic(), state, spread=0.5)
    everything = merged_by(TaskArithmetic(rank=None), state, updates)
    kept, numbers = TaskArithmetic(rank=0).aggregate(state, updates)
    assert not any(part(name) == RESIDUAL for name in kept.adapter.tensors)
    assert kept.adapter.layout == state.adapter.layout
    lost = whole = 0.0
    for name, change in everything.items():
        if ".lora_A." not in name:
            continue
        dense = effect(state.adapter)[name] + change
        lefts, values, rights = np.linalg.svd(dense)
        best = lefts[:, :RANK] * values[:RANK] @ rights[:RANK]
        np.testing.assert_allclose(effect(kept.adapter)[name], best, atol=2e-5)
        lost += float(np.sum(values[RANK:] ** 2))
        whole += float(np.sum(values[RANK:] ** 2))
    assert numbers["residual_lost"] == pytest.approx(np.sqrt(lost / whole))
    bounded, numbers = TaskArithmetic(rank=2).aggregate(state, updates)
    assert numbers["residual_rank"] == 2 and 0 < numbers["residual_lost"] < 1
    assert any(part(name) == RESIDUAL for name in bounded.adapter.tensors)


def test_a_second_round_goes_on_from_pair_and_residual() -> None:
    rule = TaskArithmetic(scale=0.5, rank=None)
    state = some_state()
    for seed in range(3):
        updates = some_updates(rule, state, seed=seed)
        wanted = {
            name: effect(state.adapter)[name] + 0.5 * np.sum(changes, axis=0)
            for name, changes in changed_products(state, updates).items()
        }
        state, _ = rule.aggregate(state, updates)
        for name, product in wanted.items():
            np.testing.assert_allclose(effect(state.adapter)[name], product, atol=5e-5)


def test_no_rank_of_the_pair_dies() -> None:
    """A rank with zeros in both factors has no gradient and would stay so."""
    fresh = some_state()
    zero_up = {name: np.zeros_like(t) if ".lora_B." in name else t for name, t in fresh.adapter.tensors.items()}
    state = ServerState(0, Adapter(zero_up, fresh.adapter.config))
    asleep = [HeldUpdate(f"c{number}", state.adapter.layout, pack(state.adapter)) for number in range(3)]
    for rule in (*(each(rank=0) for each in RULES[:5]), CompressThenMerge()):
        following, _ = rule.aggregate(state, asleep)
        for name, tensor in following.adapter.tensors.items():
            if ".lora_A." in name:
                assert np.linalg.matrix_rank(tensor) == RANK, f"{type(rule).__name__}: {name}"


@pytest.mark.parametrize("clients", [2, 5])
def test_fedexp_on_products_takes_the_papers_step(clients: int) -> None:
    state = some_state()
    updates = some_updates(FedExPProducts(), state, spread=0.5)[:clients]
    following, numbers = FedExPProducts(rank=None).aggregate(state, updates)
    changes = changed_products(state, updates)
    squares = sum(float(np.sum(change**2)) for each in changes.values() for change in each)
    mean_square = sum(float(np.sum(np.mean(each, axis=0) ** 2)) for each in changes.values())
    step = max(1.0, min(clients, squares / (2 * clients * mean_square)))
    assert numbers["server_step"] == pytest.approx(step, rel=1e-6) and (step > 1 or clients == 2)
    for name, each in changes.items():
        wanted = effect(state.adapter)[name] + step * np.mean(each, axis=0)
        np.testing.assert_allclose(effect(following.adapter)[name], wanted, atol=2e-5)
    assert FedExPProducts(longest=1).aggregate(state, updates)[1]["server_step"] == 1.0


def test_compressed_merges_have_the_rank_of_the_clients_and_hold_most_of_their_products() -> None:
    random = np.random.default_rng(0)
    common = random.standard_normal((2, 30, 4))
    # Products that mostly lie in four common directions.
    products = np.stack([common[0] @ random.standard_normal((4, 4)) @ common[1].T for _ in range(5)])
    noisy = products + 0.01 * random.standard_normal(products.shape)
    lefts, rights = directions(noisy, 4)
    held = lefts @ (lefts.T @ noisy @ rights) @ rights.T
    assert np.linalg.norm(held - noisy) / np.linalg.norm(noisy) < 0.05
    # Alternation is no worse than the two sides chosen by themselves.
    plain = [np.linalg.svd(np.concatenate(list(each), axis=1))[0][:, :2] for each in (noisy, noisy.transpose(0, 2, 1))]
    best = directions(noisy, 2)
    assert np.linalg.norm(best[0].T @ noisy @ best[1]) >= np.linalg.norm(plain[0].T @ noisy @ plain[1]) - 1e-9

    state = some_state()
    updates = some_updates(CompressThenMerge(), state)
    following, numbers = CompressThenMerge().aggregate(state, updates)
    assert following.adapter.layout == state.adapter.layout and 0 <= numbers["compressed"] < 1
    # One client's own directions hold all of its product.
    alone, _ = CompressThenMerge(keep=1).aggregate(state, updates[:1])
    for name, product in effect(at_client(state, updates[0])).items():
        np.testing.assert_allclose(effect(alone.adapter)[name], product, atol=2e-5)


def test_a_single_finished_adapter_is_merged_to_itself() -> None:
    """From a pair with B = 0, as adapters of finished runs are merged."""
    fresh = some_state()
    zero_up = {name: np.zeros_like(t) if ".lora_B." in name else t for name, t in fresh.adapter.tensors.items()}
    state = ServerState(0, Adapter(zero_up, fresh.adapter.config))
    one = some_updates(TaskArithmetic(), fresh)[:1]
    for rule in (TaskArithmetic(), TsvMerge(), TiesMerge(keep=1), CompressThenMerge(keep=1)):
        found = effect(rule.aggregate(state, one)[0].adapter)
        for name, product in effect(at_client(state, one[0])).items():
            np.testing.assert_allclose(found[name], product, atol=2e-5, err_msg=type(rule).__name__)


@pytest.mark.parametrize(("way", "rank"), [("cat", None), ("svd", 0)])
def test_task_arithmetic_is_what_peft_merges(way: str, rank: int | None) -> None:
    import peft
    import torch

    torch.manual_seed(0)
    base = torch.nn.Sequential(torch.nn.Linear(20, 12, bias=False))
    config = peft.LoraConfig(r=RANK, lora_alpha=RANK, target_modules=["0"], init_lora_weights=False)
    network = peft.get_peft_model(base, config, adapter_name="one")
    network.add_adapter("two", config)
    network.base_model.add_weighted_adapter(["one", "two"], [0.7, 0.7], "merged", combination_type=way, svd_rank=RANK)
    layer = network.base_model.model[0]
    wanted = (layer.lora_B["merged"].weight @ layer.lora_A["merged"].weight * layer.scaling["merged"]).detach().numpy()

    def adapter(name: str, share: float = 1.0) -> Adapter:
        down, up = (side[name].weight.detach().numpy().copy() for side in (layer.lora_A, layer.lora_B))
        return Adapter({MODULE: down, MODULE.replace("_A", "_B"): share * up}, {"r": RANK})

    updates = [HeldUpdate(name, adapter(name).layout, pack(adapter(name))) for name in ("one", "two")]
    following, _ = TaskArithmetic(scale=0.7, rank=rank).aggregate(ServerState(0, adapter("one", 0.0)), updates)
    np.testing.assert_allclose(effect(following.adapter)[MODULE], wanted, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_they_keep_the_promises_of_every_aggregator(rule: Any) -> None:
    assert all(finding.passed for finding in check_aggregator(rule)), rule.__name__
    assert issubclass(rule, ProductMerge) or rule in (FedExPProducts, CompressThenMerge)
