"""The ServerApp: the server of `fedse run`, with the sites at the other end of Flower's grid."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedse.engines.flower.grid import GridEngine, registered
from fedse.engines.flower.names_without_keys import NamesWithoutKeys
from fedse.engines.flower.seal import Seal
from fedse.engines.flower.settings import prepare
from fedse.engines.flower.whole_replies import WholeReplies
from fedse.engines.flower.wire import Parcel
from fedse.errors import FedseError
from fedse.experiments.running import run
from fedse.federation.sites import Sites
from fedse.storage import atomic

prepare("fedse hub")

from flwr.serverapp import ServerApp  # noqa: E402 - after the switches

from fedse.apps.hub_file import load_for_hub, told_worlds_of  # noqa: E402
from fedse.apps.launch import end_with  # noqa: E402
from fedse.apps.run_order import take_order  # noqa: E402
from fedse.apps.sign_of_life import hold, sign_of  # noqa: E402

app = ServerApp()


def _unsigned(parcel: Parcel) -> Parcel:
    """Sites of an insecure hub have no key to check it with."""
    return parcel


def _hub_folder() -> Path:
    """Flower's server, in whose process tree this is, was given its home in the hub's folder. The path is not part of the
    run's configuration, which sites can read."""
    return Path(os.environ["FLWR_HOME"]).parent


@app.main()
def main(grid: Any, context: Any) -> None:
    config = take_order(context.run_config)
    # The run's folder must be free when the hub is started again. A run by hand ends with the process that started it.
    end_with(int(config["hub"]) or os.getppid())
    outcome = Path(str(config["outcome"])) if config["outcome"] else None
    # By this the hub knows that the process lives; held before the number that it belongs to is told.
    life = hold(sign_of(outcome)) if outcome is not None else None
    if outcome is not None:
        atomic.write_text(outcome, json.dumps({"pid": os.getpid()}))
    try:
        settings = [line for line in str(config["settings"]).split("\n") if line]
        file = Path(str(config["experiment"]))
        experiment, worlds = load_for_hub(file, settings), told_worlds_of(file, settings)
        nodes = NamesWithoutKeys(WholeReplies(grid)) if config["insecure"] else registered
        sign = _unsigned if config["insecure"] else Seal.read(_hub_folder() / "certificates/seal.key")

        def carried(sites: Sites) -> GridEngine:
            # The hub's own copy of the experiment has no worlds.
            expected = replace(sites.expected, worlds=worlds)
            return GridEngine(WholeReplies(grid), replace(sites, expected=expected), nodes, seal=sign)

        result = run(experiment, str(config["runs"]), make_engine=carried)
        found: dict[str, Any] = {"folder": str(result.folder), "adapter": result.adapter.digest()}
    except FedseError as error:
        found = {"error": str(error), "exit_code": error.exit_code}
    except Exception as error:
        if outcome is not None:
            atomic.write_text(outcome, json.dumps({"error": f"{type(error).__name__}: {error}", "exit_code": 1}))
        raise
    if outcome is not None:
        atomic.write_text(outcome, json.dumps(found))
    if life is not None:
        life.close()
