"""Whole rounds with a network of a size that people use: seconds and memory of every span of `fedse profile`.

python benchmarks/replayed_round.py --out round.json                           Qwen2.5-7B, two rounds, 60 demonstrations
python benchmarks/replayed_round.py --demonstrations 200 --rounds 1            as many as the paper's protocol has here
python benchmarks/replayed_round.py --shape SmolLM2-135M --demonstrations 200  a smaller network
python benchmarks/replayed_round.py --set learner.tokens_at_once=32768         another key of the experiment

Everything is fedse's own: experiment, engine, player, policy, buffers, learner, aggregator, run folder. Only weights are
random (`shapes.py`), so replies would not end and nothing would succeed. Therefore conversations are replayed: five sites
explore tasks whose observations, replies, turns and outcomes have the lengths of a recorded SmolLM2 run
(`recorded_lengths.py`), and begin with as many of its successes as `--demonstrations` says. Worlds cost nothing here: what
real ones take on the host comes on top. Each site is evaluated on one task before the first round and after the last, as
an experiment has to. One adapter learns at a time, as in `sizes.py`; `--adapters-at-once 5` is what networks of up to 4 GiB
do by themselves on a GPU, and takes more memory.

The first round records CUDA graphs; a later one shows what a round takes from then on. `--out` is written after every round,
so that a run that is cut off keeps what it has. Every span waits for the GPU; with `--overlap` none does, rounds are
shorter, and the GPU's work counts where the host waits for it, so that twenty rounds cannot be estimated.

On an H200 the defaults took 167 s: 18 s to begin, rounds of 64 and 67 s, imports and the end.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from memory_watch import MemoryWatch
from protocol_tokens import PROTOCOL
from recorded_lengths import SMOLLM2, recorded
from replayed_start import ReplayedStart
from replayed_world import ReplayedWorld
from replaying_policy import ReplayingPolicy
from shapes import SHAPES, model_class
from speed import Rows, markdown

from fedse.evaluation.profile import END, Profile
from fedse.experiments.file import override
from fedse.experiments.options import Experiment
from fedse.experiments.running import prepare
from fedse.runs.provenance import describe, devices
from fedse.stopwatch import MEANINGS, running
from fedse.storage import atomic

LEARNING = ("learning", "loss", "backward", "loss and backward", "optimiser")
"""Spans that grow with the number of learned tokens."""
RECORDING = "recording"
ROUNDS = 20
COUNTED = {
    "episodes": "episodes",
    "episodes to evaluate": "of them evaluation",
    "prefilled": "tokens prefilled",
    "decoded": "tokens sampled",
    "learned": "tokens learned",
}
Found = dict[str, Any]


def experiment(given: argparse.Namespace) -> Experiment:
    worlds = recorded(given.recording)
    longest = max(world.longest for world in worlds.values())
    content: dict[str, Any] = {
        "name": "replayed_round",
        "rounds": given.rounds,
        "model": {"name": model_class(given.shape), "context": longest + 64, "lora": {"rank": 8}},
        "clients": {
            name: {"worlds": [{"name": ReplayedWorld, "recording": given.recording, "of": name}]} for name in worlds
        },
        "start": {"name": ReplayedStart, "demonstrations": given.demonstrations},
        "exploration": {"tasks": given.tasks},
        "evaluation": {"tasks": 1, "tasks_per_round": 0, "test_tasks": 0},
        # The paper's rate for seven billion parameters: what is learned here is noise, and should stay finite.
        "learner": {"learning_rate": 5e-5, "batch_size": 8, "adapters_at_once": given.adapters_at_once},
        "policy": {"name": ReplayingPolicy, "slots": given.slots},
    }
    override(content, given.set, {})
    return Experiment.model_validate(content)


class KeptProfile(Profile):
    """Tells what there is after every stretch, with the memory of its spans."""

    def __init__(self, watch: MemoryWatch, keep: Callable[[list[Found]], None]) -> None:
        super().__init__(watch)
        self._watch, self._keep = watch, keep
        self._told: list[Found] = []

    def cut(self, name: str) -> None:
        super().cut(name)
        self._told.append({**self.stretches[-1].to_json(), "memory_gib": self._watch.cut_memory()})
        self._keep(self._told)


def measured(given: argparse.Namespace, keep: Callable[[Found], None], runs: Path | None = None) -> Found:
    """Rounds and what they took, kept after each of them; the run's folder is removed if no place for it is given."""
    settings = {name: value.name if isinstance(value, Path) else value for name, value in vars(given).items()}
    found: Found = {"settings": settings, "meanings": MEANINGS, "machine": {}, "waits_for": [], "stretches": []}

    def told(stretches: list[Found]) -> None:
        found["stretches"] = stretches
        keep(found)

    watch = MemoryWatch()
    profile = KeptProfile(watch, told)
    folder = TemporaryDirectory(prefix="fedse-replayed-") if runs is None else nullcontext(runs)
    try:
        with folder as kept_in, running(watch):
            with prepare(experiment(given), kept_in, [profile]) as federation:
                assert federation.components is not None
                model: Any = federation.components.model
                policy: Any = federation.components.policy
                found |= {"machine": describe(model), "decoder": type(policy._decoder).__name__}
                gpus = [name for name in devices(model) if name.startswith("cuda")]
                if gpus and not given.overlap:
                    found["waits_for"] = gpus
                    watch.settle = torch.cuda.synchronize
                federation.finish()
            profile.cut(END)
    except Exception as error:
        # Unattended, what was measured before and why it ended are all that is left.
        found["error"] = f"{type(error).__name__}: {error}"
        keep(found)
    return found


