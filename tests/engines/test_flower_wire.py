"""What crosses in Flower's messages, and what the server makes of answers that are lost, late or forged."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedse.adapters.plan import TensorPlan
from fedse.adapters.rounding import decode, encode
from fedse.engines.flower.client_replies import read_reply
from fedse.engines.flower.grid import MOST_LOSSES, GridEngine
from fedse.engines.flower.names_without_keys import NamesWithoutKeys
from fedse.engines.flower.whole_replies import AT_ONCE, TURNS, WholeReplies
from fedse.engines.flower.wire import (
    FORMAT,
    ClientReply,
    Parcel,
    from_bytes,
    from_records,
    pack_reply,
    pack_task,
    read_task,
    to_bytes,
    to_records,
)
from fedse.engines.flower.work import answer_to
from fedse.events import Event, Warned
from fedse.federation.expected import Expected, Unexpected
from fedse.federation.sites import Sites
from fedse.privacy import names
from fedse.types import ClientFailure, ClientUpdate, RoundTask, WorldScore

LAYOUT = (("a.lora_A.weight", (2, 3)), ("b", (4,)))
VECTOR = np.arange(10, dtype=np.float32) / 7
SECRET = "patient 4711 has a rare disease"


COUNTS = dict.fromkeys(sorted(names.COUNTS - {"only_measures"}), 0)
EXPECTED = Expected(worlds={"site": ("maze",), "far": ("maze",)}, explored=20, started=10, tested={"validation": 10})


def task(**changes: Any) -> RoundTask:
    content: dict[str, Any] = {"round": 3, "kind": "train", "vector": VECTOR, "layout": LAYOUT, "config": {"r": 8}}
    return RoundTask(**{**content, **changes})


def update(precision: Any = "float32") -> ClientUpdate:
    encoded = encode(VECTOR + np.float32(0.1), VECTOR, precision)
    score = WorldScore("maze", "validation", 5, 2, 30, 200, 1, {"KeyError": 1}, 0.1, None)
    counts, metrics = COUNTS | {"explored": 9}, {"loss": 0.1 + 0.2, "first_loss": float("nan")}
    vector = decode(encoded, VECTOR)
    return ClientUpdate("site", 3, vector, LAYOUT, counts, metrics, (score,), "train-0003", encoded)


def answer(parcel: Parcel, asked: RoundTask | None = None, plan: TensorPlan | None = None) -> ClientReply:
    return read_reply(to_records(parcel), "site", asked or task(), plan or TensorPlan(), EXPECTED)


def carried(parcel: Parcel) -> list[Parcel]:
    pytest.importorskip("flwr")
    return [from_bytes(to_bytes(parcel)), from_records(to_records(parcel))]


def test_a_task_arrives_as_it_was_sent() -> None:
    sent = task(seconds=12.5, kind="evaluate", split="test", world="maze")
    for parcel in carried(pack_task(sent, "site", "run", "terms")):
        got = read_task(parcel)
        assert got.vector.tobytes() == VECTOR.tobytes() and got.layout == LAYOUT
        assert (got.name, got.seconds, got.config) == ("test-0003-maze", 12.5, {"r": 8})
        assert (parcel.header["client"], parcel.header["run"], parcel.header["terms"]) == ("site", "run", "terms")


def test_a_library_arrives_in_the_same_array() -> None:
    library = {"far": VECTOR + 1, "near": VECTOR * np.float32(1 / 3)}
    layout = (*LAYOUT, ("c.lora_A.residual.weight", (1, 2)))
    vector = np.concatenate([VECTOR, VECTOR[:2]])
    for sent in (task(library=library), task(vector=vector, layout=layout, library=library), task()):
        for parcel in carried(pack_task(sent, "site", "run", "terms")):
            got = read_task(parcel)
            assert got.vector.tobytes() == sent.vector.tobytes() and list(got.library) == list(sent.library)
            assert all(got.library[name].tobytes() == sent.library[name].tobytes() for name in sent.library)


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_an_update_arrives_bit_for_bit_at_every_precision(precision: str) -> None:
    sent = update(precision)
    for parcel in carried(pack_reply(sent)):
        got = answer(parcel)
        assert isinstance(got, ClientUpdate) and got.vector is not None and sent.vector is not None
        assert got.vector.tobytes() == sent.vector.tobytes() and got.layout == LAYOUT
        assert got.counts == sent.counts and got.scores == sent.scores and got.metrics["loss"] == 0.1 + 0.2
        assert np.isnan(got.metrics["first_loss"])


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_a_part_of_the_adapter_is_read_as_the_change_of_that_part(precision: Any) -> None:
    names = ("x.lora_A.residual.weight", "x.lora_A.weight", "x.lora_B.residual.weight", "x.lora_B.weight")
    asked = task(vector=np.arange(40, dtype=np.float32), layout=tuple((name, (2, 5)) for name in names))
    part = asked.vector[30:]
    encoded = encode(part + np.float32(0.25), part, precision)
    vector, layout = decode(encoded, part), ((names[3], (2, 5)),)
    for parcel in carried(pack_reply(ClientUpdate("site", 3, vector, layout, COUNTS, {}, (), "train-0003", encoded))):
        got = answer(parcel, asked, TensorPlan(trained="B", sent="B"))
        assert isinstance(got, ClientUpdate) and got.vector is not None
        assert np.allclose(got.vector, part + 0.25, atol=0.01) and got.vector.tobytes() == vector.tobytes()
        with pytest.raises(Unexpected, match="other names or shapes"):
            answer(parcel, asked, TensorPlan())


def test_an_abstention_crosses_without_an_array() -> None:
    for parcel in carried(pack_reply(ClientUpdate("site", 3, None, LAYOUT, {"buffer": 0}, {}, (), "train-0003"))):
        got = answer(parcel)
        assert parcel.array is None and isinstance(got, ClientUpdate) and got.vector is None


def test_only_the_class_of_an_error_crosses() -> None:
    def broken(client: str) -> Any:
        raise KeyError(SECRET)

    for parcel in carried(answer_to(pack_task(task(), "site", "run", "terms"), broken)):
        assert parcel.header == {"format": FORMAT, "failure": "KeyError"}


def test_an_answer_cannot_say_whose_it_is_nor_to_what() -> None:
    forged = pack_reply(update())
    got = answer(forged)
    assert (got.client, got.task) == ("site", "train-0003") and isinstance(got, ClientUpdate) and got.round == 3
    for claim in ({"client": "other"}, {"round": 99}, {"task": "train-0099"}):
        with pytest.raises(Unexpected, match="the header: extra_forbidden"):
            answer(Parcel({**forged.header, **claim}, forged.array))


class Grid:
    """Flower's grid with a script: what each pushed message leads to."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.pushed: list[Any] = []
        self.nodes = {"site": SimpleNamespace(name="site", node_id=7, last_activated_at="monday")}
        self._replies: dict[str, Any] = {}

    def get_nodes(self) -> Iterable[Any]:
        return list(self.nodes.values())

    def push_messages(self, messages: list[Any]) -> list[str]:
        return [self._push(message) for message in messages]

    def _push(self, message: Any) -> str:
        number = f"m{len(self.pushed)}"
        self.pushed.append(message)
        outcome = self.script.pop(0) if self.script else None
        if outcome is not None:
            error = isinstance(outcome, int)
            self._replies[number] = SimpleNamespace(
                metadata=SimpleNamespace(reply_to_message_id=number),
                has_error=lambda: error,
                error=SimpleNamespace(code=outcome, reason=SECRET),
                content=None if error else to_records(outcome),
            )
        return number

    def pull_messages(self, numbers: list[str]) -> list[Any]:
        return [self._replies.pop(number) for number in numbers if number in self._replies]


