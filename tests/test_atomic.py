"""Files and folders are there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedse.errors import CannotWrite
from fedse.storage.atomic import new_file, new_folder, write_text


def _names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_text_is_written_with_its_folders_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    write_text(path, "first")
    write_text(path, "zweiter Text: äöü 漢字\n")
    assert path.read_text(encoding="utf-8") == "zweiter Text: äöü 漢字\n"
    assert _names(tmp_path) == ["a", "a/b.txt"]


def test_text_that_cannot_be_encoded_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "b.txt"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "half \ud800")
    assert path.read_text() == "old"
    assert _names(tmp_path) == ["b.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_file_whose_writing_is_interrupted_leaves_the_old_one(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "b.txt"
    path.write_text("old")
    with pytest.raises(error), new_file(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"
        raise error
    assert path.read_text() == "old"
    assert _names(tmp_path) == ["b.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_folder_whose_writing_is_interrupted_leaves_the_old_one(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "round"
    with new_folder(path) as folder:
        (folder / "x").write_text("old")
    with pytest.raises(error), new_folder(path) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "x").write_text("new")
        raise error
    assert _names(tmp_path) == ["round", "round/x"]
    assert (path / "x").read_text() == "old"


def test_an_old_folder_that_a_killed_process_had_moved_aside_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "round"
    aside = tmp_path / ".round.old.part"
    aside.mkdir()
    (aside / "x").write_text("old")
    with pytest.raises(ValueError), new_folder(path) as folder:
        (folder / "x").write_text("new")
        raise ValueError
    assert _names(tmp_path) == ["round", "round/x"]
    assert (path / "x").read_text() == "old"


def test_a_folder_replaces_the_old_one_and_what_a_killed_process_left(tmp_path: Path) -> None:
    path = tmp_path / "round"
    path.mkdir()
    (path / "gone").write_text("old")
    (tmp_path / ".round.part").mkdir()
    (tmp_path / ".round.part" / "torn").write_text("half")
    with new_folder(path) as folder:
        (folder / "x").write_text("new")
    assert _names(tmp_path) == ["round", "round/x"]


def _as_text(path: Path) -> None:
    write_text(path, "x")


def _as_folder(path: Path) -> None:
    with new_folder(path):
        pass


@pytest.mark.parametrize("write", [_as_text, _as_folder])
@pytest.mark.parametrize("below", ["file/x", "file/x/y", "n" * 300])
def test_a_path_that_cannot_be_made_is_one_clear_sentence(tmp_path: Path, below: str, write: object) -> None:
    (tmp_path / "file").write_text("I am a file")
    with pytest.raises(CannotWrite, match=r"cannot write .+: .+: choose .+\."):
        write(tmp_path / below)  # type: ignore[operator]
    assert _names(tmp_path) == ["file"]


def test_a_folder_in_the_way_of_a_file_stays(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    with pytest.raises(CannotWrite, match="a folder of this name is in the way"):
        write_text(tmp_path / "x", "text")
    assert _names(tmp_path) == ["x", "x/y"]


def test_an_error_that_is_not_about_writing_keeps_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing_input"), new_folder(tmp_path / "x"):
        (tmp_path / "missing_input").read_text()
    assert _names(tmp_path) == []
