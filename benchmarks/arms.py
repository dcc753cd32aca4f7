"""What sites explored with and without hints, and what came of it: arms of an experiment side by side.

python benchmarks/arms.py note runs/hints-s1                      writes runs/hints-s1/explored.json, where the run was made
python benchmarks/arms.py more runs/hints-s1                      prints the settings of the control with demonstrations
python benchmarks/arms.py gather runs/*-s[123] --output FILE      success, tests, costs, first successes: JSON, and tables
python benchmarks/arms.py draw FILE --picture PNG                 which kinds of tasks each arm tried, seeds together

An arm is what is left of a run's name without `-s` and its seed; settings within an arm may differ, as the number of
demonstrations does in the control. There every site gets, beside its own demonstrations, one for each episode in which the
site of the noted run read hints. So hints count as demonstrations: an episode with hints is an episode that was shown.

alone     successes of attempts without a hint
helped    successes of attempts with one
shown     expert episodes in the buffer before round 1, and the tokens of their replies

`note` reads journals and buffers, which hold what agents said; what it writes has counts alone.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from fedse.evaluation.comparison import compare, to_json
from fedse.evaluation.explored_plot import Tries, by_ease, draw_explored
from fedse.evaluation.measured import Measured
from fedse.experience.buffer import read_file
from fedse.experience.buffer_file import explored
from fedse.experience.journal import Journal
from fedse.experiments.measuring import read_runs
from fedse.experiments.options import experiment_of
from fedse.runs.reading import RunView
from fedse.types import Outcome, Purpose, Trajectory
from fedse.worlds.hints import at_level

NOTE = "explored.json"
_NEXT_ACTION = at_level(3, "", "", "")


def of_round(episodes: Iterable[Trajectory]) -> dict[str, int]:
    """What the explorations of one site in one round were."""
    found = Counter(explored=0, hinted=0, hints=0, next_actions=0, alone=0, helped=0)
    for episode in episodes:
        hints = [step.hint for step in episode.steps if step.hint]
        found["explored"] += 1
        found["hinted"] += bool(hints)
        found["hints"] += len(hints)
        found["next_actions"] += sum(hint.startswith(_NEXT_ACTION) for hint in hints)
        found["helped" if hints else "alone"] += episode.outcome is Outcome.SUCCESS
    return dict(found)


def noted(run: Path) -> dict[str, Any]:
    view = RunView.existing(run)
    sites: dict[str, Any] = {}
    for client in experiment_of(run).holdings:
        folder = view.client_folder(client)
        shown = read_file(folder / "buffer.sqlite", Purpose.DEMONSTRATE)
        rounds = []
        for number in range(1, (view.last_round() or 0) + 1):
            played = Journal(folder / "episodes").read(f"{number:04d}")
            told = (view.report(number) or {"clients": {}})["clients"].get(client, {"counts": {}})["counts"]
            rounds.append(
                {
                    "round": number,
                    **of_round(episode for episode in played if episode.purpose is Purpose.EXPLORE),
                    "sampled_tokens": told.get("agent_tokens", 0),
                    "hint_tokens": told.get("hint_tokens", 0),
                }
            )
        sites[client] = {
            "shown": len(shown),
            "shown_tokens": sum(episode.agent_tokens for episode in shown),
            "rounds": rounds,
            "tries": explored(folder / "buffer.sqlite"),
        }
    return {"run": run.name, "sites": sites}


def read_note(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / NOTE).read_text())
    return found


def total(site: Mapping[str, Any], what: str) -> int:
    return sum(row[what] for row in site["rounds"])


def as_many_shown(note: Mapping[str, Any]) -> list[str]:
    """Settings of an experiment in which each site of one world is shown as much as it was shown and hinted in this run.

    >>> rounds = [{"hinted": 3}, {"hinted": 4}]
    >>> as_many_shown({"sites": {"maze": {"shown": 20, "rounds": rounds}}})
    ['clients.maze.start.tasks=27']
    """
    return [
        f"clients.{client}.start.tasks={site['shown'] + total(site, 'hinted')}"
        for client, site in note["sites"].items()
    ]


def first(rounds: Sequence[Mapping[str, int]], what: str) -> int | None:
    """The first round with any.

    >>> first([{"round": 1, "alone": 0}, {"round": 2, "alone": 3}], "alone"), first([{"round": 1, "alone": 0}], "alone")
    (2, None)
    """
    return next((row["round"] for row in rounds if row[what]), None)


def arm_of(name: str, seed: int) -> str:
    return name.removesuffix(f"-s{seed}")


def as_arm(run: Measured) -> Measured:
    """The same run under its arm's name. What tells arms apart is written in their names, worlds have to be equal."""
    arm = arm_of(run.name, run.seed)
    worlds = {key: value for key, value in run.settings.items() if key.startswith("worlds.")}
    return replace(run, method=arm, settings={"method": arm, **worlds})


def gathered(paths: Sequence[Path]) -> dict[str, Any]:
    split, measured = read_runs(paths, "")
    compared = to_json(compare([as_arm(run) for run in measured], all_pairs=True))
    notes = {run.name: read_note(path) for run, path in zip(measured, paths, strict=True)}
    runs = [
        {
            "run": run.name,
            "arm": arm_of(run.name, run.seed),
            "seed": run.seed,
            "sampled_tokens": run.costs[run.round].explored_tokens,
            "learned_tokens": run.costs[run.round].learned_tokens or 0,
            "hint_tokens": run.costs[run.round].hint_tokens,
            "sites": {
                client: {
                    "shown": site["shown"],
                    "shown_tokens": site["shown_tokens"],
                    **{what: total(site, what) for what in ("hinted", "hints", "next_actions", "hint_tokens")},
                    **{what: total(site, what) for what in ("sampled_tokens", "alone", "helped")},
                    "first_alone": first(site["rounds"], "alone"),
                    "first_helped": first(site["rounds"], "helped"),
                    "rounds": site["rounds"],
                    "tries": site["tries"],
                }
                for client, site in notes[run.name]["sites"].items()
            },
        }
        for run in measured
    ]
    return {"split": split, "comparison": compared, "runs": runs}


