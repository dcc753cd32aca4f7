"""Text that came from outside is shown on the terminal and never obeyed by it."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.table import Table
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.cli.console import VisibleConsole, say
from fedse.cli.progress import Progress
from fedse.events import RoundFinished, Waiting, Warned
from fedse.experiments.options import Experiment
from fedse.visible import short, visible
from fedse.worlds.maze import Maze
from fedse.worlds.world import Turn

SOURCE = Path(__file__).parents[2] / "src" / "fedse"
EVIL = "\x1b]0;title\x07\x1b[2J\x1b]52;c;aGVsbG8=\x07\u202eright\u2066 \x9b2J \x08\x7f \r \u200b \ufeff [/none] [link=file:///x]here[/link]"
OBEYED = "\x1b\x07\x08\x7f\x9b\r\u202e\u2066\u200b\ufeff"


def assert_tame(shown: str) -> None:
    assert not set(OBEYED) & set(shown), ascii(shown)


def test_everything_that_a_terminal_obeys_becomes_visible() -> None:
    assert_tame(visible(EVIL))
    assert "\\x1b]52;c;aGVsbG8=\\x07\\u202eright" in visible(EVIL)
    plain = "Zürich, 東京, 🙂, a\ttab\nand a line; [brackets] stay"
    assert visible(plain) == plain
    assert visible("\ud800").encode() == b"\\ud800"
    assert len(short("x" * 10**6)) == 100 and short("a\nb") == "a b"


def test_consoles_lines_tables_and_markup_are_tame(capsys: pytest.CaptureFixture[str]) -> None:
    for terminal in (False, True):
        page = io.StringIO()
        console = VisibleConsole(file=page, width=300, force_terminal=terminal, color_system=None, legacy_windows=False)
        console.print(EVIL)
        console.print(f"[bold]{EVIL}[/]", markup=False)
        console.print("[link=file:///etc/passwd]click[/link]")
        console.rule(EVIL.replace("\r", ""))
        table = Table(title=EVIL)
        table.add_column(EVIL)
        table.add_row(EVIL)
        console.print(table)
        assert_tame(page.getvalue().replace("\x1b[0m", ""))
        assert "file:///etc" not in page.getvalue() and "aGVsbG8=" in page.getvalue()
    say(EVIL)
    say(EVIL, err=True)
    shown = capsys.readouterr()
    assert_tame(shown.out)
    assert_tame(shown.err)


class Evil(Maze):
    def begin(self, task: str) -> str:
        return EVIL

    def act(self, action: str) -> Turn:
        raise RuntimeError(EVIL)


def test_show_prints_what_a_world_said_and_obeys_nothing(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    evil = table_experiment(
        clients={"west": {"worlds": [Evil]}}, start="none", rounds=1, limits={"max_error_share": 1.0}
    )
    folder = fedse.run(evil, tmp_path).folder
    done = CliRunner().invoke(app, ["show", str(folder)])
    assert "aGVsbG8=" in done.output and "RuntimeError" in done.output
    assert_tame(done.output)


def test_errors_about_a_file_are_tame(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(f"name: {json.dumps(EVIL)}\nmodel: {json.dumps(EVIL)}\n{json.dumps(EVIL)}: 3\nclients: {{}}\n")
    done = CliRunner().invoke(app, ["run", str(file)])
    assert done.exit_code == 2 and "aGVsbG8=" in done.output
    assert_tame(done.output)


def test_progress_at_the_hub_is_tame() -> None:
    page = io.StringIO()
    progress = Progress(VisibleConsole(file=page, width=200), 3)
    progress.record(Warned(message=EVIL))
    progress.record(Waiting(task=EVIL, clients=[EVIL]))
    progress.record(RoundFinished(round=1, seconds=1.0, refused={"west": EVIL}, contributed=[], absent={"east": EVIL}))
    assert page.getvalue().count("aGVsbG8=") >= 4
    assert_tame(page.getvalue())


@pytest.mark.slow
def test_nothing_reaches_a_terminal_by_another_way() -> None:
    printing = {("print",), ("typer", "echo"), ("typer", "secho"), ("click", "echo"), ("Console",), ("rich", "print")}
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = tuple(ast.unparse(node.func).split("."))
                if called in printing or (
                    called[:2] in {("sys", "stdout"), ("sys", "stderr")} and called[-1] == "write"
                ):
                    found.add((str(path.relative_to(SOURCE)), ".".join(called)))
    # What is written to a pipe and read by fedse itself.
    assert found == {
        ("cli/console.py", "typer.echo"),
        ("apps/launch.py", "sys.stdout.write"),
        ("worlds/transcripts.py", "sys.stdout.write"),
    }
