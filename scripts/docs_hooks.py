"""Hooks of the documentation site: pages that lie outside docs/, files that pages link to, and the list of commands.

Pages are written for a plain view of the repository, where a link is a path from one file to another. The site has the same
pages and files in other places, so links are rewritten. One that leads nowhere stays as it is, and a
strict build fails on it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from docs_commands import render
from properdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
ROOT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
COMMANDS = "<!-- commands -->"


def on_files(files: Any, config: Any) -> Any:
    for name in ROOT_PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    pages = [*DOCS.rglob("*.md"), *(ROOT / name for name in ROOT_PAGES)]
    linked = {_file_of(page, target) for page in pages for _, target, _, _ in LINK.findall(page.read_text())}
    for path in sorted(path for path in linked if path and not path.is_relative_to(DOCS) and path.suffix != ".md"):
        files.append(File.generated(config, _place(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    written = ROOT / page.file.src_uri if page.file.src_uri in ROOT_PAGES else DOCS / page.file.src_uri

    def rewritten(found: re.Match[str]) -> str:
        path = _file_of(written, found[2])
        if path is None:
            return found[0]
        target = os.path.relpath(_place(path), Path(page.file.src_uri).parent)
        return f"{found[1]}{target}{found[3] or ''}{found[4]}"

    markdown = LINK.sub(rewritten, markdown)
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, render())
    return markdown


def _file_of(page: Path, target: str) -> Path | None:
    """The file of the repository that a link of a page leads to."""
    if "://" in target or target.startswith("mailto:"):
        return None
    path = (page.parent / target).resolve()
    if path.is_dir():
        path = path / "README.md"
    return path if path.is_file() and path.is_relative_to(ROOT) else None


def _place(path: Path) -> str:
    """Where the site has a file of the repository."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    name = path.relative_to(ROOT).as_posix()
    if name == "README.md":
        return "index.md"
    return name if name in ROOT_PAGES else f"files/{name}"
