"""`benchmarks/speed.py` makes the tables of docs/performance.md from what the benchmarks wrote."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def speed() -> ModuleType:
    spec = importlib.util.spec_from_file_location("speed_tables", ROOT / "benchmarks/speed.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def table(speed: ModuleType, make: str, result: str) -> list[list[str]]:
    found: Any = json.loads((ROOT / f"docs/results/{result}.json").read_text())
    lines = speed.markdown(getattr(speed, make)(found)).splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize(
    ("make", "result", "row"),
    [
        (
            "played_on_gpu",
            "rollouts_static_gpu",
            ["`generate`, static cache, compiled", "34.68", "7,003", "9.2", "7.0"],
        ),
        ("drawn", "sampling_gpu", ["256", "300", "135,672", "527,648", "26%", "1.89"]),
        ("learned", "learning_gpu", ["fedse", "0.695 (0.694 to 0.699)", "1.529", "281,704", "22.3%", "11.05", "1.731"]),
        ("learned", "learning_together_gpu", ["fedse, all clients at once", "1.776 (1.759 to 1.779)", "1.776"]),
        # 397,016 tokens in 17.01 s of worlds, text, prefilling, drawing and transfer.
        ("rounds", "protocol_gpu", ["20 rounds", "181.5", ""]),
        ("rounds", "profile_gpu", ["round 1", "32.6", "17.0", "23,336", "12.03", "9.6", "1.61", "0.9", "760"]),
    ],
)
def test_a_stored_result_becomes_a_row(speed: ModuleType, make: str, result: str, row: list[str]) -> None:
    head, line, *rows = table(speed, make, result)
    assert all(len(other) == len(head) == len(line) for other in rows)
    assert row in [found[: len(row)] for found in rows]


def test_four_runs_at_once_are_a_table(speed: ModuleType) -> None:
    found = json.loads((ROOT / "docs/results/side_by_side_gpu.json").read_text())["smollm2"]
    rows = list(speed.beside(found))
    assert rows[1] == ("seed_1", 5, 119.3, 32.2) and rows[-1] == ("all at once, 92.9 GiB taken", "", 145.5, "")


def test_limits_stand_beside_what_is_reached_and_what_others_reach(speed: ModuleType) -> None:
    files = {"rollouts": "sampling_gpu", "learning": "learning_gpu", "sizes": "sizes_gpu"}
    found = {name: json.loads((ROOT / f"docs/results/{file}.json").read_text()) for name, file in files.items()}
    rows = {row[0]: row[1:] for row in speed.limits(found)}
    assert rows["sampling, 256 slots, contexts of 600"] == ("110,759 tokens/s", "", "283,090 tokens/s (memory)", "39%")
    assert rows["learning"][:2] == ("281,704 tokens/s", "70,618 (Trainer)")
    large = rows["learning, Qwen2.5-7B"]
    assert large == ("20,741 tokens/s", "8,815 (Trainer)", "37,547 tokens/s (matrix units)", "55%")
    assert "sampling, 256 slots, Gemma-3-1B" not in rows, "it was not measured"
    assert len(list(speed.limits({}))) == 1, "nothing was measured"


def test_every_command_is_there(speed: ModuleType) -> None:
    for part in (*speed.gpu(True), *speed.cpu(False)):
        program = part.command[0]
        assert program == "-m" or (ROOT / "benchmarks" / program).is_file()
        for file in [word for word in part.command if word.endswith(".yaml")]:
            assert (ROOT / file).is_file()


def test_a_benchmark_that_fails_is_named_and_the_others_go_on(
    speed: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    works = speed.Part(
        "works", ("-c", 'print("busy"); print(\'{"a": 2}\')'), [("Found", lambda found: [["a"], [found["a"]]])]
    )
    fails = speed.Part("fails", ("-c", "print('half'); raise SystemExit(3)"), [("Never", lambda found: [])])
    monkeypatch.setattr(speed, "cpu", lambda _: [fails, works])
    monkeypatch.setattr(sys, "argv", ["speed.py", "cpu", "--out", str(tmp_path)])
    assert speed.main() == 1
    told = capsys.readouterr()
    assert "### Found\n\n| a |\n| --- |\n| 2 |" in told.out and "Never" not in told.out
    assert "fails failed with code 3; its output:\nhalf" in told.err
    assert json.loads((tmp_path / "works.json").read_text()) == {"a": 2}
