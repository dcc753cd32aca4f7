"""The speed tables of docs/performance.md in one go, with the usual tools in the same run.

python benchmarks/speed.py gpu            one NVIDIA GPU; `fedse models pull smollm2` first
python benchmarks/speed.py cpu            one thread
python benchmarks/speed.py gpu --static   also beside `generate` with a static cache, which takes minutes to compile
python benchmarks/speed.py cpu --out speed_cpu
python benchmarks/speed.py gpu --only rollouts learning sizes    what the last table, of limits, is made of

On a GPU start NVIDIA's MPS before (`nvidia-cuda-mps-control -d`): the four runs of `side_by_side` share the card.

Nothing is measured here: the other benchmarks and `fedse profile` run one after the other, each in a process of its own,
and their numbers become Markdown. `--out` keeps these numbers, a JSON file for each. One that fails is named, and the
others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROCESSES = 8
"""Worker processes of the paper's protocol on a machine with a GPU."""
LARGE = "Qwen2.5-7B"
"""The paper's model, with random weights."""
PLAYING = ("world", "text", "prefill", "decode", "transfer")
"""Spans of a profile in which episodes are played."""

WAYS = ("generate", "static")
"""The usual tools for playing."""

Rows = Iterator[Sequence[object]]


@dataclass(frozen=True)
class Part:
    """One benchmark, and the tables that are made of its numbers: a heading and rows, the names of columns first."""

    name: str
    command: Sequence[str]
    tables: Sequence[tuple[str, Callable[[Any], Rows]]]
    writes: str = ""
    """Its option for a JSON file; without one the last thing that it prints is JSON."""


def gpu(static: bool) -> list[Part]:
    rollouts = ("rollouts_gpu.py", "--model", "smollm2", "--slots", "256", "--episodes", "256")
    learning = ("learning.py", "--model", "SmolLM2-135M")
    several = ("--clients", "5", "--trajectories", "200", "--shortest", "200", "--tokens", "620", "--opening", "120")
    ways = ("--ways", "generate", *(["static"] if static else []))
    return [
        Part("rollouts", (*rollouts, *ways), [("Playing", played_on_gpu), ("Drawing alone", drawn)], "--out"),
        Part(
            "learning",
            (*learning, "--trajectories", "128", "--tokens", "2048", "--batch", "32"),
            [("Learning", learned)],
            "--output",
        ),
        Part(
            "together",
            (*learning, *several, "--batch", "8", "--ways", "packed", "together"),
            [("Several adapters at once", learned)],
            "--output",
        ),
        Part(
            "profile",
            profile("recipes/smollm2.yaml", "20", "--overlap", "--set", f"engine.processes={PROCESSES}"),
            [("The paper's protocol", rounds)],
            "--output",
        ),
        Part(
            "side_by_side",
            ("side_by_side.py", "recipes/smollm2.yaml", "--runs", "4", "--set", f"engine.processes={PROCESSES // 4}"),
            [("Four runs on one card", beside)],
            "--out",
        ),
        Part(
            "sizes", ("sizes.py", "--shapes", LARGE, "--limit", "150"), [("Seven billion parameters", sized)], "--out"
        ),
    ]


def cpu(_: bool) -> list[Part]:
    return [
        Part("rollouts", ("rollouts_cpu.py", "--episodes", "64", "--threads", "1"), [("Playing", played_on_cpu)]),
        Part(
            "learning",
            (
                "learning.py",
                "--model",
                "nano",
                "--recipe",
                "recipes/nano.yaml",
                "--trajectories",
                "32",
                "--threads",
                "1",
            ),
            [("Learning", learned)],
            "--output",
        ),
        Part("worlds", ("worlds.py",), [("Worlds", stepped)]),
        Part("host", ("host.py",), [("The host's share", of_the_host)]),
        Part("server", ("server_round.py",), [("The server's share", of_the_server)]),
        Part(
            "profile",
            profile("src/fedse/cli/demo.yaml", "2", "--set", "model.threads=1"),
            [("The demo", rounds)],
            "--output",
        ),
    ]


def profile(file: str, count: str, *further: str) -> Sequence[str]:
    return ("-m", "fedse", "profile", file, "--rounds", count, "--set", "evaluation.test_tasks=0", *further)


def played_on_gpu(found: Any) -> Rows:
    yield "", "episodes/s", "tokens drawn/s", "memory (GiB)", "policy: times as fast"
    names = {"generate": "`generate`, one batch", "static": "`generate`, static cache, compiled", "policy": "policy"}
    for way in filter(found.__contains__, names):
        one, fastest = found[way], found["policy"]["episodes_per_second"]
        times = round(fastest / one["episodes_per_second"], 1)
        yield names[way], one["episodes_per_second"], one["decoded_per_second"], one["peak_gib"], times


