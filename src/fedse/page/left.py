"""What left each client, byte for byte, as its own ledger has it, beside what stayed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedse.page.shown import Shown
from fedse.storage.strict_json import parse

_FIELDS = {"time": (int, float), "task": str, "round": int, "field": str, "shape": list, "bytes": int, "sha256": str}


def left(shown: Shown, names: list[str]) -> dict[str, Any]:
    """Of some clients. Of a hub there is no ledger: each site has its own."""
    if shown.kind == "hub":
        return {"kind": "hub", "clients": []}
    return {"kind": shown.kind, "clients": [_client(shown, name) for name in names]}


def _client(shown: Shown, name: str) -> dict[str, Any]:
    folder = shown.run.client_folder(name)
    lines = list(_lines(folder / "ledger.jsonl"))
    good = [line for line in lines if line is not None]
    return {
        "client": name,
        "lines": good,
        "unreadable": len(lines) - len(good),
        "bytes": sum(line["bytes"] for line in good),
        "stayed": [
            {"what": what, "files": len(files), "bytes": sum(file.stat().st_size for file in files)}
            for what, files in _stayed(folder).items()
            if files
        ],
    }


def _lines(path: Path) -> Iterator[dict[str, Any] | None]:
    """None for a line that nobody can read: one that a power cut left, or somebody changed."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found = parse(line)
            yield {key: _checked(found[key], kind) for key, kind in _FIELDS.items()}
        except (ValueError, TypeError, KeyError):
            yield None


def _checked(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError
    return value


def _stayed(folder: Path) -> dict[str, list[Path]]:
    def files(pattern: str) -> list[Path]:
        return [path for path in folder.glob(pattern) if path.is_file() and not path.is_symlink()]

    return {
        "trajectories (buffer)": files("buffer.sqlite*"),
        "every episode (journal)": files("episodes/*.jsonl"),
        "tensors of its own": [*files("private/**/*"), *files("adapters/**/*")],
        "notebooks": files("state/**/*"),
    }
