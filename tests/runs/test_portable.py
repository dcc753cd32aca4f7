"""One file for a whole run: out and in again without a changed bit, and nothing from a file that is not whole."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import random
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fedse.errors import BadInput, CannotWrite, RunConflict
from fedse.experience.buffer import Buffer, read_file
from fedse.runs.folder import RunFolder
from fedse.runs.portable import pack, unpack
from fedse.types import Outcome, Purpose, Step, Trajectory


def _trajectory(client: str, number: int) -> Trajectory:
    step = Step("o", "Thought: t\nAction: a", "t", "a", True)
    return Trajectory(
        client, "w", f"t{number}", Purpose.EXPLORE, 1, 0, "", (step,), "", Outcome.SUCCESS, 1.0, (number,), (True,)
    )


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock" and not path.name.endswith(("-wal", "-shm"))
    }


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run of two clients; the buffer of one is still open, with all its rows in the write-ahead log."""
    run = RunFolder.create(tmp_path / "runs" / "probe", "name: probe\n", "digest")
    run.save_round(0, "d0", lambda folder: (folder / "adapter.bin").write_bytes(random.Random(0).randbytes(20_000)))  # type: ignore[arg-type, return-value]
    for client in ("one", "odd.part"):
        buffer = Buffer(run.client_folder(client) / "buffer.sqlite", client, "print")
        buffer.remember(1, [_trajectory(client, number) for number in range(30)])
        if client == "one":
            buffer.close()
        else:
            run.open_buffer = buffer  # type: ignore[attr-defined]
    assert (run.client_folder("odd.part") / "buffer.sqlite-wal").stat().st_size > 0
    return run


def test_a_run_comes_out_as_it_went_in(run: RunFolder, tmp_path: Path) -> None:
    pack(run, tmp_path / "out.tar.gz")
    target = unpack(tmp_path / "out.tar.gz", tmp_path / "elsewhere")
    assert target == tmp_path / "elsewhere" / "probe"
    before, after = _files(run.path), _files(target)
    assert after.keys() == before.keys()
    databases = {name for name in before if name.endswith(".sqlite")}
    assert {name: after[name] for name in after.keys() - databases} == {
        name: before[name] for name in before.keys() - databases
    }
    for name in sorted(databases):
        assert read_file(target / name) == read_file(run.path / name)
        assert len(read_file(target / name)) == 30
    assert RunFolder.existing(target).digest_of(0) == "d0"
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["probe"]


def test_a_site_may_be_called_as_what_is_left_out(run: RunFolder, tmp_path: Path) -> None:
    buffer = Buffer(run.client_folder("set_aside") / "buffer.sqlite", "set_aside", "print")
    buffer.remember(1, [_trajectory("set_aside", 0)])
    buffer.close()
    (run.path / "set_aside/1/clients/one").mkdir(parents=True)
    (run.path / "set_aside/1/clients/one/buffer.sqlite").write_text("damaged")
    pack(run, tmp_path / "out.tar.gz")
    target = unpack(tmp_path / "out.tar.gz", tmp_path / "elsewhere")
    assert len(read_file(target / "clients/set_aside/buffer.sqlite")) == 1
    assert not (target / "set_aside").exists()


def test_an_unpacked_buffer_can_be_written_on(run: RunFolder, tmp_path: Path) -> None:
    pack(run, tmp_path / "out.tar.gz")
    target = unpack(tmp_path / "out.tar.gz", tmp_path / "elsewhere")
    buffer = Buffer(target / "clients" / "odd.part" / "buffer.sqlite", "odd.part", "print")
    assert buffer.remember(2, [Trajectory(**{**_fields(_trajectory("odd.part", 99)), "round": 2})]) == 1
    assert sqlite3.connect(buffer.path).execute("PRAGMA journal_mode").fetchone() == ("wal",)


def _fields(trajectory: Trajectory) -> dict[str, object]:
    return {name: getattr(trajectory, name) for name in trajectory.__dataclass_fields__}


def test_packing_changes_nothing_in_the_run(run: RunFolder, tmp_path: Path) -> None:
    before = _files(run.path)
    log = (run.client_folder("odd.part") / "buffer.sqlite-wal").read_bytes()
    pack(run, tmp_path / "out.tar.gz")
    assert _files(run.path) == before
    assert (run.client_folder("odd.part") / "buffer.sqlite-wal").read_bytes() == log


