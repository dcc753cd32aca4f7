"""What a round costs with networks of the sizes that people use: which path each takes, how fast, in how much memory.

python benchmarks/sizes.py --out sizes.json                       all shapes, one after another, on one GPU
python benchmarks/sizes.py --shapes Qwen2.5-7B --out sizes.json
python benchmarks/sizes.py --shapes Gemma-3-1B Phi-4-mini --parts learning --out fallback.json

Weights are random (`shapes.py`), so what is measured is speed and memory. Each shape is measured in a process of its own
(`one_size.py`), and `--out` holds every part as soon as it is there. A part that fails is named with its error.

playing   replies of a fixed length by the policy, all slots busy, beside `generate` with the same conversations as one
          batch, and beside what the memory of the card allows: every step reads all weights and all keys and values once.
          Encoding the conversations and sampling are timed apart
learning  the learner and peft with the Trainer (as in `learning.py`) on the same trajectories. The Trainer's time is
          without setting it up. An opening that all trajectories share is computed once by the learner: the share of the
          matrix rate is told in the usual count, and with that left out ("computed")
static    transformers' own step with its static cache, recorded as a CUDA graph (`static_step.py`): `generate` would
          compile it, which takes minutes for each shape

The last table is arithmetic: the tokens that a recorded run of the paper's protocol played and learned
(`protocol_tokens.py`), divided by these speeds. It leaves out what worlds and the host cost; `replayed_round.py` measures
whole rounds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from one_size import FOUND, add_options
from protocol_tokens import PROTOCOL
from shapes import SHAPES
from speed import Rows, markdown

HERE = Path(__file__).parent


class Waiting:
    """A process that has imported what it needs and measures its shape when told to."""

    def __init__(self, name: str, settings: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "one_size.py"), name, *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self, limit: float) -> Iterator[dict[str, Any]]:
        """Each part as it comes; what did not end by itself within the limit, in seconds, is ended."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        ended = threading.Event()
        ending = threading.Timer(limit, lambda: (ended.set(), process.kill()))
        ending.start()
        try:
            process.stdin.write("\n")
            process.stdin.close()
            for line in process.stdout:
                if line.startswith(FOUND):
                    yield json.loads(line.removeprefix(FOUND))
            if code := process.wait():
                yield {"error": f"ended with code {code}" + (f" after {limit:.0f} seconds" if ended.is_set() else "")}
        except BrokenPipeError:
            yield {"error": f"ended with code {process.wait()} before it began"}
        finally:
            ending.cancel()

    def leave(self) -> None:
        self._process.kill()
        self._process.wait()


def measured(names: Sequence[str], settings: Sequence[str], limit: float, keep: Callable[[Any], None]) -> Any:
    """All shapes in turn. The next process imports while this one measures: that is a tenth of the time of a shape."""
    found: dict[str, Any] = {}
    waiting = Waiting(names[0], settings)
    try:
        for number, name in enumerate(names):
            present, found[name] = waiting, {}
            if number + 1 < len(names):
                waiting = Waiting(names[number + 1], settings)
            for part in present.measure(limit):
                found[name] |= part
                keep(found)
                print(name, json.dumps(part), file=sys.stderr, flush=True)
    finally:
        waiting.leave()
    return found


def hours(one: dict[str, Any], learned: str) -> float:
    playing = PROTOCOL["prefilled"] / one["prefilled_per_second"] + PROTOCOL["sampled"] / one["sampled_per_second"]
    return (playing + PROTOCOL[learned] / one["learned_per_second"]) / 3600


def _of(found: dict[str, Any], key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Shapes of which this was measured."""
    return ((name, one) for name, one in found.items() if key in one)


def paths(found: dict[str, Any]) -> Rows:
    yield "", "weights (GiB)", "keys and values per token (KiB)", "plays through", "learns through"
    for name, one in _of(found, "decoder"):
        yield name, one["weights_gib"], one["kept_kib_per_token"], f"`{one['decoder']}`", f"`{one['pass']}`"


def played(found: dict[str, Any]) -> Rows:
    yield (
        *("", "sampled/s", "of the memory's limit", "`generate`", "times", "static, recorded", "times"),
        *("prefilled/s", "`generate`", "times", "memory (GiB)"),
    )
    for name, one in _of(found, "decoder"):
        share = f"{one['share_of_limit']:.0%}" if "share_of_limit" in one else ""
        beside = [*_beside(one, "sampled_per_second", "generate_"), *_beside(one, "sampled_per_second", "static_")]
        encoded = one["prefilled_per_second"], *_beside(one, "prefilled_per_second", "generate_")
        yield name, one["sampled_per_second"], share, *beside, *encoded, one["gib_to_play"]


def _beside(one: dict[str, Any], key: str, other: str) -> tuple[object, object]:
    """The other's number, and how many times it is ours."""
    number = one.get(other + key)
    return (number, round(one[key] / number, 1)) if number else ("", "")


def learned(found: dict[str, Any]) -> Rows:
    yield (
        *("", "learned/s", "of the matrix rate", "computed", "Trainer", "times", "memory (GiB)"),
        *("Trainer's memory", "Trainer's rows at once"),
    )
    for name, one in _of(found, "learned_per_second"):
        shares = f"{one['share_of_matrix_rate']:.0%}", f"{one['share_of_matrix_rate_computed']:.0%}"
        other = one.get("trainer_learned_per_second")
        times = round(one["learned_per_second"] / other, 2) if other else ""
        memory = one["gib_to_learn"], one.get("trainer_gib", ""), one.get("trainer_rows", "")
        yield name, one["learned_per_second"], *shares, other or "", times, *memory


def protocol(found: dict[str, Any]) -> Rows:
    yield "hours of twenty rounds", "200 demonstrations per site", "6,284 in all"
    for name, one in _of(found, "learned_per_second"):
        if "decoder" in one:
            yield name, round(hours(one, "learned"), 2), round(hours(one, "learned_6284"), 2)


def failed(found: dict[str, Any]) -> Rows:
    yield "failed", "", ""
    for name, one in found.items():
        yield from ((name, key.removesuffix("_error"), one[key]) for key in one if key.endswith("error"))


TABLES = {
    "Paths": paths,
    "Playing": played,
    "Learning": learned,
    "The paper's protocol": protocol,
    "Not measured": failed,
}


def tables(found: dict[str, Any]) -> Iterator[str]:
    for heading, make in TABLES.items():
        rows = list(make(found))
        if len(rows) > 1:
            yield f"### {heading}\n\n{markdown(iter(rows))}\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES), metavar="NAME")
    options.add_argument("--limit", type=float, default=240.0, help="seconds that a shape may take at most")
    options.add_argument("--out", type=Path)
    own = argparse.ArgumentParser(add_help=False)
    add_options(own)
    given, settings = options.parse_known_args()
    own.parse_args(settings)  # Another process reads them: what is wrong is said here, once.

    def keep(found: Any) -> None:
        if given.out:
            given.out.write_text(json.dumps(found, indent=1) + "\n")

    print("\n".join(tables(measured(given.shapes, settings, given.limit, keep))))


if __name__ == "__main__":
    main()
