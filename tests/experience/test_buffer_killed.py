"""The buffer and kill -9: a real process, killed at chosen points, and what is found afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedse.errors import BufferUnusable
from fedse.experience.buffer import Buffer

WRITER = """
import os, signal, sqlite3, sys
from pathlib import Path
from fedse.experience import buffer as module
from fedse.types import Outcome, Purpose, Step, Trajectory

path, statements = Path(sys.argv[1]), int(sys.argv[2])

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

buffer = module.Buffer(path, "site", "print")
print("opened", flush=True)
for round in (1, 2):
    buffer.remember(round, (trajectory(round, number) for number in range(20)))
    print(f"remembered {round}", flush=True)
Killed.count = -10**9
buffer.close()
"""


def _write(path: Path, statements: int) -> list[str]:
    """Run the writer; the process kills itself, for real, before its next statement."""
    done = subprocess.run([sys.executable, "-c", WRITER, str(path), str(statements)], capture_output=True, text=True)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("statements", [0, 1, 2, 3, 6, 9])
def test_a_buffer_killed_while_being_made_can_be_opened_again(tmp_path: Path, statements: int) -> None:
    path = tmp_path / "buffer.sqlite"
    assert "remembered 1" not in _write(path, statements)
    buffer = Buffer(path, "site", "print")
    assert len(buffer) == 0
    assert buffer.remember(1, []) == 0


@pytest.mark.parametrize("statements", [20, 51, 52, 53, 80, 96])
def test_a_killed_round_is_there_whole_or_not_at_all(tmp_path: Path, statements: int) -> None:
    path = tmp_path / "buffer.sqlite"
    said = _write(path, statements)
    buffer = Buffer(path, "site", "print")
    found = buffer.rounds()
    assert set(found.values()) <= {20}
    assert ("remembered 1" in said) <= (1 in found)
    assert ("remembered 2" in said) <= (2 in found)
    assert len(buffer.read()) == 20 * len(found)


def test_refusing_a_buffer_of_a_killed_process_changes_neither_file_nor_log(tmp_path: Path) -> None:
    path = tmp_path / "buffer.sqlite"
    assert "remembered 1" in _write(path, 60)
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


def test_a_kill_from_outside_in_the_middle_of_a_write_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "buffer.sqlite"
    _write(path, 10**9)
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
