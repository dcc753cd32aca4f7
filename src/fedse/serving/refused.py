"""A request that is not answered, in the protocol's own words."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """Its text is one sentence for whoever wrote the request."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    def to_json(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}
