"""The README that goes into a package has no link that an index could not follow."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from hatch_build import ReadmeHook, readable  # noqa: E402

README = (ROOT / "README.md").read_text()
RELATIVE = re.compile(r"\]\((?!https?://|#)")


def test_links_lead_to_the_source_where_the_project_has_one() -> None:
    text = readable(
        "![a picture](docs/a.png) [page](docs/b.md#part) [far](https://example.org/x) [here](#it)", "https://x.y/z/"
    )
    assert text == (
        "![a picture](https://x.y/z/raw/main/docs/a.png) [page](https://x.y/z/blob/main/docs/b.md#part) "
        "[far](https://example.org/x) [here](#it)"
    )


def test_without_a_source_links_are_their_words_and_pictures_are_left_out() -> None:
    assert readable("![a picture](docs/a.png)See [the page](docs/b.md).", None) == "See the page."


def test_the_readme_of_the_package_has_no_relative_link() -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert metadata["dynamic"] == ["readme"] and "readme" not in metadata
    ReadmeHook(str(ROOT), {}).update(metadata)
    assert RELATIVE.search(README) and not RELATIVE.search(metadata["readme"]["text"])
    assert metadata["readme"]["content-type"] == "text/markdown"


def test_a_release_that_knows_its_repository_leads_every_link_to_a_file_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSE_SOURCE", "https://x.y/z")
    metadata: dict[str, Any] = {}
    ReadmeHook(str(ROOT), {}).update(metadata)
    text = metadata["readme"]["text"]
    found = re.findall(r"\]\(https://x\.y/z/(raw|blob)/main/([^)#]+)", text)
    assert len(found) == len(RELATIVE.findall(README)) and ("raw", "docs/pictures/demo.png") in found
    assert all((ROOT / target).is_file() for _, target in found)