def rounds_of(found: Found) -> list[Found]:
    return [stretch for stretch in found["stretches"] if stretch["name"].startswith("round ")]


def spans(found: Found) -> Rows:
    shown = [stretch for stretch in found["stretches"] if stretch["name"] != END]
    yield "seconds", *(stretch["name"] for stretch in shown), "GiB allocated at most", "GiB reserved at most"
    names = dict.fromkeys(name for stretch in [*rounds_of(found)[::-1], *shown] for name in stretch["spans"])
    for name in names:
        seconds = (f"{stretch['spans'][name]:.2f}" if name in stretch["spans"] else "" for stretch in shown)
        yield name, *seconds, *_most(shown, name)
    yield "all", *(f"{stretch['seconds']:.2f}" for stretch in shown), *_most(shown)
    for key, label in COUNTED.items():
        yield label, *(stretch["counts"].get(key, 0) for stretch in shown), "", ""


def _most(shown: Sequence[Found], span: str | None = None) -> Iterator[str]:
    """The most that a span, or any, had in one of the stretches."""
    for kind in ("allocated", "reserved"):
        noted = [
            memory[kind] for stretch in shown for name, memory in stretch["memory_gib"].items() if span in (None, name)
        ]
        yield f"{max(noted):.1f}" if noted else ""


def estimate(found: Found) -> str:
    """Twenty rounds of the paper's protocol, if all are like the last one here. Its episodes were played greedily and are
    shorter than explored ones (190 sampled tokens, where a run had 246), so playing is a little too cheap."""
    *earlier, last = rounds_of(found)
    learning = sum(last["spans"].get(name, 0.0) for name in LEARNING)
    others = last["seconds"] - learning - last["spans"].get(RECORDING, 0.0)
    recording = sum(stretch["spans"].get(RECORDING, 0.0) for stretch in rounds_of(found))
    speed = last["counts"]["learned"] / learning
    lines = [
        f"{last['name'].capitalize()}: {last['counts']['learned']:,} tokens learned in {learning:.1f} s, {speed:,.0f} per "
        f"second; {others:.1f} s for {last['counts']['episodes']} episodes and everything else, recording left out."
    ]
    for key, demonstrations in (("learned", "200 demonstrations per site"), ("learned_6284", "6,284 in all")):
        whole = ROUNDS * others + PROTOCOL[key] / speed + recording
        lines.append(
            f"{ROUNDS} rounds, {demonstrations}: {ROUNDS} x {others:.1f} + {PROTOCOL[key]:,} / {speed:,.0f} + "
            f"{recording:.1f} for recording = {whole:,.0f} s, {whole / 3600:.2f} hours."
        )
    if not earlier:
        lines.append("Too long: the first round also fills the buffers. Measure two rounds or more.")
    return "\n".join(lines)


def report(found: Found) -> str:
    made = found["machine"]
    head = (
        found["settings"]["shape"],
        made.get("device"),
        made.get("precision"),
        found.get("decoder"),
        made.get("commit"),
    )
    parts = [", ".join(filter(None, head))]
    parts += [markdown(spans(found))] if found["stretches"] else []
    parts += [estimate(found)] if rounds_of(found) and not found["settings"]["overlap"] else []
    parts += [f"Ended early: {found['error']}"] if "error" in found else []
    return "\n\n".join(parts)


def settings() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--shape", choices=list(SHAPES), default="Qwen2.5-7B", metavar="NAME")
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--tasks", type=int, default=64, help="explored by each site in a round")
    options.add_argument(
        "--demonstrations", type=int, default=60, help="of each site; the paper's protocol has 200 here"
    )
    options.add_argument("--slots", type=int, default=256)
    options.add_argument("--adapters-at-once", type=int, default=1)
    options.add_argument("--overlap", action="store_true", help="do not wait for the GPU where a span ends")
    options.add_argument("--recording", type=Path, default=SMOLLM2, help="a file of recorded_lengths.py")
    options.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a key of the experiment; may be repeated",
    )
    options.add_argument("--out", type=Path)
    return options


def main() -> int:
    given = settings().parse_args()
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)

    def keep(found: Found) -> None:
        if given.out:
            atomic.write_text(given.out, json.dumps(found, indent=1) + "\n")
        print(json.dumps(found["stretches"][-1:]), file=sys.stderr, flush=True)

    found = measured(given, keep)
    print(report(found))
    return int("error" in found)


if __name__ == "__main__":
    sys.exit(main())
