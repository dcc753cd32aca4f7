"""`fedse site init`: a site's folder, made of the kit that the hub made and the experiment."""

from __future__ import annotations

import shutil
from pathlib import Path

from fedse.apps.private import private
from fedse.apps.site_file import load_site
from fedse.errors import BadInput
from fedse.storage import atomic
from fedse.storage.strict_yaml import read_yaml


def make_site(kit: Path, folder: Path, experiment: Path | None) -> Path:
    """Make a site, or give a site that is there the key of a new kit. What is in use is checked before the kit goes."""
    if not (kit / "site.yaml").is_file():
        raise BadInput(f"{kit} is no kit: it holds no site.yaml; the hub makes kits, in HUB/sites/NAME.")
    if folder.resolve() == kit.resolve():
        raise BadInput(f"{folder} is the kit itself: give another folder.")
    with private():
        if (folder / "site.yaml").is_file():
            _replace_key(kit, folder, experiment)
        else:
            _make_anew(kit, folder, experiment)
    shutil.rmtree(kit, ignore_errors=True)
    return folder


def file_of(site: Path) -> Path:
    """The file of a site that is given as its folder, or as the file itself."""
    file = site / "site.yaml" if site.is_dir() else site
    if not file.is_file():
        found = f"{site} is no site: it holds no site.yaml" if site.is_dir() else f"there is no site {site}"
        raise BadInput(
            f"{found}; give the folder that `fedse site init KIT --experiment FILE` makes of the kit that the hub made."
        )
    return file


def _make_anew(kit: Path, folder: Path, experiment: Path | None) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"{folder} is not empty and not a site: choose another folder.")
    if experiment is None or not experiment.is_file():
        raise BadInput(
            f"there is no experiment {experiment or ''}: give the file that the hub runs, with --experiment FILE."
        )
    with atomic.new_folder(folder) as part:
        for file in _files(kit):
            shutil.copyfile(file, part / file.name)
        shutil.copyfile(experiment, part / "experiment.yaml")
    try:
        load_site(folder / "site.yaml")
    except BaseException:
        shutil.rmtree(folder)
        raise


def _replace_key(kit: Path, folder: Path, experiment: Path | None) -> None:
    """Its own file, its experiment and what it remembers stay."""
    if experiment is not None:
        raise BadInput(f"{folder} is a site already: its new key is taken from the kit alone, without --experiment.")
    names = [read_yaml(place / "site.yaml")[0].get("name") for place in (kit, folder)]
    if names[0] != names[1]:
        raise BadInput(f"{kit} is a kit of '{names[0]}', and {folder} is the site '{names[1]}'.")
    for file in _files(kit):
        if file.name != "site.yaml":
            with atomic.new_file(folder / file.name) as part:
                shutil.copyfile(file, part)


def _files(kit: Path) -> list[Path]:
    return sorted(path for path in kit.iterdir() if path.is_file())
