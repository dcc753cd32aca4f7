"""Whole runs with a secure sum: the same adapter, no single update at the hub, and void rounds where a site is missing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import CellType, FunctionType, ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

pytest.importorskip("cryptography")

import fedse
from assembled import assembled
from fedse.adapters.packing import pack
from fedse.aggregators.mean import Mean
from fedse.aggregators.rule import ONLY_THE_SUM
from fedse.engines.local import LocalEngine
from fedse.errors import BadInput, SumRefused
from fedse.experiments.options import Experiment
from fedse.federation.checks import CheckOptions
from fedse.federation.exchange import Replies, Summing
from fedse.federation.summed import SummedUpdates
from fedse.learners.table import TableLearner
from fedse.privacy.secure_sum import SecureSumOptions
from fedse.protocols import StoredUpdate
from fedse.runs.folder import RunFolder
from fedse.types import Adapter, ClientFailure, ClientUpdate, Encoded, Lesson, RoundTask, ServerState

HERE = Path(__file__).stem
CLIENTS = {
    name: {"worlds": [{"name": "maze", "mode": "original", "turn_limit": limit}]}
    for name, limit in (("east", 20), ("north", 15), ("west", 12))
}


@pytest.fixture
def three(table_experiment: Callable[..., Experiment]) -> Callable[..., Experiment]:
    return lambda **changes: table_experiment(
        **{"clients": CLIENTS, "sending": {"secure_sum": {}}, "evaluation": {"tasks": 2, "test_tasks": 0}, **changes}
    )


def report(folder: Path, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"rounds/{number:04d}/report.json").read_text())
    return found


class Remembering(TableLearner):
    """Writes down what each client learned, for the test to look for."""

    learned: ClassVar[list[np.ndarray]] = []

    def learn(self, lesson: Lesson) -> Any:
        adapter, metrics = super().learn(lesson)
        type(self).learned.append(pack(adapter) - pack(lesson.start))
        return adapter, metrics


class Apart(LocalEngine):
    """What the server gets is its own: copies, as off a wire."""

    def poll(self, seconds: float | None = None) -> list[ClientUpdate | ClientFailure]:
        return [_copied(reply) if isinstance(reply, ClientUpdate) else reply for reply in super().poll(seconds)]


def _copied(update: ClientUpdate) -> ClientUpdate:
    encoded = update.encoded and Encoded(update.encoded.precision, update.encoded.array.copy())
    return replace(update, vector=None if update.vector is None else update.vector.copy(), encoded=encoded)


class Searching(Mean):
    """When all updates have arrived, looks for single ones in everything that the server holds and has written."""

    promises = frozenset({ONLY_THE_SUM})
    in_memory: ClassVar[list[int]] = []
    on_disk: ClassVar[list[int]] = []

    def aggregate(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Any:
        before = pack(state.adapter)
        changes = Remembering.learned[-3:]
        frames = list(_frames("fedse/federation"))
        # What is planted deep inside must be found, or the search would prove nothing; here it is the mean of a secure sum.
        (collected,) = {id(frame["collected"]): frame["collected"] for frame in frames if "collected" in frame}.values()
        collected.planted = [{"deep": (update.read(),)} for update in updates]
        for found in _arrays(frames):
            type(self).in_memory.extend(_holding(found, before, changes))
        (spool,) = {frame["spool"] for frame in frames if "spool" in frame}
        for path in spool.parent.rglob("*"):
            if path.is_file() and "clients" not in path.relative_to(spool.parent).parts:
                type(self).on_disk.extend(_written(path.read_bytes(), before, changes))
        return super().aggregate(state, updates)


def _frames(room: str) -> Iterator[dict[str, Any]]:
    frame: Any = sys._getframe()
    while frame is not None:
        if room in frame.f_code.co_filename:
            yield dict(frame.f_locals)
        frame = frame.f_back


def _arrays(roots: Any) -> Iterator[np.ndarray]:
    """Every array that can be reached, without stepping into the engine, behind which the clients are."""
    seen: set[int] = set()
    open_: list[Any] = [roots]
    while open_:
        thing = open_.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType | LocalEngine | str | bytes | int | float):
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            yield thing
        elif isinstance(thing, FunctionType):
            open_ += [*(thing.__closure__ or ()), *(thing.__defaults__ or ())]
        elif isinstance(thing, CellType):
            open_.append(thing.cell_contents)
        elif isinstance(thing, Mapping):
            open_ += [*thing.values()]
        elif isinstance(thing, list | tuple | set | frozenset):
            open_ += [*thing]
        else:
            open_.append(getattr(thing, "__dict__", {}))
            open_.append(getattr(thing, "__self__", None))


def _holding(found: np.ndarray, before: np.ndarray, changes: Sequence[np.ndarray]) -> Iterator[int]:
    if found.dtype.kind not in "fui" or found.size < before.size:
        return
    values = found.ravel()[: before.size]
    forms = [values.astype(np.float64), values.astype(np.float64) - before]
    if values.dtype == np.uint32:
        forms.append(values.view(np.int32) / 2.0**26)
    for number, change in enumerate(changes):
        if any(np.abs(form - change).max() < 1e-4 for form in forms):
            yield number


def _written(content: bytes, before: np.ndarray, changes: Sequence[np.ndarray]) -> Iterator[int]:
    """Whose change stands there, by the sixteen values in a row that are its own the most: a few could be anybody's."""
    for number, change in enumerate(changes):
        others = [other for index, other in enumerate(changes) if index != number]
        own = (change != 0) & np.all([other != change for other in others], axis=0)
        begin = int(np.argmax(np.add.reduceat(own.astype(int), np.arange(0, len(own), 16)))) * 16
        row = slice(begin, begin + 16)
        if any(form[row].tobytes() in content for form in (change, before + change)):
            yield number


