"""The page in a real browser: every view opens, news arrive, search and filters work, hostile text does nothing.

With FEDSE_PICTURES=1 the same test makes the pictures of docs/page.md, of the run that FEDSE_PICTURES_RUN names.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import chromium
import pytest
from chromium import Chromium
from page_runs import Broken, make_run

from fedse.events import RoundStarted, RunStarted, Warned
from fedse.page.answers import Answers
from fedse.page.report import report
from fedse.page.server import PageServer
from fedse.page.shown import Shown
from fedse.runs.event_log import EventLog
from fedse.runs.folder import RunFolder
from fedse.runs.reading import RunView

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium.found() is None, reason="no browser: apt-get install chromium"),
]
READY = "document.querySelector('main') && !document.querySelector('.wait, .loading')"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("browser")) as started:
        started.look(1280, 900)
        yield started


@pytest.fixture(scope="module")
def server(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    folder = tmp_path_factory.mktemp("shown")
    shutil.copytree(finished, folder / "small")
    shutil.copytree(finished, folder / "hub", ignore=shutil.ignore_patterns("clients"))
    make_run(folder, name="other", method="fedit")
    broken = {"west": {"worlds": [{"name": Broken, "mode": "original"}]}}
    make_run(folder, name="broken", clients=broken, rounds=1, start="none", limits={"max_error_share": 1.0})
    # Killed in its second round.
    RunFolder.existing(make_run(folder, name="halfway", method="local_se")).fall_back(1, [])
    names = ("small", "hub", "other", "broken", "halfway")
    runs = {name: Shown.of(RunView.existing(folder / name), own_worlds=True) for name in names}
    with PageServer(Answers(runs), pause=0.05) as started:
        threading.Thread(target=started.serve_forever, args=(0.02,), daemon=True).start()
        yield started
        started.shutdown()


def visit(browser: Chromium, server: PageServer, place: str) -> None:
    browser.open(f"{server.url}#/{place}")
    browser.eval("new Promise((done) => setTimeout(done, 50))")
    browser.wait(READY)


def assert_calm(browser: Chromium, server: PageServer) -> None:
    """No complaint, no request to anybody else, and nothing that a text asked for has happened."""
    assert browser.complaints == []
    assert [address for address in browser.asked if not address.startswith(("about:", server.url))] == []
    assert browser.eval("window.pwned") is None
    assert browser.eval("document.querySelectorAll('main script, main img, main style, main iframe').length") == 0
    assert browser.eval("getComputedStyle(document.body).display") == "block"


def test_every_view_opens(browser: Chromium, server: PageServer) -> None:
    for place, words in {
        "small/overview": (
            "aggregator: mean, mix: broadcast",
            "Macro success",
            "Success in each world",
            "east",
            "What went wrong",
            "Made with",
        ),
        "small/clients": ("What the buffers hold", "Length of the update", "Before and after aggregation", "west"),
        "small/trajectories": ("144 trajectories", "outcome", "page 1 of 3"),
        "small/left": ("What left, by field", "vector", "What stayed", "every episode (journal)"),
        "small/compare?runs=small,other": (
            "Paired differences",
            "fedit",
            "Success on test tasks",
            "not distinguishable",
        ),
        "small/compare?runs=small,other,halfway": (
            "Paired differences",
            "halfway has not been evaluated after its last round yet (1 of 2 rounds are complete)",
            "Success on test tasks",
            "not distinguishable",
        ),
        "small/compare?runs=small,halfway": ("Success on test tasks", "only its curve is shown"),
        "small/compare?runs=small,hub": ("These cannot be compared", "does not have the trajectories"),
        "hub/overview": ("Macro success", "Clients"),
        "hub/clients": ("is known to its site alone",),
        "hub/trajectories": ("A hub has no trajectories", "never leave the machines of its sites"),
        "hub/left": ("A hub has no ledger of its sites",),
    }.items():
        visit(browser, server, place)
        text = browser.wait(f"document.body.innerText.includes({words[-1]!r}) && document.body.innerText")
        assert [word for word in words if word not in text] == [], place
        assert browser.eval("document.documentElement.scrollWidth <= innerWidth"), f"{place} is wider than the window"
    assert browser.eval("document.querySelectorAll('svg[role=img]:not([aria-label])').length") == 0
    assert_calm(browser, server)


def test_numbers_are_rounded_as_in_the_tables(browser: Chromium, server: PageServer) -> None:
    visit(browser, server, "small/overview")
    numbers = [eighths / 8 for eighths in range(40)] + [-1.25, -2.75, 36.25, 36.35, 0.15, 2.675, 99.95, 12345.65]
    code = f"import('{server.url}static/format.js').then((f) => {numbers}.map((it) => [0, 1, 2].map((n) => f.fixed(it, n))))"
    assert browser.eval(code) == [[f"{number:.{digits}f}" for digits in range(3)] for number in numbers]


def test_axes_tell_half_percents_from_whole_ones(browser: Chromium, server: PageServer) -> None:
    visit(browser, server, "small/overview")
    code = f"import('{server.url}static/format.js').then((f) => [0, 0.025, 0.07, 0.25, 0.075, -0.1, null].map(f.share))"
    assert browser.eval(code) == ["0 %", "2.5 %", "7 %", "25 %", "7.5 %", "-10 %", "–"]  # noqa: RUF001


def test_search_filters_links_and_keys(browser: Chromium, server: PageServer) -> None:
    visit(browser, server, "small/trajectories")
    browser.press_until("/", "document.activeElement.id === 'search'")
    search = 'pwned "walls above"'
    browser.type(search)
    fitting = "Number(document.querySelector('.summary b')?.innerText.split(' ')[0])"
    browser.wait(f"{READY} && location.hash.includes('text=') && {fitting} < 144")
    shown = server.answers.runs["small"].catalogue
    expected = shown.page({"text": search})["fitting"]
    assert browser.eval(fitting) == expected > 0
    browser.eval("""(() => { const choice = document.querySelector('select[name=outcome]'); choice.value = 'success';
        choice.dispatchEvent(new Event('change', {bubbles: true})); })()""")
    both = shown.page({"text": search, "outcome": "success"})["fitting"]
    browser.wait(f"{READY} && {fitting} === {both}")
    browser.press("Escape")
    assert browser.eval("document.activeElement.id !== 'search' && document.getElementById('search').value") == search
    browser.press("j")
    browser.press("j")
    browser.press("Enter")
    browser.wait(f"{READY} && document.querySelector('.trajectory mark')")
    assert f"of {both}" in browser.text() and "System prompt" in browser.text()
    assert browser.eval("document.querySelector('.drawing').innerText.includes('★')")
    browser.press_until("j", "/before action [2-9]|at the end/.test(document.querySelector('.drawn header').innerText)")
    first = browser.eval("location.hash")
    browser.press("ArrowLeft")
    browser.wait(f"location.hash !== {first!r}")
    browser.wait(READY)
    browser.eval("window.before = true; location.reload()")
    browser.wait(f"!window.before && {READY} && document.querySelector('.trajectory')")
    browser.press_until("u", f"{READY} && {fitting} === {both}")
    browser.press_until("?", "document.querySelector('dialog[open]')?.innerText.includes('search in all trajectories')")
    browser.press_until("Escape", "!document.querySelector('dialog[open]')")
    assert_calm(browser, server)


def test_a_point_of_a_curve_leads_to_its_episodes(browser: Chromium, server: PageServer) -> None:
    visit(browser, server, "small/overview")
    browser.wait("document.querySelector('.world svg')")
    browser.eval("document.querySelector('.world svg').focus()")
    browser.press_until("ArrowRight", "document.querySelector('.world .tip')?.innerText.includes('after round')")
    browser.press_until("Enter", f"{READY} && location.hash.includes('adapter=')")
    adapter = browser.eval("new URLSearchParams(location.hash.split('?')[1]).get('adapter')")
    asked = {"client": "east", "world": "maze", "purpose": "evaluate", "adapter": adapter}
    expected = server.answers.runs["small"].catalogue.page(asked)["fitting"]
    browser.wait(f"document.querySelector('.summary').innerText.startsWith('{expected} trajectories')")
    assert_calm(browser, server)


def test_an_episode_that_broke_can_be_read(browser: Chromium, server: PageServer) -> None:
    row = server.answers.runs["broken"].catalogue.page({"outcome": "error"})["rows"][0]
    visit(browser, server, f"broken/trajectory?id={quote(row['id'])}")
    text = browser.wait("document.querySelector('.broken')?.innerText")
    assert "RuntimeError" in text and "It fell apart." in text
    assert_calm(browser, server)


def test_two_attempts_at_a_task_are_compared_word_by_word(browser: Chromium, server: PageServer) -> None:
    catalogue = server.answers.runs["small"].catalogue
    rows = catalogue.page({"client": "west", "outcome": "success", "purpose": "evaluate"})["rows"]
    late = max(rows, key=lambda row: row["adapter"])
    early = catalogue.of_task(late["world"], late["task"])[0]
    visit(browser, server, f"small/trajectory?id={quote(late['id'])}&with={quote(early['id'])}")
    browser.wait("document.querySelector('.beside')")
    said = {row["id"]: [step.reply for step in catalogue.read(row).steps] for row in (early, late)}
    apart = next(n for n, (a, b) in enumerate(zip(*said.values(), strict=False)) if a != b)
    assert f"from step {apart + 1} on they differ" in browser.text()
    assert browser.eval("document.querySelectorAll('.beside ins').length") > 0
    assert browser.eval("document.querySelector('.columns.heads').innerText").startswith("✗")
    assert_calm(browser, server)


def test_news_arrive_without_a_reload(browser: Chromium, server: PageServer) -> None:
    run = server.answers.runs["small"].run
    visit(browser, server, "small/overview")
    browser.eval("window.same = true")
    assert "finished" in browser.text()
    folder = RunFolder(run.path)
    folder.lock()
    try:
        log = EventLog(run.path / "events.jsonl", time.time)
        for event in (RunStarted(round=2, rounds=5), RoundStarted(round=3), Warned(message="<b>Mind the gap.</b>")):
            log.record(event)
        browser.wait("document.body.innerText.includes('<b>Mind the gap.</b>')")
        assert "round 3 of 5" in browser.text() and browser.eval("window.same")
    finally:
        folder.unlock()
    browser.wait("document.body.innerText.includes('stopped after round 2 of 5')")
    assert_calm(browser, server)


@pytest.mark.parametrize("place", ["halfway/compare?runs=small,halfway", "small/compare?runs=small,halfway"])
def test_a_comparison_follows_a_run_that_goes_on(browser: Chromium, server: PageServer, place: str) -> None:
    """The one that the page is about, or another."""
    folder = RunFolder.existing(server.answers.runs["halfway"].run.path)
    folder.lock()
    visit(browser, server, place)
    browser.wait("document.body.innerText.includes('(1 of 2 rounds are complete)')")
    browser.eval("window.same = true")
    folder.unlock()
    make_run(folder.path.parent, name="halfway", method="local_se")
    try:
        rounds = "[...document.querySelectorAll('tbody tr')].find((row) => row.innerText.startsWith('local_se'))"
        browser.wait(f"!document.body.innerText.includes('rounds are complete') && {rounds}")
        assert browser.eval("window.same")
    finally:
        folder.fall_back(1, [])
    assert_calm(browser, server)


def test_it_is_readable_in_the_dark_and_on_a_telephone(browser: Chromium, server: PageServer) -> None:
    row = server.answers.runs["small"].catalogue.page({"client": "west"})["rows"][0]
    try:
        for width, dark in ((390, True), (1280, True), (390, False)):
            browser.look(width, 900, dark)
            read = f"trajectory?id={quote(row['id'])}"
            for place in ("overview", "clients", "trajectories", "left", read, "compare?runs=small,other"):
                visit(browser, server, f"small/{place}")
                assert browser.eval("document.documentElement.scrollWidth <= innerWidth"), f"{place} at {width}"
                here = "document.querySelector('nav [aria-current]').getBoundingClientRect()"
                assert browser.wait(f"{here}.right <= innerWidth"), f"the name of {place} is cut at {width}"
                if place == read:
                    style = browser.eval("getComputedStyle(document.querySelector('.drawing')).whiteSpace")
                    assert style == ("pre" if width == 390 else "pre-wrap"), "walls stay in their lines"
            ground = browser.eval(
                "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
            )
            assert (sum(ground) < 200) is dark
    finally:
        browser.look(1280, 900)
    assert_calm(browser, server)


def test_a_choice_of_runs_is_laid_out_and_paper_has_no_buttons(browser: Chromium, server: PageServer) -> None:
    layout = "['.choose', '.bar'].map((name) => getComputedStyle(document.querySelector(name)).display)"
    visit(browser, server, "small/compare?runs=small,other")
    assert browser.eval(layout) == ["flex", "flex"]
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.eval(layout) == ["none", "none"]
    browser.call("Emulation.setEmulatedMedia", media="")
    visit(browser, server, "small/compare?runs=small,other&against=fedit")
    browser.eval("document.querySelector('.choose input').click()")
    browser.wait("document.body.innerText.includes('Choose two runs or more')")
    assert "against" not in browser.eval("location.hash"), "it may be a label of what is no longer compared"


def test_the_report_opens_from_disk(browser: Chromium, server: PageServer, tmp_path: Path) -> None:
    shown = server.answers.runs["small"]
    page, contained, _ = report("small", shown, 60)
    (tmp_path / "report.html").write_text(page)
    address = (tmp_path / "report.html").as_uri()
    browser.open(f"{address}#/small/trajectories?text=pwned")
    browser.wait(f"{READY} && document.body.innerText.includes('This report contains {contained} of the run')")
    listed = browser.eval("Number(document.querySelector('.summary b')?.innerText.split(' ')[0])")
    assert 0 < listed < contained
    for place, word in {"overview": "Macro success", "clients": "What the buffers hold", "left": "What stayed"}.items():
        browser.open(f"{address}#/small/{place}")
        browser.wait(f"document.body.innerText.includes({word!r})")
    browser.open(f"{address}#/small/trajectories")
    browser.wait("document.querySelector('a.row')")
    browser.eval("document.querySelector('a.row').click()")
    browser.wait("document.querySelector('.drawing')")
    browser.asked = [asked for asked in browser.asked if not asked.startswith(address)]
    assert_calm(browser, server)


@pytest.mark.skipif(not os.environ.get("FEDSE_PICTURES"), reason="asked for by FEDSE_PICTURES=1 and FEDSE_PICTURES_RUN")
def test_pictures_for_the_documents(browser: Chromium) -> None:
    run = RunView.existing(Path(os.environ["FEDSE_PICTURES_RUN"]))
    shown = Shown.of(run)
    target = Path(__file__).parents[2] / "docs/pictures"
    with PageServer(Answers({shown.name: shown})) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        reached = shown.catalogue.page(
            {"outcome": "success", "purpose": "evaluate", "client": "maze", "sort": "steps down"}
        )
        row = next(
            row
            for row in reached["rows"]
            if shown.catalogue.of_task(row["world"], row["task"])[0]["outcome"] == "failure"
        )
        early = shown.catalogue.of_task(row["world"], row["task"])[0]
        for name, place, height, dark in (
            ("overview", "overview", 1210, False),
            ("trajectory", f"trajectory?id={quote(row['id'])}&step=2", 760, True),
            ("same_task", f"trajectory?id={quote(row['id'])}&with={quote(early['id'])}", 760, False),
        ):
            browser.look(1180, height, dark)
            visit(browser, server, f"{shown.name}/{place}")
            time.sleep(0.3)
            browser.picture(target / f"page_{name}.png")
        server.shutdown()
    assert browser.complaints == []
