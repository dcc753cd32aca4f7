"""The files of the page itself, all of them: a request can name no other."""

from __future__ import annotations

from importlib.resources import files

_STATIC = files("fedse.page") / "static"
_KINDS = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
MODULES = (
    *("htm.js", "format.js", "source.js", "parts.js", "chart.js", "ansi.js", "diff.js"),
    *("overview.js", "clients.js", "trajectories.js", "trajectory.js", "left.js", "compare.js", "app.js"),
)
"""In an order in which each comes after those it imports."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing comes from elsewhere, and no text becomes markup or a program."""


def text(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")


INDEX = ("text/html; charset=utf-8", text("index.html").encode())
FILES = {name: (_KINDS[name.rpartition(".")[2]], text(name).encode()) for name in (*MODULES, "style.css", "icon.svg")}
"""By name: content type and content."""