@pytest.mark.slow
@pytest.mark.parametrize("secure", [True, False])
def test_the_hub_never_holds_a_single_update(
    secure: bool, three: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a secure sum, the same search finds all three of them on disk, and in memory those that are planted."""
    for where, name in ((Remembering, "learned"), (Searching, "in_memory"), (Searching, "on_disk")):
        monkeypatch.setattr(where, name, [])
    experiment = three(
        engine=f"{HERE}:Apart",
        learner=f"{HERE}:Remembering",
        aggregator=f"{HERE}:Searching",
        sending={"secure_sum": {} if secure else None},
    )
    result = fedse.run(experiment, tmp_path)
    assert len(Remembering.learned) == 6
    changes = Remembering.learned[:3]
    assert min(np.abs(changes[i] - changes[j]).max() for i, j in ((0, 1), (0, 2), (1, 2))) > 0.1, "they differ"
    if secure:
        assert Searching.in_memory == Searching.on_disk == []
        told = report(result.folder, 2)["diagnostics"]
        assert told["secure_sum"] == {"participants": ["east", "north", "west"], "added": 3}
        assert not {"update_norm", "cosine", "cosine_to_mean", "product_gap", "effective_step"} & told.keys()
        assert "nobody but its site sees one" in told["not_measured"] and told["mean_update_norm"] > 0
        assert told["contributed"] == ["east", "north", "west"]
    else:
        assert set(Searching.on_disk) == set(Searching.in_memory) == {0, 1, 2}
        assert "update_norm" in report(result.folder, 2)["diagnostics"]


@pytest.mark.parametrize(
    ("aggregator", "bits", "away"), [("mean", 64, 1e-6), ("fedavgm", 32, 1e-5), ("rolora", 32, 1e-5)]
)
def test_a_secure_sum_leads_to_the_adapter_of_updates_in_the_clear(
    aggregator: str, bits: int, away: float, factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    same = {"clients": CLIENTS, "aggregator": aggregator, "rounds": 2, "evaluation": {"tasks": 2, "test_tasks": 0}}
    clear = fedse.run(factored(**same), tmp_path / "clear").adapter
    masked = fedse.run(factored(**same, sending={"secure_sum": {"bits": bits}}), tmp_path / "masked")
    for name, tensor in clear.tensors.items():
        assert np.abs(masked.adapter.tensors[name] - tensor).max() < away
    told = report(masked.folder, 1)["clients"]["east"]
    assert "loss" in told["metrics"] and "rounding" not in told["metrics"], "it would tell how long the update is"
    values = clear.tensors["table.lora_B.weight"].size if aggregator == "rolora" else clear.size
    assert told["bytes"] == bits // 8 * (values + 1)


class Losing(LocalEngine):
    """North does not answer in round 1."""

    def poll(self, seconds: float | None = None) -> list[ClientUpdate | ClientFailure]:
        return [
            ClientFailure(reply.client, reply.task, "RuntimeError")
            if (reply.client, reply.task) == ("north", "train-0001")
            else reply
            for reply in super().poll(seconds)
        ]


def test_a_missing_site_voids_its_round_and_the_run_goes_on(three: Callable[..., Experiment], tmp_path: Path) -> None:
    result = fedse.run(three(engine=f"{HERE}:Losing"), tmp_path)
    first, second = report(result.folder, 1), report(result.folder, 2)
    manifest = json.loads((result.folder / "manifest.json").read_text())
    assert first["diagnostics"]["secure_sum"]["void"] == (
        "of its 3 participants some are missing (north: RuntimeError)"
    )
    assert first["diagnostics"]["contributed"] == [] and first["clients"]["east"]["sent"] is False
    initial = RunFolder.existing(result.folder).digest_of(0)
    assert manifest and first["adapter"] == initial != second["adapter"]
    assert second["diagnostics"]["contributed"] == ["east", "north", "west"]
    events = [json.loads(line) for line in (result.folder / "events.jsonl").read_text().splitlines()]
    (told,) = [event["message"] for event in events if event.get("kind") == "void_sum"]
    assert told.startswith("round 1 is void: of its 3 participants") and told.endswith("and the run goes on.")
    assert result.warnings == [
        "In 1 of 2 rounds (1) the secure sum was void, and the shared adapter stayed as it was.",
        "Void sums lacked the part of north in 1 of them (RuntimeError).",
    ]


def test_a_sum_that_nobody_was_asked_for_says_so() -> None:
    asked = Adapter({"table": np.zeros(4, np.float32)})
    summed = SummedUpdates(asked, CheckOptions(), Summing(SecureSumOptions(), frozenset({"east"})))
    assert summed.usable(Replies(absent={"east": "Unreachable"}), ()) == []
    assert summed.void == "nobody was asked to add to it"


class Plain(LocalEngine):
    """East's update comes in the clear in round 1; in round 2 somebody changes a bit of it on the way."""

    def poll(self, seconds: float | None = None) -> list[ClientUpdate | ClientFailure]:
        return [self._other(reply) for reply in super().poll(seconds)]

    def _other(self, reply: ClientUpdate | ClientFailure) -> ClientUpdate | ClientFailure:
        if reply.client != "east" or isinstance(reply, ClientFailure) or reply.encoded is None:
            return reply
        if reply.task == "train-0001":
            return replace(reply, vector=np.ones(512 * 4, np.float32), encoded=None)
        return replace(reply, encoded=Encoded("sum32", reply.encoded.array[::-1].copy()))


def test_what_does_not_fit_the_sum_voids_the_round(three: Callable[..., Experiment], tmp_path: Path) -> None:
    result = fedse.run(three(engine=f"{HERE}:Plain"), tmp_path)
    why = [report(result.folder, number)["diagnostics"]["secure_sum"]["void"] for number in (1, 2)]
    assert "east: it was not masked, and updates of this experiment are" in why[0]
    assert why[1].startswith("the masks of its sum do not cancel")
    assert report(result.folder, 2)["adapter"] == RunFolder.existing(result.folder).digest_of(0)


def test_a_mean_out_of_all_proportion_voids_the_round(three: Callable[..., Experiment], tmp_path: Path) -> None:
    result = fedse.run(three(checks={"max_norm": 1e-3}, rounds=1), tmp_path)
    void = report(result.folder, 1)["diagnostics"]["secure_sum"]["void"]
    assert "of the mean of its updates: its change has norm" in void and "above the bound 0.001" in void


def test_a_hub_that_asks_twice_is_refused_before_any_work(three: Callable[..., Experiment], tmp_path: Path) -> None:
    experiment = three()
    federation = assembled(experiment, tmp_path / "run")
    adapter = federation.initial_adapter()
    everybody = tuple(CLIENTS)
    task = RoundTask(1, "train", pack(adapter), adapter.layout, adapter.config, participants=everybody)
    engine = federation.engine
    engine.send({"east": task})
    (first,) = engine.poll()
    assert isinstance(first, ClientUpdate) and first.vector is None and first.encoded is not None
    engine.send({"east": task})
    (again,) = engine.poll()
    assert isinstance(again, ClientUpdate) and again.encoded is not None
    assert again.encoded.array.tobytes() == first.encoded.array.tobytes()
    lines = len((federation.run.client_folder("east") / "ledger.jsonl").read_text().splitlines())
    for other in ({"participants": everybody[:2]}, {"participants": ()}, {"vector": task.vector + 1}):
        engine.send({"east": replace(task, **other)})
        with pytest.raises(SumRefused):
            engine.poll()
    assert len((federation.run.client_folder("east") / "ledger.jsonl").read_text().splitlines()) == lines


def test_a_site_that_only_measures_is_no_part_of_the_sum(three: Callable[..., Experiment], tmp_path: Path) -> None:
    clients = {**CLIENTS, "south": {"worlds": [{"name": "maze", "mode": "original"}], "learns": False}}
    told = report(fedse.run(three(clients=clients, rounds=1), tmp_path).folder, 1)
    assert told["diagnostics"]["secure_sum"] == {"participants": ["east", "north", "west"], "added": 3}
    assert told["clients"]["south"]["bytes"] == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"aggregator": "median"}, "`aggregator: median` looks at single updates"),
        ({"aggregator": "size_weighted"}, "`aggregator: size_weighted` looks at single updates"),
        ({"aggregator": "krum"}, "`aggregator: krum` looks at single updates"),
        ({"mix": "weight_by_gain"}, "`mix: weight_by_gain` needs what each client sent"),
        ({"participation": {"quorum": 0.5}}, "a secure sum needs all sites that were asked"),
        (
            {"participation": {"fraction": 0.5}},
            r"`sending\.secure_sum\.min_sites` is 3, and a round may have only 2 clients that learn: let more",
        ),
        (
            {"clients": {"east": CLIENTS["east"]}},
            "only 1 client that learns: let more .* take part in every round, 3 or more of them, because with two sites",
        ),
        (
            {"sending": {"secure_sum": {"min_sites": 4}}},
            "only 3 clients that learn: set it to 3, or let more",
        ),
        ({"method": "local_se"}, "with `sharing: none` nobody sends anything"),
        (
            {"sending": {"secure_sum": {}, "precision": "int8"}},
            "`precision: int8` rounds updates that are sent in the clear",
        ),
        ({"sending": {"secure_sum": {"min_sites": 1}}}, "greater than or equal to 2"),
    ],
)
def test_what_does_not_go_with_a_secure_sum_is_refused_when_it_is_read(
    changes: dict[str, Any], why: str, three: Callable[..., Experiment]
) -> None:
    with pytest.raises(BadInput, match=why):
        three(**changes)


