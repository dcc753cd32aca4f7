"""A site with a valid key may send anything: it is that site's failure, with its name, and stops nobody."""

from __future__ import annotations

import io
import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedse.adapters.plan import TensorPlan
from fedse.adapters.rounding import encode
from fedse.engines.flower.client_replies import read_introduction, read_reply
from fedse.engines.flower.grid import GridEngine
from fedse.engines.flower.wire import FORMAT, Parcel, pack_reply, pack_task
from fedse.events import Event, Warned
from fedse.federation.expected import Expected, Unexpected
from fedse.federation.sites import Sites
from fedse.types import ClientFailure, ClientUpdate, RoundTask, WorldScore

LAYOUT = (("a.lora_A.weight", (2, 3)), ("b", (4,)))
VECTOR = np.arange(10, dtype=np.float32) / 7
SENTENCE = "patient 4711 has a rare disease"
# 64 characters of a script that is not Latin are a Python identifier too.
FOREIGN = "患者四七一一号有一种罕见的疾病" * 4
TASK = RoundTask(3, "train", VECTOR, LAYOUT, {"r": 8})
EXPECTED = Expected(
    worlds={"site": ("maze", "Clinic")},
    probes=frozenset({"Unhurried"}),
    shares={"bandit": frozenset({"counts"})},
    explored=20,
    started=10,
    tested={"validation": 10},
)
COUNTS = {
    **{"explored": 40, "errors": 2, "successes": 30, "kept": 30, "added": 29, "buffer": 100, "learned_from": 100},
    **{"steps": 400, "invalid": 7, "agent_tokens": 9000},
}
SCORE = WorldScore("maze", "validation", 5, 2, 30, 200, 1, {"KeyError": 1}, 0.1, None)


def update() -> ClientUpdate:
    encoded = encode(VECTOR + np.float32(0.1), VECTOR, "float32")
    return ClientUpdate(
        *("site", 3, encoded.array, LAYOUT, COUNTS, {"loss": 0.3}, (SCORE,), "train-0003", encoded),
        shared={"bandit": {"counts": np.ones((2, 2), np.float32)}},
        probes={"Unhurried": (replace(SCORE, split="train"),)},
    )


HONEST = pack_reply(update())
assert HONEST.array is not None


def records(header: str, array: Any = HONEST.array, stype: str = "numpy.ndarray") -> dict[str, Any]:
    """As Flower hands them over."""
    found: dict[str, Any] = {"header": {"json": header}}
    if array is not None:
        if not isinstance(array, bytes):
            content = io.BytesIO()
            np.save(content, array)
            array = content.getvalue()
        found["adapter"] = {"packed": SimpleNamespace(stype=stype, data=array)}
    return found


def read(content: Any, task: RoundTask = TASK) -> ClientUpdate | ClientFailure:
    return read_reply(content, "site", task, TensorPlan(), EXPECTED)


def with_score(**changes: Any) -> dict[str, Any]:
    return {"scores": [{**HONEST.header["scores"][0], **changes}]}


def with_counts(**changes: Any) -> dict[str, Any]:
    return {"counts": {**COUNTS, **changes}}


def array_header(shape: Any, dtype: str = "<f4", content: bytes = b"") -> bytes:
    found = io.BytesIO()
    np.lib.format.write_array_header_1_0(found, {"descr": dtype, "fortran_order": False, "shape": shape})
    return found.getvalue() + content


def test_an_honest_answer_is_read_as_it_is() -> None:
    got = read(records(json.dumps(HONEST.header)))
    assert isinstance(got, ClientUpdate) and got.vector is not None
    assert got.vector.tobytes() == (VECTOR + np.float32(0.1)).tobytes()
    assert (got.counts, got.scores, got.metrics) == (COUNTS, (SCORE,), {"loss": 0.3})
    assert got.shared["bandit"]["counts"].shape == (2, 2) and got.probes["Unhurried"][0].split == "train"


def test_of_each_failure_one_thing_may_be_rescued() -> None:
    expected = replace(EXPECTED, rescues=True)
    for rescued, kept, fine in ((8, 38, True), (9, 38, False), (8, 47, False)):
        answer = replace(update(), counts={**COUNTS, "rescued": rescued, "kept": kept})
        with nullcontext() if fine else pytest.raises(Unexpected, match="more than can be"):
            expected.check(answer, TASK)


