"""What noise on the mean of hundreds of sites leaves of success (`aggregator: dp_fedavg`), with a language model.

python benchmarks/noise_over_sites.py run --noise 0.5 --rate 10    260 sites with nano, and a test of their shared adapter
python benchmarks/noise_over_sites.py run                          the same test before any round
python benchmarks/noise_over_sites.py table runs/sites_* --output docs/results/noise_over_sites.json

Each site has up to four demonstrations of its own in one of three worlds and does not explore, so that noise is all that
differs. No two sites have a training task in common. The shared adapter of the last round then plays the test tasks of the
three worlds, in a run that learns nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import yaml

import fedse

PARTS = {"maze": 100, "babyai": 100, "webshop": 60}
RECIPE = Path("recipes/nano.yaml")
TEST = "_tested"


def worlds() -> dict[str, Any]:
    return {name: site["worlds"] for name, site in yaml.safe_load(RECIPE.read_text())["clients"].items()}


def together(name: str, noise: float, rate: float, seed: int, rounds: int) -> fedse.Experiment:
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
        aggregator={
            "name": "dp_fedavg",
            "clip": 0.6,
            "noise_multiplier": noise,
            "learning_rate": rate,
            "factors": "B",
            "simulation": True,
        },
        checks={"max_ratio": None},
    )


def tested(name: str, seed: int, adapter: Path | None) -> fedse.Experiment:
    """Nothing is learned, so that the adapter after the last round is the one that it began with."""
    return fedse.Experiment(
        name=name,
        seed=seed,
        rounds=1,
        model={"name": "nano", "threads": 1, "lora": {"rank": 1}},
        clients={world: {"worlds": worlds()[world]} for world in PARTS},
        start_adapter=None if adapter is None else str(adapter),
        exploration={"tasks": 1},
        learner="none",
        evaluation={"tasks": 1, "test_tasks": 200},
        policy={"slots": 64, "reply_tokens": 40},
    )


def row(folder: Path) -> dict[str, Any]:
    """Of a run and its test beside it, or of the test before any round."""
    played = json.loads((folder.with_name(f"{folder.name}{TEST}") / "evaluations/test-0001.json").read_text())
    success = {score["world"]: score["successes"] / score["episodes"] for score in played["worlds"]}
    told = {"run": folder.name, "success": success, "macro": sum(success.values()) / len(success)}
    reports = [json.loads(path.read_text()) for path in sorted(folder.glob("rounds/*/report.json"))]
    if not reports:
        return told
    first, last = reports[0]["diagnostics"], reports[-1]["diagnostics"]
    return told | {
        "rounds": reports[-1]["round"],
        "epsilon": last["epsilon"],
        "usual_change": statistics.median(first["update_norm"].values()),
        "mean_change": [report["diagnostics"]["mean_update_norm"] for report in reports],
    }


def run(given: argparse.Namespace) -> None:
    name = f"sites_{'before' if given.noise is None else f'{given.noise:g}_rate_{given.rate:g}'}_s{given.seed}"
    adapter = None
    if given.noise is not None:
        made = fedse.run(together(name, given.noise, given.rate, given.seed, given.rounds), given.runs)
        adapter = made.folder / f"rounds/{given.rounds:04}/adapter"
    fedse.run(tested(name + TEST, given.seed, adapter), given.runs)


def table(given: argparse.Namespace) -> None:
    names = sorted({folder.with_name(folder.name.removesuffix(TEST)) for folder in given.folders})
    rows = [row(folder) for folder in names]
    for each in rows:
        success = " | ".join(f"{100 * each['success'][world]:.1f}" for world in PARTS)
        print(f"| {each['run']} | {each.get('epsilon', 0):.3g} | {success} | **{100 * each['macro']:.1f}** |")
    if given.output:
        given.output.write_text(json.dumps(rows, indent=1) + "\n")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = options.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("--noise", type=float, help="noise_multiplier; without it, the test before any round")
    running.add_argument("--rate", type=float, default=1.0, help="of the server's step")
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--rounds", type=int, default=6)
    running.add_argument("--runs", type=Path, default=Path("runs"))
    running.set_defaults(work=run)
    gathering = commands.add_parser("table")
    gathering.add_argument("folders", type=Path, nargs="+")
    gathering.add_argument("--output", type=Path)
    gathering.set_defaults(work=table)
    given = options.parse_args()
    given.work(given)


if __name__ == "__main__":
    main()
