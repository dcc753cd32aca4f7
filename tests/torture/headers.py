"""Headers on the wire: an honest answer of a site, changed somewhere, as a site with a valid key may send it.

The hub may call it that site's failure, or take it where a site could have meant it: numbers within their bounds under names
known before the run. It may not end, and no text of the answer may reach what it keeps, says or stores.
"""

from __future__ import annotations

import io
import json
import math
import random
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedse.adapters.packing import length
from fedse.adapters.plan import TensorPlan
from fedse.engines.flower.grid import GridEngine
from fedse.engines.flower.wire import pack_reply
from fedse.federation.checks import CheckOptions, refusal
from fedse.federation.expected import Expected
from fedse.federation.report import RoundReport, to_json
from fedse.federation.sites import Sites
from fedse.privacy.names import COUNTS, KINDS, METRICS
from fedse.storage.strict_json import finite
from fedse.types import ClientFailure, ClientUpdate, Encoded, RoundTask, WorldScore

LAYOUT = (("a.lora_A.weight", (2, 3)), ("a.lora_B.weight", (3, 2)), ("b", (4,)))
VECTOR = np.arange(length(LAYOUT), dtype=np.float32) / 7
TASK = RoundTask(3, "train", VECTOR, LAYOUT, {"r": 2})
EXPECTED = Expected(
    worlds={"site": ("maze", "Clinic")},
    probes=frozenset({"Unhurried"}),
    shares={"bandit": frozenset({"counts"})},
    explored=20,
    started=10,
    tested={"validation": 10},
)
COUNTED = {
    **{"explored": 40, "errors": 2, "successes": 30, "kept": 30, "added": 29, "buffer": 100, "learned_from": 100},
    **{"steps": 400, "invalid": 7, "agent_tokens": 9000},
}
SCORE = WorldScore("maze", "validation", 5, 2, 30, 200, 1, {"KeyError": 1}, 0.1, None)
HONEST = pack_reply(
    ClientUpdate(
        *("site", 3, VECTOR + 1, LAYOUT, COUNTED, {"loss": 0.3, "rounding": 0.01}, (SCORE,), "train-0003"),
        encoded=Encoded("float32", VECTOR + 1),
        shared={"bandit": {"counts": np.ones((2, 2), np.float32)}},
        probes={"Unhurried": (SCORE,)},
    )
)
TEXT = "patient_4711_has_a_rare_disease"
ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 1.5, 2**63, 10**12, 10**400, 1e308, -0.0, 1e-320),
    *(math.nan, math.inf, -math.inf, "", "maze", "validation", "KeyError", "float16", "int8"),
    *(TEXT, TEXT + "\x1b[2J", "\ud800", "罕见" * 32, "x" * 100_000, "maze#4711", f"maze#{TEXT}"),
    *([], {}, [[]], [1, 2], {TEXT: 1}, {"explored": math.inf}, [["b", [4]]], [[TEXT, [math.inf]]], [[[1e11], [1.0]]]),
]
KNOWN = {"site", "train-0003", "maze", "Clinic", "other", "validation", "train", "test", "float32", "float16", "int8"}
KNOWN |= COUNTS | METRICS | KINDS | {"Unhurried", "bandit", "counts"} | {name for name, _ in LAYOUT}


def trial(chance: random.Random, scratch: Path) -> str:
    del scratch
    header = json.loads(json.dumps(HONEST.header))
    for _ in range(chance.randint(0, 3)):
        _change(header, chance)
    text = _damaged(json.dumps(header), chance) if chance.random() < 0.3 else json.dumps(header)
    warned: list[dict[str, Any]] = []
    answer = _received({"header": {"json": text}, **_array(chance)}, warned)
    if any(TEXT in json.dumps(said) for said in warned):
        return "silent"
    if isinstance(answer, ClientFailure):
        named = answer.client == "site" and answer.kind in KINDS
        told = answer.kind != "UnreadableAnswer" or len(warned) == 1
        return "refused" if named and told else "silent"
    return "same" if _harmless(answer) else "silent"