CHANGED: dict[str, dict[str, Any]] = {
    "an infinite count": with_counts(explored=float("inf")),
    "a count that is no number": with_counts(explored=float("nan")),
    "a count as text": with_counts(explored="9"),
    "a count as a fraction": with_counts(explored=9.5),
    "a count as a flag": with_counts(explored=True),
    "a negative count": with_counts(learned_from=-5),
    "counts as a list": {"counts": [1, 2]},
    "a count of 10**12": with_counts(learned_from=10**12, buffer=10**12),
    "a count of 10**400": with_counts(explored=10**400),
    "more explored than asked for": with_counts(explored=41),
    "more successes than episodes": with_counts(successes=39),
    "more learned from than remembered": with_counts(learned_from=101),
    "something rescued where nothing is": with_counts(rescued=1),
    "a missing count": {"counts": {key: value for key, value in COUNTS.items() if key != "learned_from"}},
    "a count under another name": with_counts(**{FOREIGN: 1}),
    "a metric of 10**400": {"metrics": {"loss": 10**400}},
    "an infinite metric": {"metrics": {"loss": float("inf")}},
    "a metric as text": {"metrics": {"loss": SENTENCE}},
    "a metric under another name": {"metrics": {FOREIGN: 1.0}},
    "a metric of another learner": {"metrics": {"temperature_of_the_patient": 1.0}},
    "errors as a list": with_score(errors=[1]),
    "errors with texts": with_score(errors={"KeyError": "many"}),
    "negative errors": with_score(errors={"KeyError": -1}),
    "episodes as text": with_score(episodes="5"),
    "negative episodes": with_score(episodes=-5),
    "more episodes than asked for": with_score(episodes=10),
    "a world as a list": with_score(world=["maze"]),
    "a sentence as world": with_score(world=SENTENCE),
    "an identifier as world": with_score(world=FOREIGN),
    "many numbers of a world": with_score(world="maze#4711471147114711"),
    "more successes than episodes in a world": with_score(successes=6),
    "a sentence as split": with_score(split=SENTENCE),
    "another split": with_score(split="test"),
    "a floor as text": with_score(floor=SENTENCE),
    "an infinite ceiling": with_score(ceiling=float("inf")),
    "more in a score": with_score(note=SENTENCE),
    "two scores of a world": {"scores": HONEST.header["scores"] * 2},
    "scores without end": {"scores": HONEST.header["scores"] * 1000},
    "an infinite side": {"layout": [["a.lora_A.weight", [2, float("inf")]], ["b", [4]]]},
    "a negative side": {"layout": [["a.lora_A.weight", [-2, -3]], ["b", [4]]]},
    "a sentence in the layout": {"layout": [[SENTENCE, [2, 3]], ["b", [4]]]},
    "another shape": {"layout": [["a.lora_A.weight", [3, 2]], ["b", [4]]]},
    "a sentence in a layout without a vector": {"layout": [[SENTENCE, [0]]], "precision": None},
    "no layout": {"layout": []},
    "another precision": {"precision": "float64"},
    "another format": {"format": FORMAT + 1},
    "one field more": {"note": SENTENCE},
    "a probe that nobody asked for": {"probes": {FOREIGN: []}},
    "a share that nobody asked for": {"shared": {FOREIGN: {}}},
    "a tensor that nobody named": {"shared": {"bandit": {FOREIGN: [[1], [1.0]]}}},
    "a share of 10**11 values": {"shared": {"bandit": {"counts": [[10**6, 10**5], [1.0]]}}},
    "a share that is not finite": {"shared": {"bandit": {"counts": [[1], [float("inf")]]}}},
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED.keys())
def test_every_field_has_its_type_its_range_and_its_list(change: dict[str, Any]) -> None:
    with pytest.raises(Unexpected) as caught:
        read(records(json.dumps({**HONEST.header, **change})))
    assert SENTENCE not in str(caught.value) and FOREIGN not in str(caught.value)


@pytest.mark.parametrize(
    "header",
    [
        '{"a":' * 100_000,
        "[" * 100_000 + "]" * 100_000,
        json.dumps({**HONEST.header, "note": json.loads("[" * 50 + "]" * 50)}),
        "[]",
        "7",
        "",
        "{",
        "\ud800",
        '{"format": 5, "failure": 1e999}',
        json.dumps({**HONEST.header, "note": "x" * 40_000_000}),
        '{"counts": {"explored": ' + "9" * 5000 + "}}",
    ],
    ids=[
        "deep maps",
        "deep lists",
        "deep",
        "list",
        "number",
        "empty",
        "cut",
        "surrogate",
        "infinite",
        "long",
        "digits",
    ],
)
def test_a_header_that_is_no_small_flat_map_is_not_parsed(header: str) -> None:
    with pytest.raises(Unexpected):
        read(records(header))


@pytest.mark.parametrize(
    "array",
    [
        None,
        array_header((10**11,)),
        array_header((10**11,), content=VECTOR.tobytes()),
        array_header((10,), content=VECTOR.tobytes()[:-1]),
        array_header((2, 5), content=VECTOR.tobytes()),
        array_header((10,), "<f8", VECTOR.astype("<f8").tobytes()),
        array_header((10,), "|O", b"\x80\x04N." * 20),
        array_header((10,), "<U9", b" " * 360),
        array_header((-10,), content=VECTOR.tobytes()),
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"no array",
        b"",
    ],
    ids=[
        "none",
        "1e11",
        "1e11 and some",
        "cut",
        "square",
        "double",
        "pickle",
        "text",
        "negative",
        "header",
        "text",
        "empty",
    ],
)
def test_an_array_is_looked_at_before_it_is_loaded(array: Any) -> None:
    with pytest.raises(Unexpected, match="the array"):
        read(records(json.dumps(HONEST.header), array))