def tries(runs: Sequence[Mapping[str, Any]]) -> list[Tries]:
    """Attempts at each category in each round, the seeds of an arm added up."""
    sums: dict[tuple[str, str, int, str, str], tuple[int, int]] = {}
    for run in runs:
        for client, site in run["sites"].items():
            for number, world, category, tried, solved in site["tries"]:
                key = run["arm"], client, number, world, category
                before = sums.get(key, (0, 0))
                sums[key] = before[0] + tried, before[1] + solved
    return [Tries(*key, *counts) for key, counts in sums.items()]


def moved(rows: Sequence[Tries], rounds: int = 3) -> list[str]:
    """By place: the share of each category in the first and in the last rounds, and of what succeeded there; easy first."""
    lines = []
    for place in dict.fromkeys(row.place for row in rows):
        own = [row for row in rows if row.place == place]
        last = max(row.round for row in own)
        spans = [[row for row in own if row.round <= rounds], [row for row in own if row.round > last - rounds]]
        for category in by_ease(own):
            cells = []
            for span in spans:
                of_it = [row for row in span if row.category == category]
                tried, solved = sum(row.tries for row in of_it), sum(row.successes for row in of_it)
                share = 100 * tried / sum(row.tries for row in span)
                cells.append(f"{share:.0f} % ({100 * solved / tried:.0f})" if tried else "0 %")
            lines.append(f"| {place[0]} | {place[1]} | {category or 'all'} | {' | '.join(cells)} |")
    return lines


def tables(found: Mapping[str, Any]) -> str:
    lines = [
        f"| arm | {found['split']}, % | by seed | sampled | learned | hint tokens | episodes shown | their tokens |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    by_arm: dict[str, list[Any]] = {}
    for run in sorted(found["runs"], key=lambda run: run["seed"]):
        by_arm.setdefault(run["arm"], []).append(run)
    methods = {method["label"]: method for method in found["comparison"]["methods"]}
    for arm, runs in by_arm.items():
        low, high = methods[arm]["macro_interval"]
        seeds = ", ".join(f"{100 * share:.1f}" for share in methods[arm]["macro_by_seed"].values())
        costs = [fmean(run[what] for run in runs) for what in ("sampled_tokens", "learned_tokens", "hint_tokens")]
        costs += [
            fmean(sum(site[what] for site in run["sites"].values()) for run in runs)
            for what in ("shown", "shown_tokens")
        ]
        lines.append(
            f"| {arm} | {100 * methods[arm]['macro']:.1f} ({100 * low:.0f}-{100 * high:.0f}) | {seeds} | "
            + " | ".join(f"{cost:,.0f}" for cost in costs)
            + " |"
        )
    lines += [
        "",
        f"| arm | site | {found['split']}, % | first alone, by seed | first helped | alone | helped | hinted episodes |"
        " hints | next actions | hint tokens | shown |",
        "| --- | --- | ---: | --- | --- " + "| ---: " * 7 + "|",
    ]
    for arm, runs in by_arm.items():
        for client in runs[0]["sites"]:
            sites = [run["sites"][client] for run in runs]
            world = methods[arm]["worlds"].get(client)
            firsts = [
                ", ".join("never" if site[what] is None else str(site[what]) for site in sites)
                for what in ("first_alone", "first_helped")
            ]
            means = [
                f"{fmean(site[what] for site in sites):,.0f}"
                for what in ("alone", "helped", "hinted", "hints", "next_actions", "hint_tokens", "shown")
            ]
            success = f"{100 * world['success']:.1f}" if world else ""
            lines.append(f"| {' | '.join([arm, client, success, *firsts, *means])} |")
    lines += [
        "",
        "| ours | theirs | points | interval | p (Holm) | verdict |",
        "| --- | --- | ---: | --- | ---: | --- |",
    ]
    for pair in found["comparison"]["pairs"]:
        low, high = pair["macro_interval"]
        lines.append(
            f"| {pair['ours']} | {pair['theirs']} | {100 * pair['macro']:+.1f} | {100 * low:.1f} to {100 * high:.1f} | "
            f"{pair['p_holm']:.3g} | {pair['verdict']} |"
        )
    lines += ["", "| arm | site | kind | first three rounds: share (solved, %) | last three |", "| --- " * 5 + "|"]
    return "\n".join([*lines, *moved(tries(found["runs"])), "", *found["comparison"]["notes"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("note", "more"):
        verbs.add_parser(verb).add_argument("run", type=Path)
    gather = verbs.add_parser("gather")
    gather.add_argument("runs", type=Path, nargs="+")
    gather.add_argument("--output", type=Path)
    draw = verbs.add_parser("draw")
    draw.add_argument("file", type=Path)
    draw.add_argument("--picture", type=Path, required=True)
    given = parser.parse_args()
    if given.verb == "note":
        (given.run / NOTE).write_text(json.dumps(noted(given.run)) + "\n")
    elif given.verb == "more":
        print(*(f"--set {setting}" for setting in as_many_shown(read_note(given.run))))
    elif given.verb == "gather":
        found = gathered(given.runs)
        print(tables(found))
        if given.output:
            given.output.write_text(json.dumps(found) + "\n")
    else:
        draw_explored(tries(json.loads(given.file.read_text())["runs"]), given.picture)


if __name__ == "__main__":
    main()
