"""A world behind HTTP: the data stay in a service of the site, and the world is a thin client of it.

    python examples/private_world.py

starts such a service for a made-up archive, lets two sites learn from it, and shows that nothing the service said is among
what left the sites. In an experiment file the world is `{name: "private_world:Archive", url: "http://127.0.0.1:8400"}`.
An answer that is no answer makes the episode an error of the world, never a failure of the agent.
"""

import json
import tempfile
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fedse
from fedse import PluginOptions, Task, Turn, World
from fedse.errors import BadInput

SHELVES = ["shelf red", "shelf green", "shelf blue"]


class Archive(World):
    """File a record on the right shelf. Which shelf that is, only the service knows."""

    name, version, turn_limit = "archive", 1, 3
    rules = (
        "You keep an archive. Put the record on a shelf: shelf red, shelf green or shelf blue.\n"
        "Reply with two lines:\nThought: why\nAction: a shelf"
    )

    class Options(PluginOptions):
        url: str
        """Address of the service."""
        timeout: float = 5.0
        """Seconds to wait for it."""

    def ask(self, path):
        # No retries: whatever goes wrong here is told as an error of the world, with its traceback in the site's journal.
        with urllib.request.urlopen(f"{self.options.url}/{path}", timeout=self.options.timeout) as answer:
            return json.load(answer)

    def tasks(self, split):
        return [Task(name) for name in self.ask(f"tasks/{split}")]

    def begin(self, task):
        self.task, record = task, self.ask(f"records/{task}")
        if not record:
            raise BadInput(f"archive: there is no task '{task}'.")
        return f"A record about {record['about']}."

    def act(self, action):
        if action not in SHELVES:
            return Turn("There is no such shelf.", valid=False)
        right = self.ask(f"records/{self.task}")["shelf"] == action.removeprefix("shelf ")
        return Turn("Thank you." if right else "That is the wrong shelf.", done=True, success=right, score=float(right))

    def expert(self):
        shelf = self.ask(f"records/{self.task}")["shelf"]
        return "I know this archive.", f"shelf {shelf}"

    def trivial(self, draw):
        return SHELVES[int(draw * len(SHELVES))]

    def drawing(self):
        return self.task

    def state(self):
        return self.task

    def set_state(self, state):
        self.task = state


SUBJECTS = {"bees": "red", "tides": "blue", "mosses": "green", "comets": "blue", "rust": "red", "ferns": "green"}
RECORDS = {
    f"record-{number}": {"about": about, "shelf": shelf}
    for number, (about, shelf) in enumerate(sorted(SUBJECTS.items()) * 10)
}
SPLITS = {"train": range(0, 36), "validation": range(36, 48), "test": range(48, 60)}


class Service(BaseHTTPRequestHandler):
    """What a site would have: here 60 made-up records about six subjects."""

    def do_GET(self):
        kind, _, name = self.path.strip("/").partition("/")
        answer = RECORDS.get(name, {}) if kind == "records" else [f"record-{n}" for n in SPLITS[name]]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        """A world prints nothing."""


def experiment(url: str) -> fedse.Experiment:
    return fedse.Experiment(
        name="private",
        rounds=2,
        model={"name": "table", "actions": SHELVES},
        policy="table",
        learner="table",
        clients={name: {"worlds": [{"name": Archive, "url": url}]} for name in ("east", "west")},
        start="none",
        exploration={"tasks": 24},
        evaluation={"tasks": 12, "test_tasks": 0},
    )


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with tempfile.TemporaryDirectory() as runs:
            result = fedse.run(experiment(f"http://127.0.0.1:{server.server_port}"), runs)
            rows = result.validation["worlds"]
            print("success:", ", ".join(f"{row['client']} {100 * row['success']:.0f} %" for row in rows))
            ledgers = "".join(path.read_text() for path in Path(runs).rglob("ledger.jsonl"))
            print("subjects that left a site:", [subject for subject in SUBJECTS if subject in ledgers])
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main()