@pytest.mark.slow
@pytest.mark.parametrize(("fewest", "warnings"), [(2, 1), (3, 0)])
def test_a_run_warns_once_that_in_a_sum_of_two_each_site_has_the_others_update(
    fewest: int, warnings: int, three: Callable[..., Experiment], tmp_path: Path
) -> None:
    folder = fedse.run(three(rounds=2, sending={"secure_sum": {"min_sites": fewest}}), tmp_path).folder
    told = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert sum("takes its own update out of the mean and has the other's" in str(event) for event in told) == warnings


class Reading(Mean):
    """Writes down what the hub can read of a sum."""

    promises = frozenset({ONLY_THE_SUM})
    read: ClassVar[list[np.ndarray]] = []

    def aggregate(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Any:
        type(self).read.extend(update.read() for update in updates)
        return super().aggregate(state, updates)


@pytest.mark.slow
def test_what_the_hub_reads_of_a_sum_is_what_it_broadcasts(three: Callable[..., Experiment], tmp_path: Path) -> None:
    """So the audit's seat of another site is that of the hub as well."""
    Reading.read = []
    adapter = fedse.run(three(aggregator=f"{HERE}:Reading", rounds=2), tmp_path).adapter
    assert len(Reading.read) == 2, "one sum a round"
    np.testing.assert_array_equal(Reading.read[-1], pack(adapter))