def drawn(found: Any) -> Rows:
    yield "slots", "context", "tokens/s", "limit of the memory", "share", "a step (ms)"
    for name, one in found.items():
        if name.startswith("decoding_"):
            yield (
                one["slots"],
                one["context"],
                one["decoded_per_second"],
                one["limit_of_memory_per_second"],
                f"{one['share_of_limit']:.0%}",
                one["milliseconds_per_step"],
            )


def learned(found: Any) -> Rows:
    yield "", "seconds", "CPU seconds", "tokens/s", "of the matrix rate", "memory (GiB)", "the first time (s)"
    names = {
        "trainer": "peft with the Hugging Face Trainer",
        "padded": "fedse, padded",
        "packed": "fedse",
        "together": "fedse, all clients at once",
    }
    for way, one in found["ways"].items():
        seconds = f"{one['seconds']} ({one['spread'][0]} to {one['spread'][1]})"
        yield (
            names[way],
            seconds,
            one["cpu_seconds"],
            one["tokens_per_second"],
            f"{one['share_of_matrix_rate']:.1%}",
            found["reserved_gib"].get(way, ""),
            one["first_seconds"],
        )


def sized(found: Any) -> Rows:
    yield "", "sampled/s", "prefilled/s", "memory to play (GiB)", "learned/s", "memory to learn (GiB)"
    keys = ("sampled_per_second", "prefilled_per_second", "gib_to_play", "learned_per_second", "gib_to_learn")
    for name, one in found.items():
        yield name, *(one.get(key, "") for key in keys)


def limits(found: Mapping[str, Any]) -> Rows:
    """What fedse does, what the usual tool does in the same run, and what the card allows, by the names of the parts."""
    yield "work", "fedse", "usual tool", "limit", "share of it"
    if played := found.get("rollouts"):
        beside = ", ".join(f"{played[way]['episodes_per_second']} (`{way}`)" for way in WAYS if way in played)
        busy = [one["decoded_per_second"] for name, one in played.items() if name.startswith("decoding_")]
        policy = played["policy"]
        share = f"{policy['decoded_per_second'] / busy[0]:.0%} of the tokens/s with all slots busy" if busy else ""
        yield f"playing {policy['episodes']} episodes", f"{policy['episodes_per_second']} episodes/s", beside, "", share
        for one in (one for name, one in played.items() if name.startswith("decoding_")):
            limit = f"{one['limit_of_memory_per_second']:,} tokens/s (memory)"
            what = f"sampling, {one['slots']} slots, contexts of {one['context']}"
            yield what, f"{one['decoded_per_second']:,} tokens/s", "", limit, f"{one['share_of_limit']:.0%}"
    if learned := found.get("learning"):
        ways, limit = learned["ways"], f"{learned['limit_tokens_per_second']:,} tokens/s (matrix units)"
        beside = f"{ways['trainer']['tokens_per_second']:,} (Trainer)"
        for way, what in (("packed", "learning"), ("padded", "learning, networks without a fast path")):
            one = ways[way]
            yield what, f"{one['tokens_per_second']:,} tokens/s", beside, limit, f"{one['share_of_matrix_rate']:.0%}"
    for name, one in found.get("sizes", {}).items():
        if "sampled_per_second" in one:
            tools = {"generate_sampled_per_second": "`generate`", "static_sampled_per_second": "static cache, recorded"}
            beside = ", ".join(f"{one[key]:,} ({tool})" for key, tool in tools.items() if key in one)
            limit = f"{one['limit_of_memory_per_second']:,} tokens/s (memory)"
            done = f"{one['sampled_per_second']:,} tokens/s"
            yield f"sampling, {one['slots']} slots, {name}", done, beside, limit, f"{one['share_of_limit']:.0%}"
        if "learned_per_second" in one:
            share = one["share_of_matrix_rate_computed"]
            beside = f"{one['trainer_learned_per_second']:,} (Trainer)" if "trainer_learned_per_second" in one else ""
            limit = f"{round(one['learned_per_second'] / share):,} tokens/s (matrix units)"
            yield f"learning, {name}", f"{one['learned_per_second']:,} tokens/s", beside, limit, f"{share:.0%}"


