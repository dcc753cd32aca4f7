"""Secure sums of a deployment: three sites' workers in this process, each with its own file and keys, and a hub that is not
always honest. Everything between them crosses as it does in Flower's messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("flwr")

import fedse
from fedse.adapters.plan import TensorPlan
from fedse.apps.hub_file import load_for_hub, told_worlds_of
from fedse.apps.site import run_site
from fedse.apps.site_file import load_site
from fedse.apps.worker import Worker
from fedse.cli import app
from fedse.engines.flower.client_replies import read_reply
from fedse.engines.flower.wire import FORMAT, Parcel, from_bytes, from_records, pack_task, to_bytes, to_records
from fedse.errors import BadInput
from fedse.experiments.running import run
from fedse.federation.expected import Expected, Unexpected
from fedse.federation.sites import Sites
from fedse.types import ClientReply, ClientUpdate, RoundTask

NAMES = ("east", "north", "west")
EXPERIMENT = """
name: small
rounds: 2
model: {name: table, rows: 64}
policy: table
learner: table
clients:
  east: {worlds: [{name: maze, mode: original}]}
  north: {worlds: [{name: maze, mode: original, turn_limit: 15}]}
  west: {worlds: [{name: maze, mode: original, turn_limit: 12}]}
start: {tasks: 2}
exploration: {tasks: 4}
evaluation: {tasks: 1, test_tasks: 0}
sending: {secure_sum: {}}
"""


def command(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.output


def make_sites(folder: Path, experiment: str = EXPERIMENT, more: str = "") -> dict[str, Path]:
    """As their operators make them: each with a key of its own, and the public keys that `fedse site key` printed."""
    told = {}
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        told[name] = re.findall(rf"^  {name}: (\S+)$", command("site", "key", str(folder / name)), re.MULTILINE)[0]
    keys = "".join(f"    {name}: {text}\n" for name, text in told.items())
    for name in NAMES:
        (folder / name / "experiment.yaml").write_text(experiment)
        (folder / name / "site.yaml").write_text(
            f"name: {name}\nhub: 127.0.0.1:1\ninsecure: true\nexperiment: experiment.yaml\n"
            f"secure_sum:\n  sites:\n{keys}{more}"
        )
    return {name: folder / name / "site.yaml" for name in NAMES}


class Workers:
    """An engine whose clients are workers of sites."""

    def __init__(self, files: Mapping[str, Path], sites: Sites) -> None:
        self.clients = sites.names
        self.said: list[str] = []
        self.workers = {name: Worker(load_site(file), self.said.append) for name, file in files.items()}
        self.sites = sites
        self.answers: list[ClientReply] = []
        self.crossed: dict[str, bytes] = {}
        self.other: dict[tuple[str, str], dict[str, Any]] = {}
        """What the hub tells a site in place of what it tells the others, by site and task."""

    def send(self, tasks: Mapping[str, RoundTask]) -> None:
        for name, task in tasks.items():
            told = replace(task, **self.other.get((name, task.name), {}))
            parcel = pack_task(told, name, self.sites.run, self.sites.terms)
            answer = from_bytes(to_bytes(self.workers[name].answer(from_records(to_records(parcel)))))
            if answer.array is not None:
                self.crossed[f"{name}-{task.name}"] = answer.array.tobytes()
            self.answers.append(read_reply(to_records(answer), name, task, self.sites.plan, self.sites.expected))

    def poll(self, seconds: float | None = None) -> list[ClientReply]:
        found, self.answers = self.answers, []
        return found


def hub(folder: Path, files: Mapping[str, Path], other: dict[tuple[str, str], dict[str, Any]] | None = None) -> Any:
    """A run of the hub; the engine, with what the sites said, and the run's folder."""
    file = next(iter(files.values())).parent / "experiment.yaml"
    made: list[Workers] = []

    def make_engine(sites: Sites) -> Any:
        made.append(Workers(files, replace(sites, expected=replace(sites.expected, worlds=told_worlds_of(file)))))
        made[0].other = other or {}
        return made[0]

    result = run(load_for_hub(file), folder / "runs", make_engine=make_engine)
    return made[0], result


