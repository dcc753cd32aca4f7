"""What a hub may ask of a site: the worker in process, asked for everything that it should refuse."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import replace
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("flwr")

from fedse.adapters.packing import pack
from fedse.adapters.plan import TensorPlan
from fedse.apps.asked import Expected, read_header, read_task
from fedse.apps.hub_file import load_for_hub, told_worlds_of
from fedse.apps.site_file import Site, load_site
from fedse.apps.worker import Worker
from fedse.cli import app
from fedse.engines.flower.client_replies import read_reply
from fedse.engines.flower.grid import GridEngine
from fedse.engines.flower.seal import Seal, SealOfHub
from fedse.engines.flower.wire import Parcel, from_records, pack_task, to_bytes, to_records
from fedse.errors import BadInput, OverBudget, RunConflict, UnreadableTask
from fedse.experience.buffer import SCHEMA, read_file
from fedse.experience.journal import Journal
from fedse.experiments.known_before import expected_of
from fedse.federation.sites import Sites
from fedse.learners.table import TableLearner
from fedse.mixes.broadcast import Broadcast
from fedse.models.table import Table
from fedse.rollouts.replaying import has_prefix
from fedse.runs.trackers import Trackers
from fedse.types import ClientUpdate, Layout, Learned, Lesson, RoundTask
from fedse.worlds.maze import Maze

MAZE = "{name: maze, mode: original, rules: brief, observation_length: brief}"
EXPERIMENT = """
name: small
rounds: 9
model: {name: table, rows: 64}
policy: table
learner: table
clients:
  east: {worlds: [MAZE]}
  west: {worlds: [MAZE]}