def _received(records: dict[str, Any], warned: list[dict[str, Any]]) -> ClientUpdate | ClientFailure:
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    reply = SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id="m"), has_error=lambda: False, content=records)
    grid = SimpleNamespace(
        get_nodes=lambda: [SimpleNamespace(name="site", node_id=7, last_activated_at="")],
        push_messages=lambda messages: ["m"],
        pull_messages=lambda numbers: [reply],
    )
    tracker: Any = SimpleNamespace(record=lambda event, **fields: warned.append(fields))
    engine = GridEngine(grid, Sites(("site",), "run", "terms", TensorPlan(), tracker, EXPECTED))
    engine.send({"site": TASK})
    (answer,) = engine.poll(1)
    return answer


def _harmless(update: ClientUpdate) -> bool:
    """Judged without the reader: known words, numbers in their bounds, and a report that can be written."""
    refused = refusal(update, VECTOR, LAYOUT, CheckOptions())
    report = RoundReport(3, "digest", (update,), {"site": refused} if refused else {}, {}, 1.0)
    plain = json.loads(json.dumps(finite(to_json(report)), allow_nan=False))
    weighty = update.vector is None or (
        0 <= update.counts["learned_from"] <= 2 * (10 + 3 * 20) and 0 <= update.counts["successes"] <= 40
    )
    scores = [*update.scores, *(score for scores in update.probes.values() for score in scores)]
    named = [[score.world, score.split, dict(score.errors)] for score in scores]
    shared = [[name, list(tensors)] for name, tensors in update.shared.items()]
    words = {*_words([dict(update.counts), dict(update.metrics), list(update.probes), update.layout, named, shared])}
    right = all(0 <= score.successes <= score.episodes for score in scores)
    right = right and all(score.episodes <= 10 for score in update.scores)
    return words <= KNOWN and TEXT not in json.dumps(plain) and weighty and right


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        # The second world of a name, and so on.
        return [value.rstrip("0123456789").removesuffix("#") if "#" in value[-3:] else value]
    if isinstance(value, dict):
        return [word for pair in value.items() for item in pair for word in _words(item)]
    if isinstance(value, list | tuple):
        return [word for item in value for word in _words(item)]
    return []


def _change(value: Any, chance: random.Random) -> None:
    """One place of a header, anywhere."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and chance.random() < 0.75:
            value = value[key]
            continue
        how = chance.randrange(4)
        if how == 0 and isinstance(value, dict):
            value[chance.choice([TEXT, "失" * 64, "loss", "failure", "other", ""])] = value.pop(key)
        elif how == 1:
            del value[key]
        elif how == 2 and isinstance(value, list):
            value.extend([value[key]] * chance.choice([1, 300]))
        else:
            value[key] = deepcopy(chance.choice(ODD))
        return


def _damaged(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text))
    how = chance.randrange(6)
    if how == 0:
        return text[:at]
    if how == 1:
        return text[:at] + chance.choice('{}[]",:0e-\\') + text[at + 1 :]
    if how == 2:
        depth = chance.choice([3, 9, 100, 100_000])
        return chance.choice(["[" * depth + text + "]" * depth, '{"a":' * depth + text + "}" * depth])
    if how == 3:
        return text.replace("40", "4" + "0" * chance.choice([3, 17, 5000]))
    if how == 4:
        return text + " " * chance.choice([10, 40_000_000])
    return "".join(chance.choice('[]{}:,0123456789eE+-."NaInfity\ud800') for _ in range(200))


def _array(chance: random.Random) -> dict[str, Any]:
    content = io.BytesIO()
    np.save(content, HONEST.array)  # type: ignore[arg-type]
    data = bytearray(content.getvalue())
    how = chance.randrange(20)
    if how == 0:
        return {}
    if how == 1:
        data = bytearray(data.replace(b"(16,)", chance.choice([b"(100000000000,)", b"(-16,)", b"(4, 4)", b"()"])))
    elif how == 2:
        data[chance.randrange(len(data))] = chance.randrange(256)
    elif how == 3:
        del data[chance.randrange(len(data)) :]
    elif how == 4:
        data = bytearray(data.replace(b"<f4", chance.choice([b"<f8", b"|O", b"<U1", b">f4", b"<i4"])))
    stype = "torch.Tensor" if how == 5 else "numpy.ndarray"
    return {"adapter": {"packed": SimpleNamespace(stype=stype, data=bytes(data))}}