def test_left_overs_and_locks_stay_behind(run: RunFolder, tmp_path: Path) -> None:
    (run.path / "rounds" / ".0001.part").mkdir()
    (run.path / "rounds" / ".0001.part" / "torn").write_text("half")
    (run.path / ".manifest.json.part").write_text("half")
    run.spool.mkdir()
    (run.spool / "one.npy").write_text("x")
    pack(run, tmp_path / "out.tar.gz")
    names = _files(unpack(tmp_path / "out.tar.gz", tmp_path / "elsewhere")).keys()
    assert not [name for name in names if "torn" in name or ".updates" in name or name.startswith(".")]


def test_a_run_given_as_the_current_folder_keeps_its_name(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.path)
    pack(RunFolder.existing(Path()), tmp_path / "out.tar.gz")
    assert unpack(tmp_path / "out.tar.gz", tmp_path / "elsewhere").name == "probe"


def test_a_run_in_use_is_not_packed(run: RunFolder, tmp_path: Path) -> None:
    other = RunFolder.existing(run.path)
    other.lock()
    with pytest.raises(RunConflict, match="in use"):
        pack(run, tmp_path / "out.tar.gz")
    assert not (tmp_path / "out.tar.gz").exists()
    other.unlock()
    pack(run, tmp_path / "out.tar.gz")
    other.lock()  # packing let go of the run


def test_an_existing_file_is_not_packed_over(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "out.tar.gz").write_text("mine")
    with pytest.raises(BadInput, match="exists already"):
        pack(run, tmp_path / "out.tar.gz")
    assert (tmp_path / "out.tar.gz").read_text() == "mine"


def test_packing_makes_the_folder_or_says_why_not(run: RunFolder, tmp_path: Path) -> None:
    pack(run, tmp_path / "new" / "out.tar.gz")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.tar.gz"]
    with pytest.raises(CannotWrite, match="choose another folder"):
        pack(run, tmp_path / "new" / "out.tar.gz" / "deeper" / "out.tar.gz")


def test_an_existing_run_is_not_unpacked_over(run: RunFolder, tmp_path: Path) -> None:
    pack(run, tmp_path / "out.tar.gz")
    before = _files(run.path)
    with pytest.raises(BadInput, match="exists already"):
        unpack(tmp_path / "out.tar.gz", run.path.parent)
    assert _files(run.path) == before


def _left(folder: Path) -> list[Path]:
    return list(folder.rglob("*")) if folder.exists() else []


@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 0.9])
def test_a_cut_off_file_is_refused_and_leaves_nothing(run: RunFolder, tmp_path: Path, share: float) -> None:
    packed = tmp_path / "out.tar.gz"
    pack(run, packed)
    content = packed.read_bytes()
    packed.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(BadInput, match=r"cannot unpack|is damaged|is not a packed run"):
        unpack(packed, tmp_path / "elsewhere")
    assert _left(tmp_path / "elsewhere") == []


def test_no_flipped_byte_gets_through(run: RunFolder, tmp_path: Path) -> None:
    packed = tmp_path / "out.tar.gz"
    pack(run, packed)
    content = packed.read_bytes()
    whole = _files(unpack(packed, tmp_path / "whole"))
    for position in random.Random(1).sample(range(len(content)), 60):
        spoilt = bytearray(content)
        spoilt[position] ^= 0xFF
        packed.write_bytes(spoilt)
        elsewhere = tmp_path / f"at{position}"
        try:
            target = unpack(packed, elsewhere)
        except BadInput:
            assert _left(elsewhere) == []
        else:  # a byte that carries no content, such as the time in the header
            assert _files(target) == whole


def _archive(path: Path, members: dict[str, bytes], top: str = "evil", listing: bytes | None = None) -> Path:
    hashes = {name.removeprefix(f"{top}/"): hashlib.sha256(content).hexdigest() for name, content in members.items()}
    with tarfile.open(path, "w:gz") as archive:
        all_members = {**members, f"{top}/CONTENTS.json": json.dumps(hashes).encode() if listing is None else listing}
        for name, content in all_members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    ("name", "top"),
    [
        ("evil/../../escaped", "evil"),
        ("../escaped", ".."),
        ("../../escaped", ".."),
        ("/escaped", ""),
        ("./escaped", "."),
        ("evil/sub/../../../escaped", "evil"),
    ],
)
def test_a_file_that_wants_out_of_its_folder_is_refused(tmp_path: Path, name: str, top: str) -> None:
    inner = tmp_path / "deep" / "runs"
    inner.mkdir(parents=True)
    packed = _archive(tmp_path / "evil.tar.gz", {name: b"x"}, top)
    with pytest.raises(BadInput):
        unpack(packed, inner)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "evil.tar.gz", "runs"]


