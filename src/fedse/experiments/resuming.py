"""Whether a run folder can go on with an experiment: the same one, with the same worlds, begun from the same files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedse.errors import RunConflict
from fedse.experiments.components import Components
from fedse.experiments.file import differences
from fedse.experiments.options import Experiment, experiment_of
from fedse.protocols import DependsOnFiles
from fedse.runs.reading import RunView
from fedse.worlds.answers import BREAKING


def last_stored(path: Path) -> int | None:
    """The newest complete round in a folder; None where not even a beginning is stored. In round 0 some buffers may still be
    without what they begin with."""
    return RunView.existing(path).last_round() if (path / "manifest.json").exists() else None


def check_same_experiment(path: Path, experiment: Experiment, instead: str = "") -> None:
    """Raises `RunConflict` where a folder cannot go on with an experiment. `instead` is what to do, where it is not what
    `fedse run` needs."""
    if reason := conflict(path, experiment, instead):
        raise RunConflict(reason)


def conflict(path: Path, experiment: Experiment, instead: str = "") -> str:
    """Why a folder cannot go on with an experiment: it holds another one. More rounds, or another value of what changes no
    result, go on."""
    if not (path / "manifest.json").exists():
        return ""
    folder = RunView.existing(path)
    stored = experiment_of(folder.path)
    if changed := differences(stored.identity(), experiment.identity()):
        instead = instead or (
            f"to resume that run as it was begun, with every `--set` it was begun with, use `{command_of(path)}`; to run "
            "this one beside it, give it another name (`--set name=...`)."
        )
        return f"{path} holds a run of another experiment (different: {', '.join(changed)}): {instead}"
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


@dataclass(frozen=True)
class Surroundings:
    """What a run depends on beside its experiment file. Where clients are elsewhere, nothing of it is known."""

    worlds: Mapping[str, str] = field(default_factory=dict)
    """What every world says of itself: a changed version, or changed rules, make other results."""
    start: str | None = None
    """A hash of the files that buffers begin with; None where nobody reads them any more."""

    @classmethod
    def of(cls, components: Components | None, learning: bool, begun: bool) -> Surroundings:
        """As they are now. Where a run has `begun`, all its buffers have what they begin with; without `learning` clients
        none of them begins with anything."""
        if components is None:
            return cls()
        worlds, start = _world_versions(components), components.start
        if begun:
            return cls(worlds)
        if learning and isinstance(start, DependsOnFiles):
            return cls(worlds, start.fingerprint())
        return cls(worlds, "")

    def check_same(self, path: Path) -> None:
        """Raises `RunConflict` where the run in a folder was made in others."""
        if not (path / "manifest.json").exists():
            return
        manifest = RunView.existing(path).manifest()
        if self.start is not None and manifest.get("start", self.start) != self.start:
            # Some buffers may have begun with what the files held; the others must not get something else.
            raise RunConflict(
                f"{path} was begun with another content of the file that `start` names, and its first round is not "
                "complete: restore the file, give this experiment another name, or remove the folder."
            )
        noted = manifest.get("worlds", {})
        for place in sorted(noted.keys() & self.worlds.keys()):
            if noted[place] != self.worlds[place]:
                raise RunConflict(
                    f"{path} was made with another state of the world {place} ({noted[place]}; here it is "
                    f"{self.worlds[place]}): its results and new ones would not be of the same experiment. Give this one "
                    "another name, or use the fedse that the run was made with."
                )


def _world_versions(components: Components) -> dict[str, str]:
    """A world that breaks when it is asked says nothing; its episodes will be errors."""
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
