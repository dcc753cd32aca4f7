"""The ServerApp: the server of `fedse run`, with the sites at the other end of Flower's grid."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fedse import atomic
from fedse.engines.flower.grid import GridEngine, registered
from fedse.engines.flower.introduced import Introduced
from fedse.engines.flower.quiet import prepare
from fedse.engines.flower.whole_replies import WholeReplies
from fedse.errors import FedseError
from fedse.experiment import run

prepare("fedse hub")

from flwr.serverapp import ServerApp  # noqa: E402 - after the switches

from fedse.apps.hub_file import load_for_hub  # noqa: E402
from fedse.apps.launch import end_with  # noqa: E402
from fedse.apps.sign_of_life import hold, sign_of  # noqa: E402

app = ServerApp()


@app.main()
def main(grid: Any, context: Any) -> None:
    config = context.run_config
    # The run's folder must be free when the hub is started again. A run by hand ends with the process that started it.
    end_with(int(config["hub"]) or os.getppid())
    outcome = Path(str(config["outcome"])) if config["outcome"] else None
    # By this the hub knows that the process lives; held before the number that it belongs to is told.
    sign = hold(sign_of(outcome)) if outcome is not None else None
    if outcome is not None:
        atomic.write_text(outcome, json.dumps({"pid": os.getpid()}))
    try:
        settings = [line for line in str(config["settings"]).split("\n") if line]
        experiment = load_for_hub(Path(str(config["experiment"])), settings)
        nodes = Introduced(WholeReplies(grid)) if config["insecure"] else registered
        result = run(
            experiment, str(config["runs"]), make_engine=lambda sites: GridEngine(WholeReplies(grid), sites, nodes)
        )
        found: dict[str, Any] = {"folder": str(result.folder), "adapter": result.adapter.digest()}
    except FedseError as error:
        found = {"error": str(error), "exit_code": error.exit_code}
    except Exception as error:
        if outcome is not None:
            atomic.write_text(outcome, json.dumps({"error": f"{type(error).__name__}: {error}", "exit_code": 1}))
        raise
    if outcome is not None:
        atomic.write_text(outcome, json.dumps(found))
    if sign is not None:
        sign.close()