def report(folder: Path, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"rounds/{number:04d}/report.json").read_text())
    return found


@pytest.mark.parametrize("aggregator", ["mean", "fedexp"])
def test_sites_with_files_of_their_own_reach_the_adapter_of_one_machine(aggregator: str, tmp_path: Path) -> None:
    experiment = f"{EXPERIMENT}aggregator: {aggregator}\n"
    files = make_sites(tmp_path / "sites", experiment)
    engine, result = hub(tmp_path, files)
    (tmp_path / "alone.yaml").write_text(experiment)
    alone = fedse.run(tmp_path / "alone.yaml", tmp_path / "alone", verbose=False)
    assert result.adapter.digest() == alone.adapter.digest()
    assert report(result.folder, 2)["diagnostics"]["secure_sum"] == {"participants": list(NAMES), "added": 3}
    assert any("answered with its part of a secure sum, 0.001 MB" in line for line in engine.said)
    # A site that was started again gives the hub the bytes that it gave before, and to nothing else an answer.
    again = Worker(load_site(files["east"]), engine.said.append)
    state = RoundTask(2, "train", np.zeros(256, np.float32), (("table", (64, 4)),), {}, participants=NAMES)
    parcel = pack_task(state, "east", "small", load_site(files["east"]).terms)
    assert again.answer(parcel).header["failure"] == "SumRefused"
    assert "a second sum could show a single update" in engine.said[-1]


def test_the_same_parcel_gets_the_same_bytes_after_a_restart(tmp_path: Path) -> None:
    files = make_sites(tmp_path)
    site = load_site(files["east"])
    said: list[str] = []
    task = RoundTask(1, "train", np.zeros(256, np.float32), (("table", (64, 4)),), {}, participants=NAMES)
    first, second = (Worker(site, said.append).answer(pack_task(task, "east", "small", site.terms)) for _ in range(2))
    assert first.array is not None and second.array is not None and first.header["precision"] == "sum32"
    assert first.array.tobytes() == second.array.tobytes() and first.array.shape == (257,)
    fewer = pack_task(replace(task, participants=NAMES[:2]), "east", "small", site.terms)
    clear = pack_task(replace(task, participants=()), "east", "small", site.terms)
    for parcel in (fewer, clear):
        assert Worker(site, said.append).answer(parcel).header["failure"] == "SumRefused"


def test_a_hub_that_gives_one_site_another_adapter_gets_nothing(tmp_path: Path) -> None:
    files = make_sites(tmp_path / "sites")
    chosen = {("east", "train-0001"): {"vector": np.full(256, 0.5, np.float32)}}
    _, result = hub(tmp_path, files, chosen)
    assert report(result.folder, 1)["diagnostics"]["secure_sum"]["void"].startswith(
        "the masks of its sum do not cancel"
    )
    assert report(result.folder, 2)["diagnostics"]["secure_sum"]["added"] == 3


def test_a_site_that_accepts_sums_of_two_is_told_what_they_give_away(tmp_path: Path) -> None:
    two = EXPERIMENT.replace("{secure_sum: {}}", "{secure_sum: {min_sites: 2}}")
    for name, more, warned in (("careful", "", False), ("careless", "  min_sites: 2\n", True)):
        said: list[str] = []
        Worker(load_site(make_sites(tmp_path / name, two, more)["east"]), said.append)
        assert any("has the other's" in line for line in said) == warned