start: {tasks: 2}
exploration: {tasks: 4}
evaluation: {tasks: 1, test_tasks: 1}
buffer: {repeats: true}
filter: none
""".replace("MAZE", MAZE)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked") / "hub"
    return made(folder, "east", "west")


def made(folder: Path, *sites: str) -> Path:
    """A hub, as its operator makes it."""
    words = [word for site in sites for word in ("--site", site)]
    done = CliRunner().invoke(app, ["hub", "init", str(folder), "--address", "hub.example:8443", *words])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def kit(hub: Path, tmp_path: Path) -> Path:
    shutil.copytree(hub / "sites/east", tmp_path / "east")
    shutil.copyfile(hub / "certificates/seal.key", tmp_path / "seal.key")
    (tmp_path / "east/experiment.yaml").write_text(EXPERIMENT)
    return tmp_path / "east"


class Asked:
    """A site's worker, and a hub that asks what it likes."""

    def __init__(self, kit: Path, more: str = "") -> None:
        if more:
            with (kit / "site.yaml").open("a") as file:
                file.write(more)
        self.said: list[str] = []
        self.site: Site = load_site(kit / "site.yaml")
        self.worker = Worker(self.site, self.said.append)
        self.folder = kit / "data/small/clients/east"
        self.adapter = Table(rows=64).initial_adapter(0)
        self.seal = Seal.read(kit.parent / "seal.key")

    def task(self, **changes: Any) -> RoundTask:
        task = RoundTask(1, "train", pack(self.adapter), self.adapter.layout, self.adapter.config)
        return replace(task, **changes)

    def parcel(self, **changes: Any) -> Parcel:
        return pack_task(self.task(**changes), "east", self.site.experiment.name, self.site.terms)

    def ask(self, **changes: Any) -> Parcel:
        return self.answer(self.parcel(**changes))

    def answer(self, parcel: Parcel) -> Parcel:
        """To what the hub itself sends, signed."""
        return self.worker.answer(sealed(self.seal, parcel))

    def refused(self, **changes: Any) -> str:
        """The class of the error that crosses, empty where the task was done."""
        return str(self.ask(**changes).header.get("failure", ""))

    def rounds(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for trajectory in read_file(self.folder / "buffer.sqlite"):
            found[trajectory.round] = found.get(trajectory.round, 0) + 1
        return found


def sealed(seal: Seal, parcel: Parcel) -> Parcel:
    """What cannot be signed is sent as it is."""
    try:
        return seal(parcel)
    except ValueError:
        return parcel


@pytest.mark.parametrize("older", [2, 1, 0, -1, -(10**400)])
def test_an_older_round_touches_nothing_and_is_told(kit: Path, older: int) -> None:
    asked = Asked(kit)
    for number in (1, 2, 3):
        assert asked.refused(round=number) == ""
    before, files = asked.rounds(), sorted(asked.folder.rglob("*"))
    assert before == {0: 2, 1: 4, 2: 4, 3: 4}
    assert asked.refused(round=older) == ("OldRound" if older > 0 else "UnreadableTask")
    assert asked.rounds() == before and sorted(asked.folder.rglob("*")) == files
    if older > 0:
        assert "has answered round 3" in asked.said[-1] and "another --runs" in asked.said[-1]
    # A site that was started again remembers it.
    assert Asked(kit).refused(round=1) == "OldRound" and asked.rounds() == before


def test_a_site_of_an_older_fedse_knows_its_last_round_by_its_buffer(kit: Path) -> None:
    asked = Asked(kit)
    for number in (1, 2):
        asked.ask(round=number)
    (asked.folder / "asked.json").unlink()
    again = Asked(kit)
    assert again.refused(round=1) == "OldRound" and again.refused(round=2) == "" and again.refused(round=3) == ""


def test_the_last_round_can_be_repeated_and_what_it_replaces_is_kept(kit: Path) -> None:
    asked = Asked(kit)
    asked.ask(round=1)
    first = asked.ask(round=2)
    again = Asked(kit)
    second = again.ask(round=2)
    assert first.array is not None and second.array is not None
    assert first.header == second.header and first.array.tobytes() == second.array.tobytes()
    other = pack(asked.adapter) + 1
    for _ in range(2):
        assert again.refused(round=2, vector=other) == ""
    kept = sqlite3.connect(asked.folder / "archive.sqlite")
    counts = dict(kept.execute(f"SELECT round, COUNT(DISTINCT adapter) FROM trajectories_{SCHEMA} GROUP BY round"))
    kept.close()
    # What the first two times left is alike and kept once; what stands in the buffer now is that of the other adapter.
    assert counts == {2: 1} and again.rounds() == {0: 2, 1: 4, 2: 4}
    assert again.refused(round=2) == ""
    kept = sqlite3.connect(asked.folder / "archive.sqlite")
    assert kept.execute(f"SELECT COUNT(DISTINCT adapter) FROM trajectories_{SCHEMA}").fetchone() == (2,)
    kept.close()
    assert any("done again; the 4 trajectories" in line for line in again.said)


def test_a_first_round_is_repeated_from_what_was_known_before_it(kit: Path) -> None:
    maze = "{name: maze, size: 4, train_tasks: 30, rules: brief, observation_length: brief}"
    text = EXPERIMENT.replace(MAZE, maze).replace("start: {tasks: 2}", "start: {tasks: 10}")
    (kit / "experiment.yaml").write_text(f"{text}curriculum: {{name: prefixes, signal: null}}\n")
    asked = Asked(kit)
    first, second = asked.ask(round=1), Asked(kit).ask(round=1)
    assert first.array is not None and second.array is not None
    assert first.header == second.header and first.array.tobytes() == second.array.tobytes()
    asked = Asked(kit)
    prefixed = [asked.ask(round=round) and _prefixed(asked, round) for round in (1, 2)]
    assert prefixed == [0, 2]


def _prefixed(asked: Asked, round: int) -> int:
    return sum(map(has_prefix, Journal(asked.folder / "episodes").read(f"{round:04d}")))


def test_a_damaged_count_stops_the_site_with_a_sentence(kit: Path) -> None:
    Asked(kit).ask()
    file = kit / "data/small/clients/east/asked.json"
    for content in ("", "[]", '{"round": -1}', '{"round": 1.5}', '{"seconds": NaN}', '{"more": 1}'):
        file.write_text(content)
        with pytest.raises(BadInput, match=r"asked\.json.*is damaged"):
            Asked(kit)


@pytest.mark.parametrize(
    ("budget", "allowed", "then"),
    [
        ("rounds: 2", [{"round": 1}, {"round": 2}], {"round": 3}),
        ("repeats: 2", [{"round": 1}, {"round": 1}], {"round": 1}),
        ("evaluations: 1", [{"kind": "evaluate"}, {"round": 1}, {"kind": "evaluate"}], {"kind": "evaluate"}),
        ("megabytes: 0.0011", [{"round": 1}], {"round": 2}),
        ("hours: 0.0000001", [{"round": 1}], {"round": 2}),
    ],
)
def test_what_is_over_the_budget_is_refused_also_after_a_restart(
    kit: Path, budget: str, allowed: list[dict[str, Any]], then: dict[str, Any]
) -> None:
    asked = Asked(kit, f"budget: {{{budget}}}\n")
    for changes in allowed:
        failure = asked.refused(**changes)
        assert failure == "" or (failure == "TooLate" and "hours" in budget)
    before = asked.rounds() if (asked.folder / "buffer.sqlite").exists() else {}
    for worker in (asked, Asked(kit)):
        assert worker.refused(**then) == "OverBudget"
        name, value = budget.split(": ")
        assert f"budget.{name} = {float(value):g}" in worker.said[-1]
    assert asked.rounds() == before


def test_evaluations_without_end_are_refused_by_default(kit: Path) -> None:
    asked = Asked(kit)
    answers = [asked.refused(round=0, kind="evaluate", vector=pack(asked.adapter) + n) for n in range(14)]
    assert answers == [""] * 10 + ["OverBudget"] * 4
    assert asked.refused(round=1) == "" and asked.refused(round=1, kind="evaluate") == ""


def with_header(parcel: Parcel, **changes: Any) -> Parcel:
    return Parcel({**parcel.header, **changes}, parcel.array)


NAN, MUCH = np.float32("nan"), np.float32(1e30)


@pytest.mark.parametrize(
    "header",
    [
        {"format": 1},
        {"round": "1"},
        {"round": True},
        {"round": 1.0},
        {"round": 10**7},
        {"kind": "delete"},
        {"kind": None},
        {"split": "train2"},
        {"split": ["test"]},
        {"world": "maze"},  # of a train task
        {"seconds": -1},
        {"seconds": float("inf")},
        {"seconds": float("nan")},
        {"seconds": 10**400},
        {"layout": []},
        {"layout": [["table", [64, 4]], ["table", [64, 4]]]},
        {"layout": [["table", [64, 4]], ["other", [1]]]},
        {"layout": [["table", [4, 64]]]},
        {"layout": [["table", [2**40, 2**40]]]},
        {"layout": {"table": [64, 4]}},
        {"layout": [["table", [64, 4]], ["x.lora_A.residual.weight", [10**9, 1]]]},
        {"shared": {"bandit": {"x": [[1], [1.0]]}}},
        {"shared": []},
        {"config": []},
        {"client": {"east": 1}},
        {"more": 1},
    ],
    ids=str,
)
def test_what_no_honest_hub_asks_is_refused_before_anything_is_done(kit: Path, header: dict[str, Any]) -> None:
    asked = Asked(kit)
    answer = asked.answer(with_header(asked.parcel(), **header))
    assert answer.header["failure"] == "UnreadableTask", asked.said
    assert "Traceback" not in asked.said[-1] and len(asked.said[-1]) < 400
    assert not (asked.folder / "asked.json").exists() and not (asked.folder / "ledger.jsonl").exists()


@pytest.mark.parametrize(
    "array",
    [
        None,
        np.zeros(255, np.float32),
        np.zeros(257, np.float32),
        np.zeros((64, 4), np.float32),
        np.zeros(256, np.float64),
        np.zeros(256, ">f4"),
        np.zeros(256, np.complex64),
        np.array(["x"] * 256),
        np.full(256, NAN),
        np.full(256, MUCH),
        np.full(256, -np.inf, np.float32),
    ],
    ids=lambda array: "none" if array is None else f"{array.dtype}{array.shape}{array.flat[0]}",
)
def test_an_adapter_that_is_not_finite_or_does_not_fit_is_refused(kit: Path, array: Any) -> None:
    asked = Asked(kit)
    for kind in ("train", "evaluate"):
        parcel = Parcel(asked.parcel(kind=kind).header, array)
        assert asked.answer(parcel).header["failure"] == "UnreadableTask"
    assert not (asked.folder / "ledger.jsonl").exists()


def test_bytes_that_are_no_message_do_not_end_the_worker(kit: Path) -> None:
    asked = Asked(kit)
    nested = b'{"header": ' + b"[" * 100_000 + b"]" * 100_000 + b', "array": null}'
    whole = to_bytes(asked.seal(asked.parcel()))
    listed = b'{"header": [1], "array": null}'
    contents = [b"", b"\xff" * 50, *(len(head).to_bytes(8, "big") + head for head in (nested, listed)), whole[:-1]]
    for content in contents:
        assert asked.worker.answer_to_bytes(content).header["failure"] == "UnreadableTask"
    assert asked.worker.answer_to_bytes(whole).header.get("failure") is None


def test_a_task_that_the_hub_did_not_sign_or_meant_for_another_is_refused(kit: Path, hub: Path, tmp_path: Path) -> None:
    asked = Asked(kit)
    plain, true = asked.parcel(), asked.seal(asked.parcel())
    stranger = Seal.read(made(tmp_path / "other", "east") / "certificates/seal.key")
    assert true.array is not None
    changed = [
        plain,
        stranger(plain),
        with_header(true, seal=""),
        with_header(true, seal="ä"),
        with_header(true, seal="A" * 88),
        with_header(true, round=2),
        with_header(true, kind="evaluate"),
        with_header(true, seconds=5.0),
        with_header(true, client="west"),
        with_header(true, terms="0"),
        Parcel(true.header, true.array + 1),
        Parcel(true.header, true.array[:-1]),
        Parcel(true.header, true.array.reshape(64, 4)),
        Parcel(true.header, None),
    ]
    for parcel in changed:
        assert asked.worker.answer(parcel).header["failure"] == "Unsealed"
        assert "not signed with the hub's own key" in asked.said[-1]
    for_west = asked.seal(with_header(plain, client="west"))
    assert asked.worker.answer(for_west).header["failure"] == "OtherTerms"
    assert not (asked.folder / "asked.json").exists() and not (asked.folder / "ledger.jsonl").exists()
    # As it crosses: through JSON and back.
    assert asked.worker.answer_to_bytes(to_bytes(true)).header.get("failure") is None


def test_the_grid_engine_signs_every_task_it_sends(hub: Path) -> None:
    pushed: list[Any] = []

    class Grid:
        def get_nodes(self) -> list[Any]:
            return [SimpleNamespace(name="east", node_id=7, last_activated_at="")]

        def push_messages(self, messages: list[Any]) -> list[str]:
            pushed.extend(messages)
            return ["1"]

    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    # Set by Flower in the processes it starts; a message cannot be made without it.
    identity.run_id, identity.node_id, identity.task_id = 1, 1, 1
    sites = Sites(("east",), "small", "terms", TensorPlan(), Trackers([]))
    engine = GridEngine(Grid(), sites, seal=Seal.read(hub / "certificates/seal.key"))
    adapter = Table(rows=4).initial_adapter(0)
    engine.send({"east": RoundTask(1, "train", pack(adapter), adapter.layout, adapter.config, seconds=60.0)})
    sent = from_records(pushed[0].content)
    SealOfHub.read(hub / "sites/east/hub.pub").check(sent)
    assert sent.header["client"] == "east" and sent.header["seal"]


@pytest.mark.parametrize("content", ["", "nonsense", "OTHER"])
def test_a_key_that_is_none_is_explained(kit: Path, hub: Path, content: str) -> None:
    other = (hub / "certificates/server.key").read_text() if content == "OTHER" else content
    (kit / "hub.pub").write_text(other)
    with pytest.raises(BadInput, match="is not the public key of a hub"):
        Asked(kit)
    (kit.parent / "seal.key").write_text(other)
    with pytest.raises(BadInput, match="not the key with which a hub signs"):
        Seal.read(kit.parent / "seal.key")
    with pytest.raises(BadInput, match="`fedse hub init` of this hub makes it"):
        Seal.read(kit / "none")


A, B = "x.lora_A.weight", "x.lora_B.weight"
MORE_A, MORE_B = "x.lora_A.residual.weight", "x.lora_B.residual.weight"


def layout_of(rank: int, **more: tuple[int, ...]) -> Layout:
    shapes: dict[str, tuple[int, ...]] = {A: (2, 8), B: (6, 2)}
    if rank:
        shapes |= {MORE_A: (rank, 8), MORE_B: (6, rank)}
    return tuple(sorted({**shapes, **more}.items()))


@pytest.mark.parametrize(
    ("layout", "rank", "sentence"),
    [
        (layout_of(0), None, ""),
        (layout_of(6), None, ""),
        (layout_of(7), None, "7 ranks, which no module"),
        (layout_of(10**9), None, "which no module"),
        (layout_of(3), 5, ""),
        (layout_of(4), 5, "2 ranks and a residual of 4, more than budget.rank = 5"),
        (layout_of(0), 1, "2 ranks and a residual of 0, more than budget.rank = 1"),
        (layout_of(3, **{MORE_B: (6, 4)}), None, "does not fit"),
        (layout_of(3, **{MORE_A: (3, 9)}), None, "does not fit"),
        (layout_of(0, **{MORE_A: (3, 8)}), None, "does not fit"),
        (layout_of(3, **{"y.lora_B.residual.weight": (6, 3)}), None, "does not fit"),
        (layout_of(0, **{"x.lora_A.personal.weight": (2, 8)}), None, "other tensors"),
        (layout_of(0, **{A: (3, 8)}), None, "other tensors"),
    ],
)
def test_a_residual_has_the_ranks_that_a_module_can_have_or_the_site_allows(
    layout: Layout, rank: int | None, sentence: str
) -> None:
    expected = Expected(layout_of(0), {"r": 2}, frozenset(), frozenset({"bandit"}), rank)
    vector = np.zeros(sum(prod(shape) for _, shape in layout) % 10**6, np.float32)
    task = RoundTask(1, "train", vector, layout, {"lora_alpha": 1e9}, shared={"bandit": {"x": np.ones(2, np.float32)}})
    head = read_header(pack_task(task, "east", "small", ""))
    if sentence:
        with pytest.raises(OverBudget if "budget" in sentence else UnreadableTask, match=sentence):
            read_task(head, vector, expected)
    else:
        read = read_task(head, vector, expected)
        # The configuration is the site's own, whatever the hub says.
        assert read.layout == layout and read.config == {"r": 2}
        assert read.shared["bandit"]["x"].tolist() == [1, 1]


class TellingLearner(TableLearner):
    """Says more than it should."""

    metrics = frozenset({"final"})

    def learn(self, lesson: Lesson) -> Learned | None:
        learned = super().learn(lesson)
        return learned and (learned[0], {"first_loss": 0.25, "loss": 0.25, "final": 0.125})


def test_how_well_the_hubs_adapter_knows_the_buffer_stays_at_the_site(kit: Path) -> None:
    file = kit / "experiment.yaml"
    file.write_text(EXPERIMENT.replace("learner: table", f"learner: '{__name__}:TellingLearner'"))
    answer = Asked(kit).ask()
    assert answer.array is not None and answer.header["metrics"] == {"final": 0.125}


SHARED = EXPERIMENT.replace(f"  east: {{worlds: [{MAZE}]}}\n", "  east:\n").replace(
    f"  west: {{worlds: [{MAZE}]}}\n", "WEST"
)
OTHERS = {
    "nothing is said": "  west:\n",
    "an empty entry": "  west: {}\n",
    "only that it measures": "  west: {learns: false}\n",
    "a class of its own": "  west: {worlds: ['only_at_west.ward:Ward']}\n",
}


@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS)
def test_worlds_of_others_need_not_be_known_here_nor_those_of_a_site_at_the_hub(kit: Path, others: str) -> None:
    file = kit / "experiment.yaml"
    file.write_text(SHARED.replace("WEST", others))
    asked = Asked(kit, "worlds: [{name: maze, mode: original, turn_limit: 9}]\n")
    assert asked.refused() == "" and asked.rounds()[1] == 4
    assert load_for_hub(file).terms == asked.site.terms
    assert [part.options["turn_limit"] for part in asked.site.experiment.clients["east"].worlds] == [9]


