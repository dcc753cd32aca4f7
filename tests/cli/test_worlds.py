"""`fedse worlds` and `fedse worlds check`, run as commands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fedse.cli import worlds
from fedse.errors import BadInput, UnknownName
from fedse.shipped import KNOWN
from fedse.worlds.foreign.openenv_wire import OpenEnvFailed

BUILT_IN = {"babyai", "maze", "textcraft", "webshop", "wordle"}
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    monkeypatch.setenv("COLUMNS", "150")
    app = typer.Typer()
    app.add_typer(worlds.app, name="worlds")
    return app


@pytest.mark.parametrize(
    "listed",
    [
        {"maze", "wordle"},
        pytest.param({"maze", "textcraft", "webshop", "wordle"}, marks=pytest.mark.slow),
        # BabyAI's floors alone take twice as long as all others, and the tests of that world measure them too.
        pytest.param(set(KNOWN["world"]), marks=pytest.mark.torture),
    ],
    ids=["two", "without babyai", "all"],
)
def test_the_list_shows_floor_ceiling_sizes_and_speed(
    listed: set[str], app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worlds, "known", lambda kind: listed)
    result = CliRunner().invoke(app, ["worlds"])
    assert result.exit_code == 0
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in result.output.splitlines() if "%" in line]
    assert {(row[0], row[1]) for row in rows} >= {
        (name, mode) for name in listed & BUILT_IN for mode in ("clean", "original")
    }
    for _, mode, sizes, turns, floor, ceiling, speed in rows:
        assert len(sizes.split("/")) == 3
        assert int(turns) > 0
        assert 0 < float(floor.rstrip("%")) < 50
        assert ceiling == "100.0%" or (mode == "original" and float(ceiling.rstrip("%")) > 90)
        assert int(speed.replace(",", "")) > 0


def test_check_passes_for_a_short_name_with_options(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["worlds", "check", "maze", "--set", "size=4", "--set", "rules=brief"])
    assert result.exit_code == 0, result.output
    assert "maze keeps all 12 promises." in result.output


def test_check_takes_a_class_of_ones_own_and_fails_with_1(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lazy_coins.py").write_text(
        "from coin_world import CoinWorld\n"
        "class Lazy(CoinWorld):\n"
        "    def expert(self):\n"
        "        return 'Seven is lucky.', 'guess 7'\n"
    )
    assert CliRunner().invoke(app, ["worlds", "check", "coin_world:CoinWorld"]).exit_code == 0
    result = CliRunner().invoke(app, ["worlds", "check", "lazy_coins:Lazy"])
    assert result.exit_code == 1
    assert "FAIL expert" in result.output
    assert "breaks 1 of 12 promises" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["maze", "--set", "sise=4"], "there is no option 'sise': did you mean 'size'?"),
        (["maze", "--set", "size"], "write it as KEY=VALUE"),
        (["maze", "--set", "size=huge"], "option 'size'"),
        (["maze", "--set", "mode=original", "--set", "size=6"], "`size` has no effect in original mode"),
        (["maze", "--set", "size=[1"], "not a YAML scalar"),
        (["fedse.seeds:np"], "is not a class"),
        (["fedse.types:Task"], "the class has no method 'reset'"),
    ],
)
def test_bad_input_is_named(app: typer.Typer, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["worlds", "check", *arguments])
    assert isinstance(result.exception, BadInput)
    assert message in str(result.exception)


def test_an_unknown_world_is_answered_with_the_known_ones(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["worlds", "check", "mase"])
    assert isinstance(result.exception, UnknownName)
    assert "did you mean 'maze'?" in str(result.exception)


def test_a_served_world_is_played_until_ctrl_c(app: typer.Typer) -> None:
    from fedse.worlds.foreign.openenv_client import OpenEnvServer

    line = [sys.executable, "-m", "fedse", "worlds", "serve", "coin_world:CoinWorld", "--port", "0"]
    path = os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])
    serving = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})
    try:
        told = serving.stdout.readline() if serving.stdout else ""
        found = re.match(r"coins is served at (http://127\.0\.0\.1:\d+) in OpenEnv's protocol\.", told)
        assert found, told
        world = OpenEnvServer(url=found[1], text="text")
        world.reset(options={"task": "test-3"})
        assert world.step("guess 0")[0] == "There are more than 0."
        serving.send_signal(signal.SIGINT)
        assert serving.wait(20) == 0
    finally:
        serving.kill()
    with pytest.raises(OpenEnvFailed):
        world.step("guess 0")
    result = CliRunner().invoke(app, ["worlds", "serve", "maze", "--set", "size=huge"])
    assert isinstance(result.exception, BadInput)