def _with_link(target: str, kind: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with tarfile.open(path, "w:gz") as archive:
            link = tarfile.TarInfo("evil/link")
            link.type, link.linkname = kind, target
            archive.addfile(link)
            listing = tarfile.TarInfo("evil/CONTENTS.json")
            listing.size = 2
            archive.addfile(listing, io.BytesIO(b"{}"))

    return make


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside"])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, target: str, kind: bytes) -> None:
    (tmp_path / "outside").write_text("secret")
    _with_link(target, kind)(tmp_path / "evil.tar.gz")
    with pytest.raises(BadInput):
        unpack(tmp_path / "evil.tar.gz", tmp_path / "runs")
    assert _left(tmp_path / "runs") == []


@pytest.mark.parametrize("listing", [b"not json", b"\xff", b'{"absent": "00"}', b'{"a": "wrong"}'])
def test_contents_that_do_not_agree_are_refused(tmp_path: Path, listing: bytes) -> None:
    packed = _archive(tmp_path / "out.tar.gz", {"evil/a": b"x"}, listing=listing)
    with pytest.raises(BadInput):
        unpack(packed, tmp_path / "runs")
    assert _left(tmp_path / "runs") == []


def test_what_is_no_packed_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.tar.gz").write_text("hello")
    with tarfile.open(tmp_path / "plain.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "text.tar.gz", "some/file")
    with tarfile.open(tmp_path / "empty.tar.gz", "w:gz"):
        pass
    (tmp_path / "folder").mkdir()
    for name in ("text.tar.gz", "plain.tar.gz", "empty.tar.gz", "absent.tar.gz", "folder"):
        with pytest.raises(BadInput):
            unpack(tmp_path / name, tmp_path / "runs")
    assert _left(tmp_path / "runs") == []


def test_a_target_that_cannot_be_written_is_one_clear_sentence(run: RunFolder, tmp_path: Path) -> None:
    pack(run, tmp_path / "out.tar.gz")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CannotWrite, match="choose another folder"):
        unpack(tmp_path / "out.tar.gz", tmp_path / "file")


def _tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_file_that_would_become_much_more_than_any_run_is_refused(tmp_path: Path) -> None:
    big = bytes(80 * 2**20)
    listing = json.dumps({"a": _hash(big)}).encode()
    packed = _tar(tmp_path / "bomb.tar.gz", {"x/a": big, "x/CONTENTS.json": listing})
    assert packed.stat().st_size < 200_000
    with pytest.raises(BadInput, match="would become more than"):
        unpack(packed, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))


def test_a_header_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("x" * (66 * 2**20))
        archive.addfile(member)
    with pytest.raises(BadInput, match=r"too long|would become more"):
        unpack(path, tmp_path / "out")


def test_a_file_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    listing = json.dumps({"a": _hash(b"1")}).encode()
    packed = _tar(tmp_path / "p.tar.gz", {"x/a": b"1", "x/b": b"2", "x/CONTENTS.json": listing})
    with pytest.raises(BadInput, match="'x/b' is not listed"):
        unpack(packed, tmp_path / "out")
    assert not (tmp_path / "out/x").exists()


@pytest.mark.parametrize(
    "listing", [b"[]", b"7", b'["a"]', b'{"a": 1}', b"{", b"\xff", b"[" * 100_000, b'{"../a": "x"}']
)
def test_a_listing_that_is_no_listing_is_one_sentence(tmp_path: Path, listing: bytes) -> None:
    packed = _tar(tmp_path / "p.tar.gz", {"x/a": b"1", "x/CONTENTS.json": listing})
    with pytest.raises(BadInput, match=r"p\.tar\.gz"):
        unpack(packed, tmp_path / "out")


def test_a_run_on_a_medium_that_cannot_be_written_is_packed(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: RunFolder) -> None:
        raise CannotWrite("read-only") from OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(RunFolder, "lock", refuse)
    pack(run, tmp_path / "out.tar.gz")
    assert (unpack(tmp_path / "out.tar.gz", tmp_path / "out") / "manifest.json").is_file()