def test_a_site_needs_worlds_of_its_own_that_it_can_import(kit: Path) -> None:
    file = kit / "experiment.yaml"
    for own in ("east:", "east: {}", "east: {learns: true}"):
        file.write_text(SHARED.replace("WEST", OTHERS["nothing is said"]).replace("east:", own))
        with pytest.raises(BadInput, match=r"neither this file nor the experiment .* names the worlds of 'east'"):
            load_site(kit / "site.yaml")
    file.write_text(EXPERIMENT.replace(MAZE, "'not_here.ward:Ward'", 1))
    with pytest.raises(BadInput, match="there is no module 'not_here'"):
        load_site(kit / "site.yaml")
    with (kit / "site.yaml").open("a") as text:
        text.write("worlds: [maze]\n")
    assert [part.name for part in load_site(kit / "site.yaml").experiment.clients["east"].worlds] == ["maze"]


@pytest.mark.parametrize("damage", ["removed", "emptied", "edited", "deleted rows"])
def test_a_site_does_not_work_with_another_buffer_than_it_had(kit: Path, damage: str) -> None:
    asked = Asked(kit)
    for number in (1, 2):
        asked.ask(round=number)
    path = asked.folder / "buffer.sqlite"
    if damage == "removed":
        path.unlink()
    elif damage == "emptied":
        path.write_bytes(b"")
    else:
        with sqlite3.connect(path) as connection:
            edit = "UPDATE trajectories SET score = 0.25" if damage == "edited" else "DELETE FROM trajectories"
            connection.execute(f"{edit} WHERE round = 1")
    with pytest.raises(RunConflict, match=r"buffer\.sqlite .*restore it from a copy, or move .* away"):
        Asked(kit)