def rounds(found: Any) -> Rows:
    yield (
        "",
        "seconds",
        "of them playing",
        "tokens drawn/s while playing",
        "recording",
        "worlds",
        "text",
        "disk",
        "episodes",
    )
    for one in found["stretches"]:
        spans, counts = one["spans"], one.get("counts", {})
        playing = sum(spans.get(name, 0.0) for name in PLAYING)
        drawn_tokens = counts.get("decoded", 0)
        yield (
            one["name"],
            round(one["seconds"], 1),
            round(playing, 1),
            round(drawn_tokens / playing) if drawn_tokens else "",
            *(round(spans.get(name, 0.0), 2) for name in ("recording", "world", "text", "disk")),
            counts.get("episodes", 0),
        )
    played = [one for one in found["stretches"] if one["name"].startswith("round ")]
    yield f"{len(played)} rounds", round(sum(one["seconds"] for one in played), 1), *[""] * 7


def beside(found: Any) -> Rows:
    yield "", "rounds", "seconds of its rounds", "first round (s)"
    for name, seconds in found["seconds_of_rounds"].items():
        yield name, len(seconds), round(sum(seconds), 1), seconds[0]
    yield f"all at once, {found['gib_taken']} GiB taken", "", found["seconds"], ""


def played_on_cpu(found: Any) -> Rows:
    ways = {
        "naive": "`generate` each turn",
        "transformers": "policy through transformers",
        "rectangles": "policy, rectangles",
        "fast": "policy",
    }
    yield "turns/s", *ways.values(), "times `generate`", "times transformers", "same actions as `generate`"
    for world, one in found["worlds"].items():
        speeds = [one["turns_per_second"][way] for way in ways]
        same = f"{one['same_actions']['naive']} of {one['episodes']['naive']}"
        yield world, *speeds, one["fast_times_naive"], one["fast_times_transformers"], same


def stepped(found: Any) -> Rows:
    yield "steps/s", "clean", "original", "wrapper in AgentGym (another machine)"
    for world, speeds in found["steps_per_second"].items():
        yield world, speeds["clean"], speeds["original"], found["original_wrappers"][world]


def of_the_host(found: Any) -> Rows:
    settings = {name: one["seconds_for_1000_turns"] for name, one in found.items() if name != "machine"}
    yield "CPU seconds for 1,000 turns", *settings
    for span in next(iter(settings.values())):
        yield span, *(one[span] for one in settings.values())
    yield "all", *(found[name]["all"] for name in settings)


def of_the_server(found: Any) -> Rows:
    yield f"CPU seconds of a round, {found['clients']} clients", "seconds"
    yield from found["seconds"].items()
    yield "all", found["all"]


def measured(part: Part, folder: Path, surroundings: dict[str, str]) -> Any:
    """The numbers of a benchmark; None if it failed, which is told."""
    path = folder / f"{part.name}.json"
    program = part.command if part.command[0].startswith("-") else (f"benchmarks/{part.command[0]}", *part.command[1:])
    command = [sys.executable, *program, *([part.writes, str(path)] if part.writes else [])]
    print(f"$ python {' '.join(command[1:])}", file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, **surroundings})
    if done.returncode:
        print(f"{part.name} failed with code {done.returncode}; its output:\n{done.stdout}", file=sys.stderr)
        return None
    if not part.writes:
        path.write_text(done.stdout[done.stdout.rindex("\n{") + 1 if "\n{" in done.stdout else 0 :])
    return json.loads(path.read_text())


def markdown(rows: Rows) -> str:
    head, *others = ([_shown(value) for value in row] for row in rows)
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("where", choices=["gpu", "cpu"])
    options.add_argument("--static", action="store_true", help="on a GPU, measure the static cache too")
    options.add_argument("--only", nargs="+", help="names of the benchmarks to run")
    options.add_argument("--out", type=Path, help="a folder for the numbers")
    given = options.parse_args()
    parts = [
        part for part in {"gpu": gpu, "cpu": cpu}[given.where](given.static) if part.name in (given.only or [part.name])
    ]
    surroundings = {"OMP_NUM_THREADS": "1"} if given.where == "cpu" else {}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    print(f"Commit {commit.stdout.strip() or 'not known'}, {platform.machine()}, {os.cpu_count()} cores.")
    every: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.out or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for part in parts:
            found = measured(part, folder, surroundings)
            if found is not None:
                every[part.name] = found
            for heading, table in part.tables if found is not None else ():
                print(f"\n### {heading}\n\n{markdown(table(found))}", flush=True)
    if given.where == "gpu":
        print(f"\n### Limits\n\n{markdown(limits(every))}")
    return int(len(every) < len(parts))


if __name__ == "__main__":
    sys.exit(main())
