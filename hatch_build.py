"""What a package index shows: the README with links that work there.

An index knows nothing of the files beside the README. Where the repository's address is known, links and pictures lead
there: from `Source` among the project's `urls` in pyproject.toml, or from the environment variable FEDSE_SOURCE, which the
workflow that builds a release sets to the repository it runs in. Without one, a link becomes its text and a picture is left
out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")
PICTURES = (".png", ".svg", ".jpg")


class ReadmeHook(MetadataHookInterface):
    """Fills the field `readme`, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source") or os.environ.get("FEDSE_SOURCE")
        metadata["readme"] = {"content-type": "text/markdown", "text": readable(text, source)}


def readable(text: str, source: str | None) -> str:
    def absolute(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        if source is None:
            return "" if mark else words
        kind = "raw" if target.endswith(PICTURES) else "blob"
        return f"{mark}[{words}]({source.rstrip('/')}/{kind}/main/{target})"

    return LINK.sub(absolute, text)
