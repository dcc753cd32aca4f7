"""Whether a run folder can go on with an experiment: the same one, with the same worlds, begun from the same files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from fedse.adapters.files import read_adapter
from fedse.errors import RunConflict
from fedse.experiments.components import Components
from fedse.experiments.file import differences
from fedse.experiments.options import Experiment, experiment_of
from fedse.runs.reading import RunView
from fedse.worlds.answers import BREAKING


def has_beginning(path: Path) -> bool:
    """Whether the run has stored the adapter that its first round begins with."""
    return (path / "manifest.json").exists() and RunView.existing(path).last_round() is not None


def has_begun(path: Path) -> bool:
    """Whether all buffers of the run have what they begin with."""
    return (path / "manifest.json").exists() and bool(RunView.existing(path).last_round())


def conflict(path: Path, experiment: Experiment) -> str:
    """Why a folder cannot go on with an experiment: it holds another one. More rounds, or another value of what changes no
    result, go on."""
    if not (path / "manifest.json").exists():
        return ""
    folder = RunView.existing(path)
    stored = experiment_of(folder.path)
    if changed := differences(stored.identity(), experiment.identity()):
        return (
            f"{path} holds a run of another experiment (different: {', '.join(changed)}): to resume that run as it was "
            f"begun, with every `--set` it was begun with, use `{command_of(path)}`; to run this one beside it, give it "
            "another name (`--set name=...`)."
        )
    done = folder.last_round() or 0
    if experiment.rounds < done:
        return (
            f"{path} already has {done} rounds, more than the {experiment.rounds} asked for: `--set rounds={done}` looks at "
            "it as it is, and `fedse eval --round` measures an earlier round."
        )
    return ""


def command_of(path: Path) -> str:
    """What resumes a run, whatever it was begun with."""
    elsewhere = "" if path.parent == Path("runs") else f" --runs {path.parent}"
    return f"fedse run {path / 'experiment.yaml'}{elsewhere}"


def world_versions(components: Components) -> dict[str, str]:
    """What every world of an experiment says of itself: a changed version, or changed rules, make other results. One that
    breaks when it is asked says nothing; its episodes will be errors."""
    found = {}
    for client, makers in components.worlds.items():
        for label, make in makers.items():
            world = make()
            try:
                rules = hashlib.sha256(world.rules.encode()).hexdigest()[:8]
            except BREAKING:
                continue
            found[f"{client}/{label}"] = f"{world.name} version {getattr(world, 'version', 0)}, rules {rules}"
    return found


def check_worlds(path: Path, worlds: Mapping[str, str]) -> None:
    if not (path / "manifest.json").exists():
        return
    noted = RunView.existing(path).manifest().get("worlds", {})
    for place in sorted(noted.keys() & worlds.keys()):
        if noted[place] != worlds[place]:
            raise RunConflict(
                f"{path} was made with another state of the world {place} ({noted[place]}; here it is {worlds[place]}): its "
                "results and new ones would not be of the same experiment. Give this one another name, or use the fedse "
                "that the run was made with."
            )


def check_start_files(path: Path, start: str) -> None:
    """Some buffers may have begun with what the files held when the run was made; the others must not get something else."""
    if (path / "manifest.json").exists() and RunView.existing(path).manifest().get("start", start) != start:
        raise RunConflict(
            f"{path} was begun with another content of the file that `start` names, and its first round is not complete: "
            "restore the file, give this experiment another name, or remove the folder."
        )


def check_start_adapter(path: Path, folder: Path | None) -> None:
    """A run has stored what it began with, and needs the folder no more; one that is there may not hold something else."""
    if folder is None or not has_beginning(path) or not folder.expanduser().exists():
        return
    if read_adapter(folder.expanduser()).digest() != RunView.existing(path).digest_of(0):
        raise RunConflict(
            f"{path} was begun with another adapter than the one that is in {folder} now (`start_adapter`): restore that "
            "folder, give this experiment another name, or remove the run."
        )
