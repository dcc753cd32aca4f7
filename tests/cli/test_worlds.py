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

from fedse.cli import console, worlds
from fedse.errors import BadInput, UnknownName
from fedse.plugins import resolve, summary
from fedse.plugins.shipped import KNOWN
from fedse.worlds.foreign.openenv_wire import OpenEnvFailed
from fedse.worlds.world import World

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
        ["maze", "wordle"],
        pytest.param(["maze", "textcraft", "webshop", "wordle"], marks=pytest.mark.slow),
        # BabyAI's floors alone take twice as long as all others, and the tests of that world measure them too.
        pytest.param([], marks=pytest.mark.torture),
    ],
    ids=["two", "without babyai", "all"],
)
def test_floor_ceiling_and_speed_are_measured(listed: list[str], app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["worlds", "measure", *listed])
    assert result.exit_code == 0
    line = re.compile(r"(\w+), (\w+): floor ([\d.]+)%, ceiling ([\d.]+)% on (\d+) test tasks; ([\d,]+) steps/s")
    rows = [found.groups() for found in map(line.match, result.output.splitlines()) if found]
    assert {row[:2] for row in rows} == {(name, mode) for name in listed or BUILT_IN for mode in ("clean", "original")}
    for _, mode, floor, ceiling, tasks, speed in rows:
        assert 0 < float(floor) < 50 and int(tasks) > 0
        assert ceiling == "100.0" or (mode == "original" and float(ceiling) > 90)
        assert int(speed.replace(",", "")) > 0


def test_one_mode_with_options_is_measured_by_itself(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["worlds", "measure", "maze", "--set", "mode=original", "--set", "turn_limit=1"])
    assert result.output.startswith("maze: floor ") and ", ceiling 4.0% on 25 test tasks" in result.output, (
        "one of the 25 starts is one step from the goal"
    )


@pytest.mark.slow
def test_every_world_is_listed_with_a_sentence_and_nothing_is_played(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(World, "reset", lambda *_, **__: pytest.fail("a list plays nothing"))
    monkeypatch.setattr(console, "PAGE", 300)
    result = CliRunner().invoke(app, ["worlds"])
    assert result.exit_code == 0, result.output
    for name in KNOWN["world"]:
        assert summary(resolve("world", name)) in result.output
    assert "600 / 210 / 210" in result.output and "needs options: url, environment" in result.output


@pytest.mark.slow
def test_check_passes_for_a_short_name_with_options(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["worlds", "check", "maze", "--set", "size=4", "--set", "rules=brief"])
    assert result.exit_code == 0, result.output
    assert "maze keeps all 14 promises." in result.output


@pytest.mark.slow
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
    kept = CliRunner().invoke(app, ["worlds", "check", "coin_world:CoinWorld"])
    assert kept.exit_code == 0 and "CoinWorld keeps its 11 promises; 3 not offered." in kept.output
    result = CliRunner().invoke(app, ["worlds", "check", "lazy_coins:Lazy"])
    assert result.exit_code == 1
    assert "FAIL expert" in result.output
    assert "breaks 1 of 11 promises; 3 not offered." in result.output


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


@pytest.mark.slow
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