class Heard:
    """A tracker that keeps what it is told."""

    def __init__(self) -> None:
        self.warnings: list[Warned] = []

    def record(self, event: Event) -> None:
        assert isinstance(event, Warned)
        self.warnings.append(event)


def nobody(*_: Any) -> Any:
    raise AssertionError


def engine(grid: Any, introduced: bool = False) -> GridEngine:
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    # Set by Flower in the processes it starts; a message cannot be made without it.
    identity.run_id, identity.node_id, identity.task_id = 1, 1, 1
    sites = Sites(("site", "far"), "run", "terms", TensorPlan(), Heard(), EXPECTED, nobody, nobody)
    return GridEngine(grid, sites, *([NamesWithoutKeys(grid)] if introduced else []), pause=0.01)


def test_a_message_lives_until_the_deadline_and_tells_the_time_that_is_left() -> None:
    grid = Grid()
    engine(grid).send({"site": task(seconds=40.0)})
    (message,) = grid.pushed
    assert 39 < message.metadata.ttl <= 40 and message.metadata.dst_node_id == 7
    assert 39 < read_task(from_records(message.content)).seconds <= 40  # type: ignore[operator]


def test_a_client_that_is_not_there_gets_its_task_when_it_comes() -> None:
    grid = Grid(pack_reply(update()))
    carrier = engine(grid)
    carrier.send({"far": task()})
    assert grid.pushed == [] and carrier.poll(0.05) == [] and carrier.present() == {"site"}
    grid.nodes["far"] = SimpleNamespace(name="far", node_id=8, last_activated_at="monday")
    (answer,) = carrier.poll(2)
    assert answer.client == "far"