def test_a_hub_that_lies_to_one_site_about_the_set_gets_a_void_round_and_nothing_to_read(tmp_path: Path) -> None:
    """East hears of a sum with north alone, which it would accept; the others hear of all three."""
    files = make_sites(
        tmp_path / "sites", EXPERIMENT.replace("{secure_sum: {}}", "{secure_sum: {min_sites: 2}}"), "  min_sites: 2\n"
    )
    engine, result = hub(tmp_path, files, {("east", "train-0001"): {"participants": ("east", "north")}})
    void = report(result.folder, 1)["diagnostics"]["secure_sum"]["void"]
    assert void.startswith("the masks of its sum do not cancel")
    assert report(result.folder, 2)["diagnostics"]["secure_sum"]["added"] == 3
    lied, honest = (
        [np.frombuffer(engine.crossed[f"{name}-train-{number:04d}"], np.uint32) for name in NAMES] for number in (1, 2)
    )
    for weights in product((0, 1, -1), repeat=3):
        opened = [
            sum(w * part.astype(np.int64) for w, part in zip(weights, parts, strict=True)) for parts in (lied, honest)
        ]
        if not any(weights):
            continue
        # Three changes of 8 each, the most that there may be, fill three quarters of the ring; chance fills all of it.
        far = [(np.abs((np.asarray(values) + 2**31) % 2**32 - 2**31) > 0.9 * 2**31).mean() for values in opened]
        assert 0.04 < far[0] < 0.2, weights
        assert far[1] == 0 if len(set(weights)) == 1 else 0.04 < far[1] < 0.2, "told alike, the one sum opens"


def test_a_site_says_how_many_it_wants_to_be_among(tmp_path: Path) -> None:
    files = make_sites(tmp_path / "sites")
    files["north"].write_text(files["north"].read_text() + "  min_sites: 4\n")
    engine, result = hub(tmp_path, files)
    void = report(result.folder, 1)["diagnostics"]["secure_sum"]["void"]
    assert void == "of its 3 participants some are missing (north: SumRefused)"
    assert any("takes part in those of at least 4: nothing was done" in line for line in engine.said)


def test_site_and_experiment_say_alike_whether_updates_are_masked(tmp_path: Path) -> None:
    files = make_sites(tmp_path / "clear", EXPERIMENT.replace("sending: {secure_sum: {}}\n", ""))
    with pytest.raises(BadInput, match=r"the experiment has no `sending.secure_sum`: use an experiment that has it"):
        load_site(files["east"])
    masked = make_sites(tmp_path / "masked")["east"]
    masked.write_text(masked.read_text().partition("secure_sum:")[0])
    site = load_site(masked)  # It is made before its keys are.
    for work in (run_site, Worker):
        with pytest.raises(BadInput, match="the site's file names no keys for it: run `fedse site key`"):
            work(site, print)


@pytest.mark.parametrize(
    ("precision", "array"),
    [
        ("sum32", np.zeros(256, np.uint32)),
        ("sum32", np.zeros(258, np.uint32)),
        ("sum32", np.zeros(257, np.float32)),
        ("sum32", np.zeros(257, ">u4")),
        ("sum64", np.zeros(257, np.uint32)),
        ("sum32_squares", np.zeros(257, np.uint32)),
        ("sum16", np.zeros(257, np.uint16)),
    ],
    ids=lambda given: given if isinstance(given, str) else f"{given.dtype.str}{given.shape}",
)
def test_a_part_of_a_sum_of_another_form_is_not_read(precision: str, array: Any) -> None:
    header = {"format": FORMAT, "layout": [["table", [64, 4]]], "counts": {}, "metrics": {}, "scores": []}
    answer = Parcel({**header, "precision": precision, "shared": {}, "probes": {}}, array)
    task = RoundTask(1, "train", np.zeros(256, np.float32), (("table", (64, 4)),), {}, participants=NAMES)
    with pytest.raises(Unexpected):
        read_reply(to_records(answer), "east", task, TensorPlan(), Expected())
    fitting = Parcel({**answer.header, "precision": "sum32"}, np.zeros(257, np.uint32))
    read = read_reply(to_records(fitting), "east", task, TensorPlan(), Expected())
    assert isinstance(read, ClientUpdate) and read.encoded is not None and read.vector is None


def test_a_wrong_key_of_ones_own_is_noticed(tmp_path: Path) -> None:
    files = make_sites(tmp_path)
    east = files["east"]
    (east.parent / "sum.key").unlink()
    command("site", "key", str(east.parent))
    with pytest.raises(BadInput, match="what stands for this site itself, 'east', is not the public half"):
        Worker(load_site(east), print)
