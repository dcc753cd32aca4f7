"""A site runs fedse's own bundle and no other.

Flower ships a bundle of Python code with every run and executes it at the sites; whoever submits a run at the hub could run
anything there. The SuperNode that fedse starts compares each bundle with the one of the installed fedse (`bundle/`, names of
modules and no code) before it is stored, and answers with Flower's own error for bundles that cannot be verified.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import io
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedse.errors import BadInput

BUNDLE = Path(__file__).parent / "bundle"
_PROJECT, _MANIFEST = "pyproject.toml", ".info/CONTENT"
_LARGEST = 100_000
"""Bytes of a file of the bundle, which has about a thousand."""
_OWN = "fedse"
"""Where a bundle that was compared says so. What came from the hub in this place is thrown away."""
Tell = Callable[[str], None]


def foreign(bundle: Any, run: Any) -> str:
    """What is not fedse's own about a run that the hub offers, in words; empty if all is."""
    own = _read(BUNDLE / _PROJECT)
    try:
        with zipfile.ZipFile(io.BytesIO(bundle.content)) as archive:
            if sorted(archive.namelist()) != [_MANIFEST, _PROJECT]:
                return "it holds code of its own"
            if any(item.file_size > _LARGEST for item in archive.infolist()):
                return "its files are too large"
            project = tomllib.loads(archive.read(_PROJECT).decode())
        # What the run is configured with is for the hub's half alone.
        project.get("tool", {}).get("flwr", {}).get("app", {}).pop("config", None)
    except Exception as error:
        return f"it cannot be read ({type(error).__name__})"
    if project != own:
        return "it names other modules, or is of another version of fedse"
    if bundle.hash_str != hashlib.sha256(bundle.content).hexdigest():
        return "it has another hash than the hub says"
    # Flower starts what stands on its disk under the names that the run has, and not those of the bundle.
    names = f"{own['tool']['flwr']['app']['publisher']}/{own['project']['name']}", own["project"]["version"]
    if (run.fab_id, run.fab_version, run.fab_hash) != (*names, bundle.hash_str):
        return "the run goes by another name"
    return "" if run.primary_task_type in ("", "flwr-serverapp") else "the run is not one of a ServerApp"


def _read(path: Path) -> dict[str, Any]:
    project = tomllib.loads(path.read_text())
    del project["tool"]["flwr"]["app"]["config"]
    return project


def guard(tell: Tell) -> None:
    """Let the SuperNode of this process take fedse's own bundle only."""
    flower: Any = importlib.import_module("flwr.supernode.start_client_internal")
    pull = flower._pull_and_store_message
    needed = {"get_run", "get_fab", "trusted_entities"}
    if not needed <= inspect.signature(pull).parameters.keys() or not hasattr(flower, "_verify_fab"):
        raise BadInput("this version of Flower takes bundles in another way: install the one that fedse was made with.")

    def guarded(**given: Any) -> Any:
        runs: dict[int, Any] = {}

        def get_run(number: int) -> Any:
            runs[number] = given["get_run"](number)
            return runs[number]

        def get_fab(name: str, number: int) -> Any:
            bundle = given["get_fab"](name, number)
            reason = foreign(bundle, runs[number])
            if reason:
                content = hashlib.sha256(bundle.content).hexdigest()
                tell(
                    f"the hub wants another bundle than fedse's own to be run here (sha256 {content}): {reason}. It was "
                    "refused, and nothing of it was run. Use the same version of fedse as the hub, and ask its operator."
                )
            return replace(bundle, verifications={"valid_license": _OWN, _OWN: "" if reason else _OWN})

        return pull(**{**given, "get_run": get_run, "get_fab": get_fab, "trusted_entities": {_OWN: _OWN}})

    def verified(bundle: Any, entities: Any) -> bool:
        del entities
        return bool(bundle.verifications.get(_OWN) == _OWN)

    flower._pull_and_store_message = guarded
    flower._verify_fab = verified
