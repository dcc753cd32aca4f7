"""The buffer and kill -9: a real process, killed at chosen points, and what is found afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedse.errors import BufferUnusable
from fedse.experience.buffer import Buffer

WRITER = """
import os, signal, sqlite3, sys
from pathlib import Path
from fedse.experience import buffer as module
from fedse.types import Outcome, Purpose, Step, Trajectory

def trajectory(round, number):
    step = Step("o" * 3000, "r", "t", "a", True)
    return Trajectory("site", "w", f"t{number}", Purpose.EXPLORE, round, 0, "", (step,), "", Outcome.SUCCESS, 1.0,
                      (round, number), (False, True))

class Killed(sqlite3.Connection):
    count = 0
    def execute(self, *arguments):
        Killed.count += 1
        if Killed.count > statements:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(*arguments)

connect = sqlite3.connect
def killed(*arguments, **keywords):
    return connect(*arguments, factory=Killed, **keywords)
module.sqlite3.connect = killed

def write(path):
    buffer = module.Buffer(Path(path), "site", "print")
    print("opened", flush=True)
    for round in (1, 2):
        buffer.remember(round, (trajectory(round, number) for number in range(20)))
        print(f"remembered {round}", flush=True)
    Killed.count = -10**9
    buffer.close()

for order in sys.stdin:
    statements, path = order.rstrip("\\n").split(" ", 1)
    statements = int(statements)
    child = os.fork()
    if child == 0:
        write(path)
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print("ended", os.waitstatus_to_exitcode(status), flush=True)
"""


@pytest.fixture(scope="module")
def writer() -> Iterator[subprocess.Popen[str]]:
    """It imports fedse once, and writes in a process of its own for every test."""
    line = [sys.executable, "-c", WRITER]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


Write = Callable[[Path, int], list[str]]


@pytest.fixture
def write(writer: subprocess.Popen[str]) -> Write:
    """Run the writer; the process kills itself, for real, before its next statement."""

    def written(path: Path, statements: int) -> list[str]:
        assert writer.stdin and writer.stdout
        print(statements, path, file=writer.stdin, flush=True)
        said = []
        while not (line := writer.stdout.readline()).startswith("ended "):
            assert line, "the writer is gone"
            said.append(line.rstrip("\n"))
        assert int(line.split()[1]) in (0, -signal.SIGKILL)
        return said

    return written


@pytest.mark.parametrize("statements", [0, 1, 2, 3, 6, 9])
def test_a_buffer_killed_while_being_made_can_be_opened_again(tmp_path: Path, write: Write, statements: int) -> None:
    path = tmp_path / "buffer.sqlite"
    assert "remembered 1" not in write(path, statements)
    buffer = Buffer(path, "site", "print")
    assert len(buffer) == 0
    assert buffer.remember(1, []) == 0


@pytest.mark.parametrize("statements", [20, 51, 52, 53, 80, 96])
def test_a_killed_round_is_there_whole_or_not_at_all(tmp_path: Path, write: Write, statements: int) -> None:
    path = tmp_path / "buffer.sqlite"
    said = write(path, statements)
    buffer = Buffer(path, "site", "print")
    found = buffer.rounds()
    assert set(found.values()) <= {20}
    assert ("remembered 1" in said) <= (1 in found)
    assert ("remembered 2" in said) <= (2 in found)
    assert len(buffer.read()) == 20 * len(found)


def test_refusing_a_buffer_of_a_killed_process_changes_neither_file_nor_log(tmp_path: Path, write: Write) -> None:
    path = tmp_path / "buffer.sqlite"
    assert "remembered 1" in write(path, 60)
    log = tmp_path / "buffer.sqlite-wal"
    before = path.read_bytes(), log.read_bytes()
    assert before[1]
    for client, fingerprint in (("other", "print"), ("site", "else")):
        with pytest.raises(BufferUnusable):
            Buffer(path, client, fingerprint)
    assert (path.read_bytes(), log.read_bytes()) == before
    assert Buffer(path, "site", "print").rounds() == {1: 20}


HANGING_WRITER = """
import sys
from pathlib import Path
from fedse.experience.buffer import Buffer
from fedse.types import Outcome, Purpose, Step, Trajectory

seen = []
def hang(statement):
    seen.append(statement)
    if len(seen) == 400:
        print("in the middle", flush=True)
        sys.stdin.read()

step = Step("o" * 3000, "r", "t", "a", True)
buffer = Buffer(Path(sys.argv[1]), "site", "print")
buffer._connection.execute("PRAGMA cache_size=10")  # so that pages reach the disk before the end of the transaction
buffer._connection.set_trace_callback(hang)
buffer.remember(2, [
    Trajectory("site", "w", f"t{number}", Purpose.EXPLORE, 2, 0, "", (step,), "", Outcome.SUCCESS, 1.0, (number,), (True,))
    for number in range(300)
])
"""


def test_a_kill_from_outside_in_the_middle_of_a_write_changes_nothing(tmp_path: Path, write: Write) -> None:
    path = tmp_path / "buffer.sqlite"
    write(path, 10**9)
    command = [sys.executable, "-c", HANGING_WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "in the middle\n"
        assert (tmp_path / "buffer.sqlite-wal").stat().st_size > 100_000
        writer.kill()
    assert writer.returncode == -signal.SIGKILL
    buffer = Buffer(path, "site", "print")
    assert buffer.rounds() == {1: 20, 2: 20}
    assert {item.token_ids for item in buffer.read()} == {(round, number) for round in (1, 2) for number in range(20)}