def test_what_a_restarted_client_has_lost_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedse.engines.flower.grid.LOOK_AGAIN", 0.0)
    grid = Grid(None, pack_reply(update()))
    carrier = engine(grid)
    carrier.send({"site": task()})
    assert carrier.poll(0.05) == [] and len(grid.pushed) == 1
    grid.nodes["site"].last_activated_at = "tuesday"
    (answer,) = carrier.poll(2)
    assert isinstance(answer, ClientUpdate) and len(grid.pushed) == 2


def test_without_keys_nodes_are_asked_for_their_names_once_and_the_latest_of_a_name_is_the_site(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedse.engines.flower.grid.LOOK_AGAIN", 0.0)
    name = Parcel({"format": FORMAT, "site": "site"})
    grid = Grid(name, None, 5, name, pack_reply(update()))
    grid.nodes["site"].name = ""
    carrier = engine(grid, introduced=True)
    assert carrier.present() == set() and carrier.present() == {"site"}
    carrier.send({"site": task()})
    assert [message.metadata.message_type for message in grid.pushed] == ["query", "train"]
    # Started anew it is another node, while the first one still counts as online; asked too early it is asked again.
    grid.nodes["again"] = SimpleNamespace(name="", node_id=9, last_activated_at="tuesday")
    (answer,) = carrier.poll(2)
    assert isinstance(answer, ClientUpdate)
    asked = [(message.metadata.message_type, message.metadata.dst_node_id) for message in grid.pushed]
    assert asked == [("query", 7), ("train", 7), ("query", 9), ("query", 9), ("train", 9)]


class GridInPieces(Grid):
    """Of the replies to these messages a part has arrived: whoever pulls them waits for the rest."""

    def __init__(self, *script: Any, pieces: set[str]) -> None:
        super().__init__(*script)
        self.pieces = pieces
        self.rest = threading.Event()
        self.asked: list[str] = []

    def pull_messages(self, numbers: list[str]) -> list[Any]:
        self.asked += numbers
        if self.pieces & set(numbers):
            assert self.rest.wait(60), "nobody released it"
        return super().pull_messages(numbers)


@pytest.fixture
def pieces() -> Iterator[GridInPieces]:
    grid = GridInPieces(*[pack_reply(update())] * 3, pieces={"m0"})
    grid.nodes["far"] = SimpleNamespace(name="far", node_id=8, last_activated_at="monday")
    yield grid
    grid.rest.set()


def test_a_reply_in_pieces_holds_back_nobody_and_is_read_when_it_is_whole(pieces: GridInPieces) -> None:
    carrier = engine(WholeReplies(pieces))
    carrier.send({"site": task(), "far": task()})
    assert [answer.client for answer in carrier.poll(20)] == ["far"]
    assert carrier.poll(0.1) == []
    pieces.rest.set()
    assert [answer.client for answer in carrier.poll(20)] == ["site"]
    assert sorted(pieces.asked) == ["m0", "m1"] and len(pieces.pushed) == 2


def test_a_client_that_was_restarted_while_it_sent_is_asked_again(
    pieces: GridInPieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedse.engines.flower.grid.LOOK_AGAIN", 0.0)
    carrier = engine(WholeReplies(pieces))
    carrier.send({"site": task()})
    assert carrier.poll(0.1) == []
    pieces.nodes["site"].last_activated_at = "tuesday"
    assert [answer.client for answer in carrier.poll(20)] == ["site"]
    # What arrives of the first reply after all is not an answer any more.
    pieces.rest.set()
    assert carrier.poll(0.2) == [] and len(pieces.pushed) == 2


@pytest.mark.parametrize(("under_way", "calls", "at_once"), [(21, 3, AT_ONCE), (200, TURNS, 50)])
def test_many_messages_under_way_are_asked_for_in_turns(under_way: int, calls: int, at_once: int) -> None:
    grid = GridInPieces(*[None] * (under_way - 1), pack_reply(update()), pieces=set())
    numbers = grid.push_messages([None] * under_way)
    replies = WholeReplies(grid)
    found = [reply for _ in range(calls) for reply in replies.pull_messages(numbers)]
    assert [reply.metadata.reply_to_message_id for reply in found] == [numbers[-1]]
    assert set(grid.asked) == set(numbers) and len(grid.asked) == calls * at_once


def test_an_error_of_one_pull_comes_after_the_replies_that_have_arrived() -> None:
    class Failing(Grid):
        def pull_messages(self, numbers: list[str]) -> list[Any]:
            if numbers == ["m0"]:
                raise ConnectionError
            return super().pull_messages(numbers)

    grid = Failing(None, pack_reply(update()), None)
    numbers = grid.push_messages([None] * 3)
    replies = WholeReplies(grid)
    (reply,) = replies.pull_messages(numbers)
    assert reply.metadata.reply_to_message_id == "m1"
    with pytest.raises(ConnectionError):
        replies.pull_messages(["m0", "m2"])


class Odd:
    """What a site may have stored in the place of a reply."""

    metadata = SimpleNamespace(reply_to_message_id="m1")


@pytest.mark.parametrize("stored", [ValueError("no such object"), KeyError("x"), RecursionError(), None, 7, Odd()])
def test_what_flower_cannot_take_apart_or_names_another_message_is_unreadable_and_its_sites_own(stored: Any) -> None:
    class Hostile(Grid):
        def pull_messages(self, numbers: list[str]) -> list[Any]:
            if numbers == ["m0"]:
                if isinstance(stored, Exception):
                    raise stored
                return [stored]
            return super().pull_messages(numbers)

    grid = Hostile(None, pack_reply(update()))
    grid.nodes["far"] = SimpleNamespace(name="far", node_id=8, last_activated_at="monday")
    carrier = engine(WholeReplies(grid))
    carrier.send({"site": task(), "far": task()})
    found = {answer.client: answer for answer in (*carrier.poll(2), *carrier.poll(0.2))}
    assert found["site"] == ClientFailure("site", "train-0003", "UnreadableAnswer")
    assert isinstance(found["far"], ClientUpdate)


def test_a_message_is_answered_once() -> None:
    class Twice(Grid):
        def pull_messages(self, numbers: list[str]) -> list[Any]:
            return 2 * super().pull_messages(numbers)

    for grid in (Twice(pack_reply(update())), WholeReplies(Twice(pack_reply(update())))):
        carrier = engine(grid)
        carrier.send({"site": task()})
        assert len(carrier.poll(2)) == 1


def test_lost_messages_are_sent_again_a_few_times_only() -> None:
    grid = Grid(*[4] * 20)
    carrier = engine(grid)
    carrier.send({"site": task()})
    assert carrier.poll(5) == [ClientFailure("site", "train-0003", "Lost")]
    assert len(grid.pushed) == MOST_LOSSES + 1


def test_after_the_deadline_nothing_is_sent_again() -> None:
    grid = Grid(3)
    carrier = engine(grid)
    carrier.send({"site": task(seconds=0.05)})
    time.sleep(0.1)
    assert carrier.poll(1) == [ClientFailure("site", "train-0003", "Lost")]
    carrier.send({"far": task(seconds=0.05)})
    time.sleep(0.1)
    assert carrier.poll(0.1) == [] and len(grid.pushed) == 1


@pytest.mark.parametrize(
    ("code", "kind"), [(1, "AppNotLoaded"), (2, "AppFailed"), (8, "AppCrashed"), (99, "UnknownFailure")]
)
def test_flowers_own_failures_have_names_and_their_text_is_not_read(code: int, kind: str) -> None:
    carrier = engine(Grid(code))
    carrier.send({"site": task()})
    assert carrier.poll(1) == [ClientFailure("site", "train-0003", kind)]


GOOD = pack_reply(update("int8"))


@pytest.mark.parametrize(
    "parcel",
    [
        Parcel({}),
        Parcel(GOOD.header),
        Parcel(GOOD.header, np.zeros(3, np.uint8)),
        Parcel({**GOOD.header, "counts": {SECRET: 1}}, GOOD.array),
        Parcel({**GOOD.header, "metrics": {"loss": SECRET}}, GOOD.array),
        Parcel({**GOOD.header, "scores": [{"world": "maze"}]}, GOOD.array),
        Parcel({**GOOD.header, "layout": 7}, GOOD.array),
        Parcel({"failure": SECRET}),
    ],
    ids=["empty", "no array", "short array", "sentence", "text", "score", "layout", "failure"],
)
def test_an_unreadable_answer_is_a_failure_of_its_client_and_stops_nobody(parcel: Parcel) -> None:
    carrier = engine(Grid(parcel))
    carrier.send({"site": task()})
    assert carrier.poll(1) == [ClientFailure("site", "train-0003", "UnreadableAnswer")]
