"""What a site's own file allows and pins: a hub that asks for anything else is refused, with a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedse.adapters.plan import TensorPlan
from fedse.apps.hub_file import load_for_hub, told_worlds_of
from fedse.apps.site_file import load_site
from fedse.apps.worker import Worker
from fedse.engines.flower.client_replies import read_reply
from fedse.engines.flower.wire import pack_task, to_records
from fedse.errors import BadInput
from fedse.experiments.known_before import expected_of
from fedse.types import ClientUpdate, RoundTask

EXPERIMENT = """
name: small
rounds: 9
model: {name: table, rows: 64}
policy: table
learner: table
clients:
  east: {worlds: [{name: maze, mode: original}]}
  west: {worlds: [{name: maze, mode: original}]}
start: {tasks: 2}
exploration: {tasks: 14}
evaluation: {tasks: 3, test_tasks: 1}
aggregator: mean
"""
TASK = RoundTask(1, "train", np.zeros(256, np.float32), (("table", (64, 4)),), {})


def site(folder: Path, more: str = "", experiment: str = EXPERIMENT) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "experiment.yaml").write_text(experiment)
    file = folder / "site.yaml"
    file.write_text(f"name: east\nhub: 127.0.0.1:1\ninsecure: true\nexperiment: experiment.yaml\n{more}")
    return file


def left(file: Path) -> tuple[ClientUpdate, list[dict[str, Any]]]:
    """What a hub reads of a site's answer to a round, and what the site's ledger says of it."""
    loaded = load_site(file)
    said: list[str] = []
    answer = Worker(loaded, said.append).answer(pack_task(TASK, "east", "small", loaded.terms))
    experiment = file.parent / "experiment.yaml"
    expected = replace(expected_of(load_for_hub(experiment)), worlds=told_worlds_of(experiment))
    update = read_reply(to_records(answer), "east", TASK, TensorPlan(), expected)
    assert isinstance(update, ClientUpdate), said
    lines = (file.parent / "data/small/clients/east/ledger.jsonl").read_text().splitlines()
    return update, [json.loads(line) for line in lines]


def test_a_site_tells_what_its_file_allows_and_the_hub_takes_it(tmp_path: Path) -> None:
    exact, _ = left(site(tmp_path / "exact"))
    assert exact.counts["explored"] == 14 and exact.scores and exact.metrics
    file = site(tmp_path / "rounded", "leaves: {counts: rounded, metrics: [], scores: withheld}\n")
    rounded, lines = left(file)
    assert rounded.counts["explored"] == 10 and rounded.counts["successes"] % 10 == 0
    assert (dict(rounded.metrics), rounded.scores) == ({}, ())
    assert rounded.vector is not None and exact.vector is not None
    assert rounded.vector.tobytes() == exact.vector.tobytes(), "what is learned does not depend on what is told"
    sizes = {line["field"]: line["bytes"] for line in lines}
    assert sizes["scores"] == sizes["metrics"] == 2, "an empty list, an empty map"
    withheld, _ = left(site(tmp_path / "withheld", "leaves: {counts: withheld}\n"))
    assert dict(withheld.counts) == {} and withheld.scores


def test_counts_that_the_aggregator_weighs_by_cannot_be_withheld(tmp_path: Path) -> None:
    weighted = EXPERIMENT.replace("aggregator: mean", "aggregator: size_weighted")
    with pytest.raises(BadInput, match="keeps learned_from here, by which `aggregator: size_weighted` weighs updates"):
        load_site(site(tmp_path, "leaves: {counts: withheld}\n", weighted))


def test_a_metric_that_there_is_not_is_no_metric_to_let_out(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"leaves.metrics: there is no metric 'los'; did you mean 'loss'"):
        load_site(site(tmp_path, "leaves: {metrics: [los]}\n"))


@pytest.mark.parametrize(
    "agreed",
    [
        "model.name: table",
        "model.rows: {at_most: 64}",
        "exploration.tasks: {at_most: 20}",
        "learner.name: {one_of: [imitation, table]}",
        "aggregator.name: mean",
        "buffer.history: true",
        "sharing: all",
    ],
)
def test_an_experiment_that_keeps_to_what_was_agreed_is_worked_for(agreed: str, tmp_path: Path) -> None:
    load_site(site(tmp_path, f"agreed: {{{agreed}}}\n"))


@pytest.mark.parametrize(
    ("agreed", "why"),
    [
        ("model.name: nano", "the experiment asks for model.name = 'table', and this site agreed to nano"),
        ("model.rows: {at_most: 32}", "asks for model.rows = 64, and this site agreed to at most 32"),
        ("exploration.tasks: 5", "asks for exploration.tasks = 14, and this site agreed to 5"),
        (
            "learner.name: {one_of: [imitation]}",
            "asks for learner.name = 'table', and this site agreed to one of imitation",
        ),
        (
            "sending.max_megabytes: {at_most: 1}",
            r"asks for sending.max_megabytes = nothing \(null\), and this site agreed",
        ),
        ("rounds: true", "asks for rounds = 9, and this site agreed to True"),
        ("learner.epoch: 1", "agreed.learner.epoch: learner has no key 'epoch'"),
        ("modle.name: nano", "agreed.modle.name: the experiment has no key 'modle'; did you mean 'model'"),
        ("buffer.cap: 9", "agreed.buffer.cap: 'cap' is called `max_trajectories` now"),
        ("model: {name: table}", "agreed.model: give a value, {at_most: NUMBER} or {one_of: .VALUES.}"),
        ("rounds: {at_most: many}", "agreed.rounds: at_most needs a number"),
    ],
)
def test_an_experiment_that_asks_for_something_else_is_refused_with_a_sentence(
    agreed: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=why):
        load_site(site(tmp_path, f"agreed: {{{agreed}}}\n"))


def test_a_key_that_was_agreed_to_under_an_old_name_is_told_the_new_one(tmp_path: Path) -> None:
    """Of the options of a plug-in too, and only of the one that had the key."""
    summed = EXPERIMENT.replace("name: small", "name: small\nsending: {secure_sum: {min_sites: 2}}")
    with pytest.raises(BadInput, match=r"agreed\.sending\.secure_sum\.least: 'least' is called `min_sites` now\."):
        load_site(site(tmp_path, "agreed: {sending.secure_sum.least: 3}\n", summed))
    judged = EXPERIMENT.replace("aggregator: mean", "judge: few_tokens")
    with pytest.raises(BadInput, match=r"agreed\.judge\.most: 'most' is called `max_tokens` now\."):
        load_site(site(tmp_path, "agreed: {judge.most: 3}\n", judged))
    with pytest.raises(BadInput, match=r"agreed\.mix\.least: mix has no key 'least'"):
        load_site(site(tmp_path, "agreed: {mix.least: 3}\n"))


@pytest.mark.parametrize(
    "other",
    [
        ("learner: table", "learner: {name: imitation, epochs: 9}"),
        ("exploration: {tasks: 14}", "exploration: {tasks: 15}"),
        ("rows: 64", "rows: 65"),
        ("aggregator: mean", "aggregator: fedsa_lora"),
        ("evaluation: {tasks: 3,", "evaluation: {tasks: 4,"),
        ("start: {tasks: 2}", "start: {tasks: 3}"),
    ],
    ids=lambda other: other[1],
)
def test_a_hub_whose_experiment_became_another_is_refused_before_any_work(
    other: tuple[str, str], tmp_path: Path
) -> None:
    """The site has its own copy, and terms are a digest of everything that its work depends on."""
    loaded = load_site(site(tmp_path))
    (tmp_path / "hub.yaml").write_text(EXPERIMENT.replace(*other))
    terms = load_for_hub(tmp_path / "hub.yaml").terms
    said: list[str] = []
    answer = Worker(loaded, said.append).answer(pack_task(TASK, "east", "small", terms))
    assert answer.header["failure"] == "OtherTerms"
    assert "the hub's experiment differs from this site's" in said[-1]
    assert not (tmp_path / "data/small/clients/east/ledger.jsonl").exists()


def test_a_site_says_itself_what_the_agent_may_never_do(tmp_path: Path) -> None:
    """The hub need not know, and the terms are the same."""
    plain = load_site(site(tmp_path / "plain"))
    guarded = load_site(site(tmp_path / "guarded", "contract: {forbid: [up], fallback: move down}\n"))
    contract = guarded.experiment.clients["east"].contract
    assert contract is not None and not contract.keeps("move up") and plain.experiment.clients["east"].contract is None
    assert guarded.terms == plain.terms
    with pytest.raises(BadInput, match="breaks the contract itself"):
        load_site(site(tmp_path / "bad", "contract: {forbid: [up], fallback: move up}\n"))