@pytest.mark.parametrize("stype", ["torch.Tensor", "pickle", ""])
def test_an_array_in_another_form_is_not_loaded(stype: str) -> None:
    with pytest.raises(Unexpected, match="NumPy"):
        read(records(json.dumps(HONEST.header), stype=stype))


def test_nothing_is_learned_in_an_evaluation() -> None:
    asked = replace(TASK, kind="evaluate")
    with pytest.raises(Unexpected, match="nothing is learned"):
        read(records(json.dumps(HONEST.header)), asked)
    only = {**HONEST.header, "counts": {}, "precision": None}
    assert isinstance(read(records(json.dumps(only), None), asked), ClientUpdate)
    with pytest.raises(Unexpected, match="another split or world"):
        read(records(json.dumps(only), None), replace(asked, world="Clinic"))


def test_an_error_that_is_on_no_list_is_another() -> None:
    for kind, told in (("KeyError", "KeyError"), ("OtherTerms", "OtherTerms"), (FOREIGN, "other"), (SENTENCE, "other")):
        got = read(records(json.dumps({"format": FORMAT, "failure": kind}), None))
        assert got == ClientFailure("site", "train-0003", told)
    got = read(records(json.dumps({**HONEST.header, **with_score(errors={FOREIGN: 1, "Made_up": 2, "OSError": 1})})))
    assert isinstance(got, ClientUpdate) and got.scores[0].errors == {"other": 3, "OSError": 1}


def test_who_introduces_itself_without_a_key_says_a_name_and_nothing_else() -> None:
    assert read_introduction(records('{"format": 5, "site": "west"}')) == "west"
    for header in (
        '{"format": 5, "site": ["west"]}',
        '{"format": 5}',
        "{}",
        '{"format": 5, "site": "' + "x" * 2000 + '"}',
    ):
        with pytest.raises(Unexpected):
            read_introduction(records(header))


class Heard:
    def __init__(self) -> None:
        self.warnings: list[Warned] = []

    def record(self, event: Event) -> None:
        assert isinstance(event, Warned)
        self.warnings.append(event)


class Grid:
    """Answers that lie there already, each to the message of its number."""

    def __init__(self, *answers: Any) -> None:
        self.answers = answers

    def get_nodes(self) -> list[Any]:
        return [SimpleNamespace(name=name, node_id=at, last_activated_at="") for at, name in enumerate(("a", "b", "c"))]

    def push_messages(self, messages: list[Any]) -> list[str]:
        return [str(message.metadata.dst_node_id) for message in messages]

    def pull_messages(self, numbers: list[str]) -> list[Any]:
        return [
            SimpleNamespace(
                metadata=SimpleNamespace(reply_to_message_id=number),
                has_error=lambda: False,
                content=self.answers[int(number)],
            )
            for number in numbers
        ]


def test_one_hostile_site_is_named_and_the_others_go_on() -> None:
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    identity.run_id, identity.node_id, identity.task_id = 1, 1, 1
    good = records(json.dumps(HONEST.header))
    bad = records(json.dumps({**HONEST.header, "counts": {SENTENCE: float("inf")}}))
    expected = replace(EXPECTED, worlds=dict.fromkeys("abc", ("maze", "Clinic")))
    heard = Heard()
    engine = GridEngine(Grid(good, bad, good), Sites(("a", "b", "c"), "run", "terms", TensorPlan(), heard, expected))
    engine.send(dict.fromkeys("abc", TASK))
    answers = {answer.client: answer for answer in engine.poll(1)}
    assert isinstance(answers["a"], ClientUpdate) and isinstance(answers["c"], ClientUpdate)
    assert answers["b"] == ClientFailure("b", "train-0003", "UnreadableAnswer")
    (warning,) = heard.warnings
    assert (warning.kind, warning.details["client"]) == ("unreadable_answer", "b")
    assert warning.message.startswith("the answer of site 'b' to train-0003 cannot be used (")
    assert SENTENCE not in str(warning)


def test_the_hub_tells_sites_nothing_of_its_own_files() -> None:
    config = {"r": 8, "lora_alpha": 16, "base_model_name_or_path": "/home/operator/models/secret", "revision": "x"}
    parcel: Parcel = pack_task(replace(TASK, config=config), "site", "run", "terms")
    assert parcel.header["config"] == {"r": 8, "lora_alpha": 16}
    assert "/home" not in json.dumps(parcel.header)
