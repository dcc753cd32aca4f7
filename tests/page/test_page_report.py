"""The report is one file: everything in it, nothing from elsewhere, nothing that a text could start."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

from page_runs import SAID
from typer.testing import CliRunner

from fedse.cli import app
from fedse.page.report import bundle, chosen, report
from fedse.page.shown import Shown


def data_of(page: str) -> dict[str, object]:
    (content,) = re.findall(r'<script type="application/json" id="report">(.*?)</script>', page, re.DOTALL)
    found: dict[str, object] = json.loads(content)
    return found


def test_a_report_holds_the_run_and_starts_its_own_program_only(shown: Shown) -> None:
    page, contained, total = report("small", shown, 1000)
    assert contained == total == 144 == len(data_of(page)["episodes"])  # type: ignore[arg-type]
    assert page.count("<script") == page.count("</script>") == 2 and page.count("<style") == 1
    assert SAID not in page and "https://example.invalid" in page, "hostile text is there, as data"
    (script,) = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    for content in (script, style):
        assert base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() in policy
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "data:" not in policy
    assert "src=" not in page.replace(script, "").replace(json.dumps(data_of(page)), "").split('id="report"')[0]


def test_a_short_report_says_how_much_it_contains(shown: Shown, tmp_path: Path, finished: Path) -> None:
    target = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", str(finished), "-o", str(target), "--trajectories", "30"])
    assert done.exit_code == 0, done.output
    found = data_of(target.read_text())
    assert found["total"] == 144 and 20 <= len(found["episodes"]) <= 30  # type: ignore[arg-type]
    assert f"with {len(found['episodes'])} of 144 trajectories" in done.output  # type: ignore[arg-type]
    assert "treat it as private" in done.output
    none = CliRunner().invoke(app, ["report", str(finished), "-o", str(target), "--trajectories", "0"])
    assert "with 0 of 144" in none.output and "private" not in none.output
    assert "move up" not in target.read_text()


def test_tasks_are_taken_whole_and_from_all_worlds(shown: Shown) -> None:
    every = shown.catalogue.every()
    some = chosen(every, 40)
    assert 20 < len(some) <= 40
    of_task: dict[tuple[str, str, str], list[str]] = {}
    for row in every:
        of_task.setdefault((row["client"], row["world"], row["task"]), []).append(row["id"])
    taken = {row["id"] for row in some}
    assert all(taken >= set(ids) or not taken & set(ids) for ids in of_task.values())
    sizes = {client: sum(row["client"] == client for row in some) for client in ("east", "west")}
    assert min(sizes.values()) > 8
    assert [row["id"] for row in some] == [row["id"] for row in every if row["id"] in taken]


def test_the_program_is_one_piece() -> None:
    program = bundle()
    assert not re.search(r"^\s*(import|export)\b", program, re.MULTILINE)
    assert "export{" not in program and 'from "./' not in program


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    for line in (["report", str(tmp_path)], ["view", "--no-browser", str(tmp_path)]):
        done = CliRunner().invoke(app, line)
        assert done.exit_code == 2 and "is not a run" in done.output
    done = CliRunner().invoke(app, ["report", str(tmp_path), "-o", str(tmp_path / "x.html")])
    assert done.exit_code == 2 and not list(tmp_path.iterdir())
