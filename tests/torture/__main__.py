"""Try to break fedse with inputs that somebody damaged: `make torture`, or

PYTHONPATH=tests python -m torture --cases 100000 --folders 2000
PYTHONPATH=tests python -m torture records --seed 5 --case 812      one case again, with everything it says
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from .cases import KINDS, OUTCOMES, WRONG, outcome, outcomes

_CHUNK = 50
_SHOWN = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="*", choices=[*KINDS, []], help="all kinds if none is named")
    parser.add_argument("--cases", type=int, default=100_000, help="of all kinds but run folders together")
    parser.add_argument("--folders", type=int, default=2_000, help="run folders")
    parser.add_argument("--seed", type=int, default=None, help="another one each time if it is not given")
    parser.add_argument("--case", type=int, default=None, help="play this case of one kind alone")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    kinds = given.kind or list(KINDS)
    if given.case is not None:
        print(*outcome(kinds[0], seed, given.case), sep="\n")
        return 0
    return torture(kinds, given.cases, given.folders, seed, given.processes)


def torture(kinds: list[str], cases: int, folders: int, seed: int, processes: int) -> int:
    print(f"seed {seed}, {processes} processes", flush=True)
    print("\n| kind | cases | no difference | refused with a sentence | silent | tracebacks | seconds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    light = [kind for kind in kinds if kind != "folders"]
    wrong: dict[tuple[str, int], str] = {}
    with ProcessPoolExecutor(processes) as pool:
        for kind in kinds:
            count = folders if kind == "folders" else cases // len(light)
            began, counted = time.monotonic(), Counter[str]()
            chunks = [range(at, min(count, at + _CHUNK)) for at in range(0, count, _CHUNK)]
            for found, failures in pool.map(outcomes, [kind] * len(chunks), [seed] * len(chunks), chunks):
                counted += found
                wrong |= {(kind, number): told for number, told in failures.items()}
            numbers = " | ".join(f"{counted[name]:,}" for name in OUTCOMES)
            print(f"| {KINDS[kind]} | {count:,} | {numbers} | {time.monotonic() - began:.0f} |", flush=True)
    for (kind, number), told in list(wrong.items())[:_SHOWN]:
        print(f"\n{kind} --seed {seed} --case {number}: {told}")
    if len(wrong) > _SHOWN:
        print(f"\n... and {len(wrong) - _SHOWN} more")
    return 1 if wrong else 0


if __name__ == "__main__":
    assert set(OUTCOMES) >= WRONG
    sys.exit(main())
