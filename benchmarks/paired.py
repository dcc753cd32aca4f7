"""Arms side by side on the same test tasks: `fedse compare` for runs of which only a record is left.

python benchmarks/paired.py docs/results/sharing_paired.json/skin_{nest,local}4_s{1,2,3} --against skin_local4
python benchmarks/paired.py FILE/{flipped,without}_s1 --against without --leave-out "foreign: textcraft"

Records are those of `benchmarks/records.py`, FILE/NAME, from one file or several. An arm is what is left of a record's name
without `-s` or `_s` and its seed: only the settings of worlds are compared. Older records say how many tasks were
solved and not which: `benchmarks/unpaired.py` reads these. Tests and intervals are those of `fedse compare`, and so is what
`--output` gets.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedse.cli.compare import print_comparison
from fedse.cli.console import make_console
from fedse.errors import BadInput
from fedse.evaluation.comparison import compare, to_json
from fedse.evaluation.measured import Cost, Measured


def read(path: Path, left_out: Sequence[str]) -> Measured:
    """A record as `fedse compare` would have read the run."""
    if not path.parent.is_file():
        raise SystemExit(f"{path}: {path.parent} is no file of records; give FILE/NAME.")
    records = json.loads(path.parent.read_text()).get("runs", {})
    if path.name not in records:
        raise SystemExit(f"{path.parent} has no record of {path.name}; it has {', '.join(records)}.")
    record: dict[str, Any] = records[path.name]
    of_arm = re.fullmatch(r"(.+)[-_]s(\d+)", path.name)
    if of_arm is None:
        raise SystemExit(f"{path}: the name of a run ends with its seed, as in mean-s1.")
    if "solved" not in record:
        raise SystemExit(
            f"{path}: it does not say which tasks were solved; benchmarks/unpaired.py needs only how many."
        )
    if unknown := set(left_out) - record["solved"].keys():
        raise SystemExit(f"--leave-out {unknown.pop()}: {path} has {', '.join(record['solved'])}.")
    worlds = {world: solved for world, solved in record["solved"].items() if world not in left_out}
    rounds = len(record["validation_entering_each_round"])
    return Measured(
        name=path.name,
        seed=int(of_arm[2]),
        method=of_arm[1],
        settings={
            "method": of_arm[1],
            **{f"worlds.{world}": record["tasks"][world] for world in worlds},
        },
        round=rounds,
        worlds={
            world: {f"{place:04d}": figure == "1" for place, figure in enumerate(solved)}
            for world, solved in worlds.items()
        },
        errors=0,
        curves={},
        costs={
            rounds: Cost(
                explored_tokens=record["explored_agent_tokens"],
                learned_tokens=record["learned_tokens"],
                seconds=60 * record["minutes_of_rounds"],
                bytes=record["adapter_bytes_up_and_down"],
            )
        },
        made_with=record["made_with"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--against", required=True, help="the arm that the others are compared with")
    parser.add_argument("--leave-out", action="append", default=[], metavar="WORLD", help="as the records name it")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    try:
        found = compare([read(path, given.leave_out) for path in given.records], given.against)
    except BadInput as error:
        raise SystemExit(str(error)) from error
    print_comparison(make_console(), found, "test")
    if given.output:
        given.output.write_text(json.dumps({"split": "test", **to_json(found)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
