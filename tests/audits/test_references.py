"""RMIA against its definition by pairs, runs that can and cannot be compared with, and the curve of projections."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedse
from fedse.audits import projection_curve as projection_curve_room
from fedse.audits.membership import audit
from fedse.audits.projection_curve import GRADIENT, LEARNED, SENT, projection_curve
from fedse.audits.rates import rates
from fedse.audits.references import references
from fedse.audits.rmia import OFFLINE_A, ratios
from fedse.audits.seats import HUB, HUB_OF_A_SUM, OTHER_SITE, READER, Seen, attacks, scores
from fedse.cli.audit_tables import projection_table
from fedse.cli.tables import markdown
from fedse.errors import BadInput
from fedse.experience.buffer import read_file
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run
from fedse.types import Adapter


def by_pairs(
    own: list[float], others: list[list[float]], population: list[int], gamma: float, a: float = OFFLINE_A
) -> list[float]:
    """The paper's score, pair by pair."""

    def mass(index: int) -> float:
        outside = sum(math.exp(-one[index]) for one in others) / len(others)
        return 0.5 * ((1 + a) * outside + (1 - a))

    def likelihood_ratio(x: int, z: int) -> float:
        return (math.exp(-own[x]) / mass(x)) / (math.exp(-own[z]) / mass(z))

    return [sum(likelihood_ratio(x, z) >= gamma for z in population) / len(population) for x in range(len(own))]


@pytest.mark.parametrize("gamma", [1.0, 1.3])
def test_the_ratio_puts_candidates_in_the_order_of_the_score_by_pairs(gamma: float) -> None:
    random = np.random.default_rng(1)
    others = random.gamma(2, 0.3, (2, 500)).tolist()
    own = (np.mean(others, axis=0) * random.uniform(0.3, 1.4, 500)).tolist()
    by_ratio = np.array(ratios(own, others))
    told = np.array(by_pairs(own, others, list(range(250, 500)), gamma))
    order = by_ratio.argsort()
    assert len(set(told)) > 50 and (np.diff(told[order]) >= 0).all()
    fine, coarse = (rates(each[:100].tolist(), each[100:250].tolist()).auc for each in (by_ratio, told))
    assert fine == pytest.approx(coarse, abs=0.02)


def test_each_seat_has_the_other_runs_adapters_of_the_same_seat() -> None:
    def adapter(value: float) -> Adapter:
        return Adapter({"A": np.full((1, 1), value, dtype=np.float32)})

    def around(first: float) -> Seen:
        return Seen(*(adapter(first + number) for number in range(6)))

    made = {(attack.seat, attack.name): attack for attack in attacks(around(0), [around(10), around(20)])}
    places = {HUB: 2, OTHER_SITE: 3, READER: 4, HUB_OF_A_SUM: 5}
    for seat, place in places.items():
        found = scores(made[seat, "RMIA"], lambda given: [float(given.tensors["A"][0, 0])])
        assert found == pytest.approx(ratios([place], [[10 + place], [20 + place]]))
    assert not [name for _, name in {(a.seat, a.name) for a in attacks(around(0))} if name == "RMIA"]


def small(**changes: Any) -> Experiment:
    maze = {"name": "maze", "rules": "bare", "observation_length": "brief", "train_tasks": 90}
    content: dict[str, Any] = {
        "name": "first",
        "rounds": 2,
        "model": {"name": "tiny", "width": 16, "layers": 1, "context": 512, "lora": {"rank": 2}, "threads": 1},
        "clients": {"maze": {"worlds": [maze]}},
        "start": {"name": "demonstrations", "tasks": 25},
        "exploration": {"tasks": 1},
        "evaluation": {"tasks": 1, "test_tasks": 0},
        "learner": {"learning_rate": 0.03, "epochs": 1},
        "policy": {"slots": 2, "reply_tokens": 2},
    }
    return Experiment(**{**content, **changes})


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fedse.run(small(), tmp_path_factory.mktemp("references")).folder


@pytest.mark.slow
def test_what_a_reference_learned_from_is_left_out_and_another_model_is_refused(first: Path, tmp_path: Path) -> None:
    other = fedse.run(small(name="other", seed=1, rounds=1), tmp_path).folder
    with open_run(first) as opened:
        (client,) = opened.clients
        found = audit(opened, client, 1, [other])
        (beside,) = found["worlds"]
        begun = {item.task for item in client.experience.buffer.read(0)}
        with pytest.raises(BadInput, match="no client 'mazes' with the same worlds"):
            references([other], small(clients={"mazes": small().clients["maze"]}), "mazes", 1)
        with pytest.raises(BadInput, match="its model or adapter is another"):
            references([other], small(model={**small().model.options, "name": "tiny", "width": 32}), "maze", 1)
    assert found["references"] == ["other"]
    assert {row["seat"] for row in beside["rows"] if row["attack"] == "RMIA"} == {HUB, OTHER_SITE, READER}
    assert 10 <= beside["members"] < 25 and beside["left_out"] >= 25
    in_both = begun & {item.task for item in read_file(other / "clients/maze/buffer.sqlite")}
    assert in_both and beside["members"] <= 25 - len(in_both)


@pytest.mark.slow
def test_projection_is_tried_on_updates_made_for_it_and_on_what_was_sent(
    first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection_curve_room, "UPDATES", {1: 2, 8: 1})
    with open_run(first) as opened:
        (client,) = opened.clients
        with pytest.raises(BadInput, match="B is zero in the adapter that entered round 1"):
            projection_curve(opened, client, 1)
        found = projection_curve(opened, client, 2)
    (world,) = found["worlds"]
    tried = [(row["update"], row["trajectories"], row["updates"]) for row in world["rows"]]
    made = [(name, *counts) for name in (GRADIENT, LEARNED) for counts in ((1, 2), (8, 1))]
    assert tried == [*made, (SENT, None, 1)]
    assert all(0 <= row["auc_range"][0] <= row["auc"] <= row["auc_range"][1] <= 1 for row in world["rows"])
    assert len(markdown(projection_table(found, world)).splitlines()) > 6
    stored = json.loads((first / "evaluations/projection-0002-maze.json").read_text())
    assert stored == json.loads(json.dumps(found))
