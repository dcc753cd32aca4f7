"""The run folder: one owner at a time, whole rounds only, and damage is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedse.errors import BadInput, CannotWrite, FedseError, RunConflict
from fedse.runs.folder import FORMAT, RunFolder

STORED = ["adapter", "adapter/x", "digests.json", "report.json"]


def _names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def _writing(content: str) -> object:
    def write(folder: Path) -> None:
        (folder / "adapter").mkdir()
        (folder / "adapter" / "x").write_text(content)
        (folder / "report.json").write_text(json.dumps({"content": content}))

    return write


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs" / "probe", "name: probe\n", "digest")


def test_a_new_run_has_no_rounds_and_its_experiment(run: RunFolder) -> None:
    assert run.last_round() is None
    assert run.experiment() == "name: probe\n"
    assert run.manifest()["experiment"] == "digest"
    assert _names(run.path) == ["experiment.yaml", "manifest.json"]


def test_creating_again_comes_back_to_the_run(run: RunFolder) -> None:
    run.save_round(0, "d0", _writing("a"))
    again = RunFolder.create(run.path, "name: other\n", "other")
    assert again.last_round() == 0
    assert again.experiment() == "name: probe\n"


@pytest.mark.parametrize("left", [[], ["experiment.yaml"], [".experiment.yaml.part"], ["experiment.yaml", ".lock"]])
def test_a_run_killed_while_being_made_is_made_again(tmp_path: Path, left: list[str]) -> None:
    for name in left:
        (tmp_path / name).write_text("half")
    run = RunFolder.create(tmp_path, "name: probe\n", "digest")
    assert run.experiment() == "name: probe\n"


def test_what_a_kill_left_of_a_last_write_goes_when_the_run_is_begun_again(run: RunFolder) -> None:
    (run.path / ".manifest.json.part").write_text("{")
    again = RunFolder.create(run.path, "name: probe\n", "digest")
    assert _names(again.path) == ["experiment.yaml", "manifest.json"]


def test_a_folder_with_something_else_in_it_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(RunConflict, match=r"not empty and not a run \(it holds thesis.tex\)"):
        RunFolder.create(tmp_path, "name: probe\n", "digest")
    assert _names(tmp_path) == ["thesis.tex"]


def test_a_folder_that_cannot_be_made_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "x", tmp_path / "file" / "x" / "y"):
        with pytest.raises(CannotWrite, match="choose another folder"):
            RunFolder.create(path, "name: probe\n", "digest")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_without_a_manifest_is_no_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(BadInput, match="is not a run"):
            RunFolder.existing(path)


@pytest.mark.parametrize(
    "content", [b"", b'{"format": 1', b"{}", b"[]", b"7", b"null", b'{"format": 1}', b"\xff\xfe", b'{"format": "x"}']
)
def test_a_damaged_manifest_is_named_and_left_alone(run: RunFolder, content: bytes) -> None:
    path = run.path / "manifest.json"
    path.write_bytes(content)
    for use in (
        lambda: RunFolder.existing(run.path),
        lambda: RunFolder.create(run.path, "x", "y"),
        run.last_round,
        lambda: run.digest_of(0),
    ):
        with pytest.raises(RunConflict, match=r"manifest.json is damaged"):
            use()
    assert path.read_bytes() == content


def test_a_newer_format_is_refused_with_the_version_that_wrote_it(run: RunFolder) -> None:
    (run.path / "manifest.json").write_text(json.dumps({"format": FORMAT + 1, "fedse": "9.9"}))
    with pytest.raises(BadInput, match=r"written by a newer fedse \(9.9\)"):
        RunFolder.existing(run.path)


def test_rounds_are_stored_and_found(run: RunFolder) -> None:
    for number in range(11):
        run.save_round(number, f"d{number}", _writing(str(number)))
    assert RunFolder.existing(run.path).last_round() == 10
    assert run.digest_of(9) == "d9"
    assert run.report(10) == {"content": "10"}
    assert run.report(11) is None
    assert run.round_folder(7).name == "0007"


def test_a_round_that_is_not_there_is_answered_with_those_that_are(run: RunFolder) -> None:
    with pytest.raises(BadInput, match="complete rounds are none"):
        run.digest_of(0)
    run.save_round(0, "d0", _writing("a"))
    with pytest.raises(BadInput, match="has no round 3: complete rounds are 0 to 0"):
        run.digest_of(3)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_writer_that_breaks_leaves_the_old_round_and_nothing_else(run: RunFolder, error: type[BaseException]) -> None:
    run.save_round(1, "good", _writing("old"))
    before = {name: (run.path / name).read_bytes() for name in _names(run.path) if (run.path / name).is_file()}

    def breaking(folder: Path) -> None:
        _writing("new")(folder)  # type: ignore[operator]
        raise error("in the middle")

    for number in (1, 2):
        with pytest.raises(error, match="in the middle"):
            run.save_round(number, "bad", breaking)
    after = {name: (run.path / name).read_bytes() for name in _names(run.path) if (run.path / name).is_file()}
    assert after == before
    assert _names(run.path / "rounds") == ["0001", *(f"0001/{name}" for name in STORED)]


def test_a_folder_the_manifest_does_not_name_does_not_count_and_is_replaced(run: RunFolder) -> None:
    run.save_round(0, "d0", _writing("a"))
    leftover = run.round_folder(1)
    leftover.mkdir()
    (leftover / "torn").write_text("half")
    assert run.last_round() == 0
    run.save_round(1, "d1", _writing("b"))
    assert _names(leftover) == STORED


def test_saving_a_round_clears_the_spool(run: RunFolder) -> None:
    run.spool.mkdir()
    (run.spool / "site.npy").write_text("x")
    run.save_round(0, "d0", _writing("a"))
    assert not run.spool.exists()


def test_an_experiment_can_be_continued_under_a_changed_file(run: RunFolder) -> None:
    run.save_round(0, "d0", _writing("a"))
    run.replace_experiment("name: probe\nrounds: 9\n", "new")
    assert RunFolder.existing(run.path).manifest()["experiment"] == "new"
    assert run.experiment() == "name: probe\nrounds: 9\n"
    assert run.last_round() == 0


HOLDER = """
import sys
from pathlib import Path
from fedse.runs.folder import RunFolder
folder = RunFolder.existing(Path(sys.argv[1]))
folder.lock()
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_is_gone_even_if_killed(run: RunFolder) -> None:
    command = [sys.executable, "-c", HOLDER, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(RunConflict, match="in use by another process"):
            run.lock()
        run.unlock()
        with pytest.raises(RunConflict):
            RunFolder.existing(run.path).lock()
        holder.kill()
    run.lock()
    with pytest.raises(RunConflict):
        RunFolder.existing(run.path).lock()
    run.unlock()
    run.unlock()
    RunFolder.existing(run.path).lock()


def test_every_refusal_is_an_error_the_command_line_can_print() -> None:
    assert issubclass(RunConflict, FedseError)
    assert RunConflict.exit_code == BadInput.exit_code == 2
    assert CannotWrite.exit_code == 1
