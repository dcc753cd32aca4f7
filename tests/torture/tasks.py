"""Tasks that a hub asks of a site: an honest one, changed somewhere, and signed again as a hub would that means it.

The site may refuse it with a sentence, or do it where a hub could have meant it. It may not end, lose a line of its buffer,
send something that is no number, or answer with the class of an error that nobody raises on purpose.
"""

from __future__ import annotations

import json
import math
import random
import shutil
from copy import deepcopy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from typer.testing import CliRunner

from fedse import errors
from fedse.adapters.packing import pack
from fedse.apps.site_file import load_site
from fedse.apps.worker import Worker
from fedse.cli import app
from fedse.engines.flower.seal import SEAL, Seal
from fedse.engines.flower.wire import Parcel, pack_task, to_bytes
from fedse.experience.buffer import read_file
from fedse.models.table import Table
from fedse.types import RoundTask

EXPERIMENT = """
name: small
model: {name: table, rows: 16}
policy: table
learner: table
clients:
  east: {worlds: [{name: maze, mode: original}]}
start: {tasks: 1}
exploration: {tasks: 1}
evaluation: {tasks: 1, test_tasks: 1}
"""
REFUSALS = {"UnreadableTask", "OldRound", "OverBudget", "Unsealed", "OtherTerms"}
ANSWERED = 3
"""Rounds that the site has answered before the case begins."""
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    2**63,
    10**400,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "train",
    "test",
    "ä\u202e\x1b[2J\ud800",
    "x" * 10_000,
    [],
    {},
    [[]],
    {"": {}},
    [["table", [16, 4]], ["table", [16, 4]]],
    [["x.lora_A.residual.weight", [10**9, 4]]],
    {"bandit": {"x": [[2], [1.0]]}},
]


_KEPT: list[TemporaryDirectory[str]] = []


@cache
def _prepared() -> tuple[Path, Seal]:
    """A site that has answered some rounds. Made once for each process; a case works on a copy."""
    _KEPT.append(TemporaryDirectory(prefix="torture-site-"))
    folder = Path(_KEPT[-1].name)
    made = CliRunner().invoke(app, ["hub", "init", str(folder / "hub"), "--site", "east"])
    assert made.exit_code == 0, made.output
    kit = folder / "hub/sites/east"
    (kit / "experiment.yaml").write_text(EXPERIMENT)
    seal = Seal.read(folder / "hub/certificates/seal.key")
    site = load_site(kit / "site.yaml")
    said: list[str] = []
    worker = Worker(site, said.append)
    for number in range(1, ANSWERED + 1):
        assert "failure" not in worker.answer(seal(_task(site, number, "train"))).header, said
    return kit, seal


def _task(site: Any, number: int, kind: Any) -> Parcel:
    adapter = Table(rows=16).initial_adapter(0)
    split = "validation" if kind == "train" else "test"
    task = RoundTask(number, kind, pack(adapter), adapter.layout, adapter.config, split, seconds=60.0)
    return pack_task(task, "east", site.experiment.name, site.terms)


def trial(chance: random.Random, scratch: Path) -> str:
    made, seal = _prepared()
    kit = scratch / "east"
    shutil.copytree(made, kit)
    said: list[str] = []
    site = load_site(kit / "site.yaml")
    worker = Worker(site, said.append)
    buffer = kit / "data/small/clients/east/buffer.sqlite"
    before = read_file(buffer)
    parcel = _task(site, ANSWERED + 1, chance.choice(["train", "evaluate"]))
    content = _bytes(chance, _changed(chance, parcel), seal)
    answer = worker.answer_to_bytes(content)
    assert not any("Traceback" in line for line in said), said
    assert max(map(len, said)) < 2_000
    json.dumps(answer.header, allow_nan=False)
    after = read_file(buffer)
    assert after[: len(before)] == before, "the buffer lost something"
    failure = answer.header.get("failure")
    if failure is not None:
        known = issubclass(getattr(errors, failure, object), errors.FedseError)
        assert known and failure in REFUSALS, failure
        return "refused" if after == before else "silent"
    # A site that did it is still a site: the honest task follows, unless the hub has led it on to a later round.
    assert answer.array is None or bool(np.isfinite(answer.array).all())
    follows = worker.answer(seal(_task(site, 999_999, "train")))
    assert "failure" not in follows.header, said
    return "same"


def _changed(chance: random.Random, parcel: Parcel) -> Parcel:
    if chance.random() < 0.3:
        return Parcel(parcel.header, _array(chance, parcel.array))
    header = json.loads(json.dumps(parcel.header))
    for _ in range(chance.choice([1, 1, 1, 2])):
        _change(chance, header)
    return Parcel(header, parcel.array)


def _change(chance: random.Random, header: dict[str, Any]) -> None:
    """Of one value somewhere in the header, or of a key."""
    place: Any = header
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(place[key], dict | list) and chance.random() < 0.6:
            place = place[key]
            continue
        if isinstance(place, dict) and chance.random() < 0.15:
            place[chance.choice(["", "more", "round", "x" * 300])] = deepcopy(chance.choice(ODD))
        elif chance.random() < 0.15:
            del place[key]
        elif key == "round" and chance.random() < 0.5:
            place[key] = chance.randrange(-2, 9)
        else:
            place[key] = deepcopy(chance.choice(ODD))
        return


def _array(chance: random.Random, array: Any) -> Any:
    changed = np.array(array)
    kind = chance.randrange(5)
    if kind == 0:
        return None
    if kind == 1:
        return changed[: chance.randrange(len(changed))]
    if kind == 2:
        return changed.astype(chance.choice(["<f8", ">f4", "<f2", "<i4", "|u1"]))
    if kind == 3:
        return changed.reshape(chance.choice([(-1, 4), (1, -1), (4, 4, -1)]))
    changed[chance.randrange(len(changed))] = chance.choice([math.nan, math.inf, -math.inf, 3e38, 1.5, -1e5])
    return changed


def _bytes(chance: random.Random, parcel: Parcel, seal: Seal) -> bytes:
    if chance.random() < 0.9:
        try:
            parcel = seal(parcel)
        except ValueError:
            # NaN is no JSON; nobody can sign it.
            parcel = Parcel({**parcel.header, SEAL: "AAAA"}, parcel.array)
    content = bytearray(to_bytes(parcel))
    if chance.random() < 0.1:
        for _ in range(chance.randrange(1, 4)):
            content[chance.randrange(len(content))] = chance.randrange(256)
    if chance.random() < 0.05:
        del content[chance.randrange(len(content)) :]
    return bytes(content)
