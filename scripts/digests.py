"""Digests of what small runs leave behind, to see that a change of the code changed no result.

    python scripts/digests.py > before.txt
    ... change the code ...
    python scripts/digests.py > after.txt; diff before.txt after.txt
    python scripts/digests.py resumed flower        # some of them

One line for each run: adapters of all rounds (shared, own and private ones), rows of the buffers, episode logs, reports and
evaluations. Clock times are left out, and so is what is not named below: a field that a later format adds changes no digest.
Roundings differ between machines, so compare lines of one machine.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

import fedse
from fedse.errors import FedseError
from fedse.experiments.methods import METHODS
from fedse.seeds import stream, uniform
from fedse.worlds.maze import Maze

ROOT = Path(__file__).parents[1]
STEP = ("observation", "reply", "thought", "action", "valid", "learned")
TRAJECTORY = (
    "client", "world", "task", "purpose", "round", "attempt", "adapter", "closing", "outcome", "score", "token_ids",
    "train_mask", "error", "rules",
)  # fmt: skip
ROW = ("round", "world", "task", "attempt", "purpose", "adapter", "outcome", "score", "content")
CLOCK = {"seconds", "time"}

FEW = [
    "rounds=2", "exploration.tasks=3", "evaluation.tasks=2", "evaluation.tasks_per_round=1", "evaluation.test_tasks=2",
    "policy.slots=8", "policy.reply_tokens=12", "model.threads=1",
]  # fmt: skip
SMALL_MODEL = ["model={name: tiny, width: 32, layers: 2, context: 2048}", "start={name: demonstrations, tasks: 4}"]
TABLE: dict[str, Any] = {
    "rounds": 2,
    "model": {"name": "table", "rows": 512},
    "policy": "table",
    "learner": "table",
    "clients": {
        "east": {"worlds": [{"name": "maze", "mode": "original"}]},
        "west": {"worlds": [{"name": "maze", "mode": "original", "turn_limit": 12}, {"name": "maze", "mode": "original"}]},
        "north": {"worlds": [{"name": "maze", "mode": "original", "turn_limit": 15}]},
    },
    "start": {"name": "demonstrations", "tasks": 3},
    "exploration": {"tasks": 6},
    "evaluation": {"tasks": 4, "tasks_per_round": 2, "test_tasks": 3},
}  # fmt: skip


class ShakyMaze(Maze):
    """Breaks in a tenth of its tasks, the same ones every time."""

    def step(self, action: str) -> Any:
        if uniform(stream("shaky", self._task_id), 0) < 0.1:
            raise ConnectionError("this maze is shaky")
        return super().step(action)

    def reset(self, **given: Any) -> Any:
        self._task_id = given["options"]["task"]
        return super().reset(**given)


def table(**changes: Any) -> fedse.Experiment:
    return fedse.Experiment.model_validate({"name": "digest", **TABLE, **changes})


def recipe(path: Path, *settings: str) -> fedse.Experiment:
    return fedse.load_experiment(path, [*FEW, *settings, "name=digest"])


def tiny(*settings: str) -> fedse.Experiment:
    return recipe(ROOT / "recipes/two_worlds.yaml", "start.tasks=6", *settings)


def scenarios() -> Iterator[tuple[str, list[fedse.Experiment]]]:
    """Names, and the experiments that are run one after the other in the same folder."""
    for name in ("nano_small", "nano"):
        yield f"recipe {name}", [recipe(ROOT / f"recipes/{name}.yaml")]
    yield "recipe demo", [recipe(ROOT / "src/fedse/cli/demo.yaml")]
    for name in ("smollm2", "smollm2_6284"):
        yield f"recipe {name}", [recipe(ROOT / f"recipes/{name}.yaml", *SMALL_MODEL)]
    for method in METHODS:
        yield f"table {method}", [table(method=method)]
        yield f"tiny {method}", [tiny(f"method={method}")]
    yield "table four rounds", [table(rounds=4)]
    yield "table resumed", [table(rounds=2), table(rounds=4)]
    yield "tiny four rounds", [tiny("rounds=4")]
    yield "tiny resumed", [tiny(f"rounds={rounds}") for rounds in (2, 4)]
    yield "table attempts", [table(exploration={"tasks": 4, "attempts": 2}, filter="best_of_task")]
    yield "table no history", [table(rounds=3, buffer={"history": False})]
    yield "table float16", [table(sending={"precision": "float16"})]
    yield "tiny personal", [tiny("mix=personal", "mix.rank=2", "rounds=3")]
    yield "tiny fedsa_lora", [tiny("aggregator=fedsa_lora", "rounds=3")]
    yield "tiny ffa_lora", [tiny("aggregator=ffa_lora")]
    yield "tiny flora", [tiny("aggregator=flora", "rounds=3")]
    yield "table sharing none", [table(sharing="none", method=None, rounds=3)]
    yield "table pooled", [table(pooled=True, method=None)]
    yield "table participation", [table(rounds=4, participation={"fraction": 0.5})]
    measuring = {**TABLE["clients"], "north": {**TABLE["clients"]["north"], "learns": False}}
    yield "table learns false", [table(clients=measuring)]
    shaky = {**TABLE["clients"], "north": {"worlds": [{"name": "digests:ShakyMaze", "mode": "original"}]}}
    yield "table shaky world", [table(clients=shaky, limits={"max_error_share": 1.0})]
    yield "table processes", [table(engine={"name": "local", "processes": 2})]
    yield "table flower", [table(engine="flower")]
    yield "tiny flower", [tiny("engine=flower")]


def digest_of(run: Path) -> dict[str, str]:
    """What a run left behind, by kind."""
    manifest = json.loads((run / "manifest.json").read_text())
    adapters = [(str(path.relative_to(run)), tensors(path)) for path in sorted(run.rglob("*.safetensors"))]
    return {
        "adapters": hashed([manifest["rounds"], adapters]),
        "buffers": hashed([rows(path) for path in sorted(run.glob("clients/*/buffer.sqlite"))]),
        "episodes": hashed([episodes(path) for path in sorted(run.glob("clients/*/episodes/*.jsonl"))]),
        "reports": hashed(
            [without_clock(json.loads(path.read_text())) for path in sorted(run.glob("rounds/*/report.json"))]
        ),
        "evaluations": hashed([json.loads(path.read_text()) for path in sorted(run.glob("evaluations/*.json"))]),
    }


def tensors(path: Path) -> list[tuple[str, str]]:
    """Names and contents. The header of a file has no order of its own."""
    return [(name, hashlib.sha256(tensor.tobytes()).hexdigest()) for name, tensor in sorted(load_file(path).items())]


def rows(path: Path) -> list[Any]:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        found = connection.execute(f"SELECT {', '.join(ROW)} FROM trajectories ORDER BY round, world, task, attempt")
        return [path.parent.name, *found.fetchall()]
    finally:
        connection.close()


def episodes(path: Path) -> list[Any]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        path.stem,
        *([{key: record[key] for key in TRAJECTORY}, [{key: step[key] for key in STEP} for step in record["steps"]]]
          for record in records),
    ]  # fmt: skip


def without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_clock(item) for key, item in value.items() if key not in CLOCK}
    return value


def hashed(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def main() -> None:
    for name, experiments in scenarios():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                for experiment in experiments:
                    fedse.run(experiment, folder)
                found = " ".join(f"{kind}={value}" for kind, value in digest_of(Path(folder) / "digest").items())
            except FedseError as error:
                found = f"refused: {error}"
        print(f"{name}: {found}", flush=True)


if __name__ == "__main__":
    main()
