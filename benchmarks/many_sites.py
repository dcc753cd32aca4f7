"""What noise on the mean of hundreds of sites leaves of success (`aggregator: dp_fedavg`), with a language model.

python benchmarks/many_sites.py run --noise 0.5 --seed 1        260 sites with nano, and the test of what they made together
python benchmarks/many_sites.py table runs/sites_*_measured --output docs/results/many_sites.json

Each site has up to four demonstrations of its own in one of three worlds and does not explore, so that noise is all that
differs. Sites have no overlap: each has its own part of a world's training tasks. After the last round three sites that only
measure play the test tasks of the worlds with the shared adapter.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

import fedse
from fedse.runs.reading import RunView

PARTS = {"maze": 100, "babyai": 100, "webshop": 60}
RECIPE = Path("recipes/nano.yaml")


def worlds() -> dict[str, Any]:
    return {name: site["worlds"] for name, site in yaml.safe_load(RECIPE.read_text())["clients"].items()}


def together(name: str, noise: float, seed: int, rounds: int) -> fedse.Experiment:
    sites = {
        f"{world}_{part}": {"worlds": worlds()[world], "training": {"part": part, "of": parts}}
        for world, parts in PARTS.items()
        for part in range(1, parts + 1)
    }
    return fedse.Experiment(
        name=name,
        seed=seed,
        rounds=rounds,
        model={"name": "nano", "threads": 1, "lora": {"rank": 1}},
        clients=sites,
        exploring=False,
        start={"name": "demonstrations", "tasks": 4},
        evaluation={"tasks": 1, "tasks_per_round": 0, "test_tasks": 0},
        learner={"learning_rate": 5e-3, "batch_size": 4},
        aggregator={"name": "dp_fedavg", "clip": 0.6, "noise_multiplier": noise, "factors": "B", "simulation": True},
        checks={"max_ratio": None},
    )


def measured(name: str, seed: int, adapter: Path | None) -> fedse.Experiment:
    """Sites that learn nothing: the adapter after the last round is the one that they began with."""
    return fedse.Experiment(
        name=name,
        seed=seed,
        rounds=1,
        model={"name": "nano", "threads": 1, "lora": {"rank": 1}},
        clients={world: {"worlds": worlds()[world]} for world in PARTS},
        exploration={"tasks": 1},
        learner="none",
        start_adapter=None if adapter is None else str(adapter),
        evaluation={"tasks": 1, "test_tasks": 200},
        policy={"slots": 64, "reply_tokens": 40},
    )


def row(folder: Path) -> dict[str, Any]:
    """Success in each world, and what the run whose adapter was measured says of epsilon."""
    test = json.loads((folder / "evaluations/test.json").read_text())
    return {"run": folder.name, "test": test}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = options.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--noise", type=float, required=True)
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--rounds", type=int, default=6)
    run.add_argument("--runs", type=Path, default=Path("runs"))
    given = options.parse_args()
    name = f"sites_{given.noise:g}_s{given.seed}"
    made = fedse.run(together(name, given.noise, given.seed, given.rounds), given.runs)
    adapter = Path(made.folder) / f"rounds/{given.rounds:04}/adapter"
    fedse.run(measured(f"{name}_measured", given.seed, adapter), given.runs)


if __name__ == "__main__":
    main()
