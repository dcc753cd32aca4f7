"""What a served world tells over HTTP: health, schemas, metadata, its tasks. Episodes are played over the WebSocket.

Paths, bodies and statuses are those of OpenEnv's own server. `/reset` and `/step` begin with a fresh world each, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

import fedse
from fedse.errors import BadInput
from fedse.types import Split
from fedse.worlds.answers import BREAKING, reason
from fedse.worlds.serving.session import (
    MakeWorld,
    Session,
    WorldState,
    described,
    schemas,
    split_names,
    task_at,
)

_NO_METHOD = -32601
Reply = tuple[int, Any]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _OfSplit(_Asked):
    split: Split


class _OneTask(_OfSplit):
    index: int


class _Range(_OfSplit):
    start: int | None = None
    stop: int | None = None


class Routes:
    """Answers to HTTP requests, by method and path."""

    def __init__(self, name: str, make_world: MakeWorld) -> None:
        self._name = name
        self._make_world = make_world
        of_tasks: dict[str, Callable[[Any], Any]] = {
            "POST tasks": self._tasks,
            "POST num_tasks": self._num_tasks,
            "POST task": self._task,
            "POST task_range": self._task_range,
            "GET splits": lambda _: split_names(),
        }
        self._of_tasks = of_tasks
        self._plain: dict[str, Callable[[Any], Any]] = {
            "GET /health": lambda _: {"status": "healthy"},
            "GET /schema": lambda _: schemas(),
            "GET /metadata": self._metadata,
            "GET /state": lambda _: WorldState().model_dump(),
            "GET /list_environments": lambda _: [name],
            "GET /openapi.json": self._openapi,
            "POST /reset": lambda body: Session(make_world).reset(body or {}),
            "POST /step": lambda body: Session(make_world).step((body or {}).get("action")),
            "POST /mcp": self._mcp,
        }

    def answer(self, method: str, path: str, body: Any) -> Reply:
        """Status and JSON content for a request."""
        respond = self._plain.get(f"{method} {path}")
        if respond is None:
            environment, _, rest = path.removeprefix("/").partition("/")
            respond = self._of_tasks.get(f"{method} {rest}")
            if respond is None:
                return 404, {"detail": "Not Found"}
            if environment.lower() != self._name.lower():
                return 404, {"detail": f"unknown environment '{environment}'"}
        try:
            return 200, respond(body)
        except ValidationError as error:
            return 422, {"detail": error.errors(include_url=False)}
        except BadInput as error:
            return 400, {"detail": str(error)}
        except BREAKING as error:
            return 500, {"detail": reason(error)}

    def _metadata(self, _: Any) -> dict[str, Any]:
        world = self._make_world()
        about = {"name": self._name, "description": world.rules, "version": str(world.version)}
        return {**about, "readme_content": None, "author": None, "documentation_url": None}

    def _tasks(self, body: Any) -> dict[str, Any]:
        return {"tasks": self._listed(_OfSplit.model_validate(body)), "env_name": self._name}

    def _num_tasks(self, body: Any) -> dict[str, Any]:
        return {"num_tasks": len(self._listed(_OfSplit.model_validate(body)))}

    def _task(self, body: Any) -> dict[str, Any]:
        asked = _OneTask.model_validate(body)
        return {"task": task_at(self._listed(asked), asked.index)}

    def _task_range(self, body: Any) -> dict[str, Any]:
        asked = _Range.model_validate(body)
        return {"tasks": self._listed(asked)[asked.start : asked.stop]}

    def _listed(self, asked: _OfSplit) -> list[dict[str, Any]]:
        return described(self._make_world(), asked.split)

    def _openapi(self, _: Any) -> dict[str, Any]:
        """The routes by name; what goes through them is told by `/schema`."""
        ways = [*self._plain, *(way.replace(" ", f" /{self._name}/") for way in self._of_tasks)]
        paths: dict[str, dict[str, Any]] = {}
        for way in ways:
            method, _, path = way.partition(" ")
            answer = {"responses": {"200": {"description": "JSON"}}}
            paths.setdefault(path, {})[method.lower()] = answer
        return {"openapi": "3.1.0", "info": {"title": self._name, "version": fedse.__version__}, "paths": paths}

    @staticmethod
    def _mcp(body: Any) -> dict[str, Any]:
        number = body.get("id") if isinstance(body, dict) else None
        error = {"code": _NO_METHOD, "message": "This environment has no tools of the Model Context Protocol."}
        return {"jsonrpc": "2.0", "error": error, "id": number}
