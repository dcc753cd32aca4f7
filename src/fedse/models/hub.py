"""Where a pre-trained model is: in a folder, on the hub, or among what was downloaded from there before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedse.errors import BadInput

_SECONDS = 10.0
"""How long the hub may take to answer."""


@dataclass(frozen=True)
class Source:
    """What transformers is told to load from."""

    place: str
    settings: Mapping[str, Any] = field(default_factory=dict)


def find(place: str, revision: str | None) -> Source:
    """The model at a folder or under a name on the hub. Code that comes with a model is never run."""
    never = {"trust_remote_code": False}
    if Path(place).is_dir():
        if revision is not None:
            raise BadInput(f"model.revision: '{place}' is a folder, which has no revisions: leave `revision` out.")
        return Source(place, {**never, "local_files_only": True})
    if Path(place).is_absolute() or place.startswith(".") or place.count("/") != 1:
        raise BadInput(
            f"model: there is no folder '{place}': give the folder of a model, or a name on the hub such as "
            "Qwen/Qwen2.5-0.5B-Instruct."
        )
    why = _no_answer(place, revision)
    if not why:
        return Source(place, {**never, "revision": revision or "main"})
    if (folder := _downloaded(place, revision)) is None:
        raise BadInput(
            f"model: '{place}' is neither a folder nor downloaded on this machine, and the hub cannot be asked for it "
            f"({why}): run `hf download {place} --local-dir FOLDER` where there is a connection and give that folder."
        )
    # Given the name, transformers would ask the hub again, and again, for files that need not be there.
    return Source(str(folder), {**never, "local_files_only": True})


def _no_answer(name: str, revision: str | None) -> str:
    """Why the hub cannot be asked; empty when it knows the model. Asks once, where transformers would try for a minute."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        HfApi().model_info(name, revision=revision, timeout=_SECONDS)
    except OfflineModeIsEnabled:
        return "HF_HUB_OFFLINE is set"
    except HFValidationError as error:
        raise BadInput(f"model: '{name}' is no folder and cannot be a name on the hub: check it.") from error
    except GatedRepoError as error:
        raise BadInput(
            f"model: '{name}' is given to those who accepted its terms: accept them on its page and run `hf auth login`."
        ) from error
    except RepositoryNotFoundError as error:
        raise BadInput(
            f"model: there is no folder '{name}', and no model of this name on the hub that you may read: check the name, "
            "or run `hf auth login`."
        ) from error
    except RevisionNotFoundError as error:
        raise BadInput(f"model.revision: '{name}' has no revision '{revision}' on the hub.") from error
    except Exception as error:  # Name resolution, time-outs, proxies, a server in trouble: each has its own type.
        return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ""


def _downloaded(name: str, revision: str | None) -> Path | None:
    """The folder of a revision that was downloaded before."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "config.json", revision=revision)
    return Path(found).parent if isinstance(found, str) else None