def test_a_round_that_was_cut_off_at_a_site_is_no_damage(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(kit)
    asked.ask(round=1)
    with monkeypatch.context() as patched:
        patched.setattr("fedse.clients.own_record.OwnRecord.close_round", lambda *_: 1 / 0)
        asked.ask(round=2)
    again = Asked(kit)
    assert again.refused(round=2) == "" and again.rounds() == {0: 2, 1: 4, 2: 4}
    Asked(kit)


class WardOfPatient4711(Maze):
    """A world whose name says something, with an error whose name says more."""

    def begin(self, task: str) -> str:
        if task == "1":
            raise type("patient_4711_has_a_rare_disease", (Exception,), {})
        return super().begin(task)


@pytest.mark.parametrize(
    ("written", "told"),
    [("", "other"), (f"{{name: '{__name__}:WardOfPatient4711', mode: original}}", "WardOfPatient4711")],
)
def test_a_world_is_told_under_a_name_that_the_common_file_has_or_as_another(
    kit: Path, written: str, told: str
) -> None:
    east = f"  east: {{worlds: [{MAZE}]}}\n"
    file = kit / "experiment.yaml"
    file.write_text(
        EXPERIMENT.replace(east, f"  east: {{worlds: [{written}]}}\n" if written else "  east:\n")
        .replace("tasks: 1", "tasks: 40")
        .replace("test_tasks: 1", "test_tasks: 40")
    )
    own = f"worlds: [{{name: '{__name__}:WardOfPatient4711', mode: original}}]\n"
    answer = Asked(kit, own).ask(kind="evaluate", split="test")
    (score,) = answer.header["scores"]
    assert (score["world"], score["errors"]) == (told, {"other": 1})
    assert b"rare_disease" not in to_bytes(answer) and (told == "other") == (b"Patient" not in to_bytes(answer))
    worlds = told_worlds_of(file)
    expected = replace(expected_of(load_for_hub(file)), worlds=worlds)
    hub = read_reply(to_records(answer), "east", Asked(kit).task(kind="evaluate", split="test"), TensorPlan(), expected)
    assert isinstance(hub, ClientUpdate) and hub.scores[0].world == told
    assert worlds.get("east") == ((told,) if written else None)


class TakesAll(Broadcast):
    """A mix that is sent what the others sent."""

    needs_library = True


@pytest.fixture
def with_library(kit: Path) -> Path:
    (kit / "experiment.yaml").write_text(f"{EXPERIMENT}mix: {__name__}:TakesAll\n")
    return kit


def test_adapters_of_other_sites_come_only_where_the_experiment_asks_for_them(kit: Path) -> None:
    asked = Asked(kit)
    assert asked.refused(library={"west": pack(asked.adapter)}) == "UnreadableTask"
    assert "for which this experiment has no use" in asked.said[-1] and not asked.rounds()
    assert asked.refused() == ""


def test_a_library_that_does_not_fit_is_refused_and_one_that_does_is_counted(with_library: Path) -> None:
    asked = Asked(with_library, "budget: {megabytes: 0.02}\n")
    assert "single updates of all the others" in asked.said[0]
    own = pack(asked.adapter)
    spoilt = own.copy()
    spoilt[3] = np.nan
    for library in ({"west": own[:-1]}, {"west": spoilt}, {"west": own + np.float32(np.inf)}):
        assert asked.refused(library=library) == "UnreadableTask"
    doubled = asked.parcel(library={"west": own, "east": own})
    twice = Parcel({**doubled.header, "library": ("west", "west")}, doubled.array)
    assert (
        asked.answer(twice).header["failure"] == "UnreadableTask" and "two adapters of the same site" in asked.said[-1]
    )
    assert not asked.rounds()
    assert asked.refused(library={"east": own, "west": own}) == ""
    spent = json.loads((asked.folder / "asked.json").read_text())["bytes"]
    assert spent == 3 * own.nbytes
    many = {f"site{number}": own for number in range(int(0.02e6 / own.nbytes))}
    assert asked.refused(round=2, library=many) == "OverBudget"
