"""One file with a run's page in it, which opens from disk and asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

from fedse.page.answers import Answers, tame
from fedse.page.catalogue import Row
from fedse.page.episode import episode
from fedse.page.files import MODULES, text
from fedse.page.shown import Shown

_IMPORT = re.compile(
    r'^import (?:\* as (?P<whole>\w+)|\{(?P<names>[^}]*)\}) from "\./(?P<file>\w+\.js)";$', re.MULTILINE
)
_EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)
_EXPORTS = re.compile(r"export\{([^}]*)\};?\s*$")


def report(name: str, shown: Shown, most: int) -> tuple[str, int, int]:
    """The page, how many trajectories it contains and how many the run has."""
    answers = Answers({name: shown})
    every = shown.catalogue.every() if shown.kind != "hub" else []
    rows = chosen(every, most)
    content = {
        "runs": answers.listing()["runs"],
        "views": {view: answers.view(name, view, {}) for view in ("overview", "clients", "left")},
        "choices": _choices(rows),
        "episodes": [tame(episode(shown, row)) for row in rows],
        "total": len(every),
    }
    return _page(name, content), len(rows), len(every)


def chosen(rows: Iterable[Row], most: int) -> list[Row]:
    """As many as asked for: whole tasks, of all worlds alike, so that each can be followed over the rounds."""
    order = list(rows)
    tasks: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in order:
        tasks.setdefault((row["client"], row["world"]), {}).setdefault(row["task"], []).append(row)
    # Tasks that were played most often tell most.
    queues = [sorted(of_world.values(), key=len) for of_world in tasks.values()]
    taken: list[str] = []
    while any(queues):
        for queue in queues:
            if queue:
                task = queue.pop()
                if len(taken) + len(task) <= most:
                    taken += [row["id"] for row in task]
    wanted = set(taken)
    return [row for row in order if row["id"] in wanted]


def _choices(rows: Iterable[Row]) -> dict[str, list[Any]]:
    found: dict[str, dict[Any, int]] = {key: {} for key in ("client", "world", "outcome", "purpose", "split", "round")}
    for row in rows:
        for key, counts in found.items():
            if row[key] != "":
                counts[row[key]] = counts.get(row[key], 0) + 1
    return {
        key: [{"value": value, "count": counts[value]} for value in sorted(counts)] for key, counts in found.items()
    }


def _page(name: str, content: dict[str, Any]) -> str:
    script, style = bundle(), text("style.css")
    # In a text that is JSON these three can only stand inside strings.
    data = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    title = re.sub(r"[^\w .~-]", "", name)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{title} · fedse</title>\n<style>{style}</style>\n'
        f'<script type="application/json" id="report">{data}</script></head>\n<body>'
        f'<script type="module">{script}</script></body></html>\n'
    )


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def bundle() -> str:
    """All modules as one program: a page on disk may not load others. Each is a function that returns what it exports."""
    parts = ["const modules = {};"]
    for name in MODULES:
        code = _IMPORT.sub(_constant, text(name))
        exported = [*_EXPORT.findall(code)]
        returned = ", ".join(exported)
        if (at_the_end := _EXPORTS.search(code)) is not None:
            pairs = [pair.split(" as ") for pair in at_the_end[1].split(",")]
            returned = ", ".join(f"{public}: {own}" for own, public in pairs)
            code = code[: at_the_end.start()]
        code = re.sub(r"^export (?=async |function |const |class )", "", code, flags=re.MULTILINE)
        parts.append(f'modules["{name}"] = (() => {{\n{code}\nreturn {{ {returned} }};\n}})();')
    return "\n".join(parts)


def _constant(found: re.Match[str]) -> str:
    if found["whole"]:
        return f'const {found["whole"]} = modules["{found["file"]}"];'
    return f'const {{{found["names"].replace(" as ", ": ")}}} = modules["{found["file"]}"];'
