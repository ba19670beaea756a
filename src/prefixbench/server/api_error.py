"""Errors as an OpenAI client expects them: `{"error": {message, type, param, code}}`.

Messages state counts and names of fields, never a prompt.
"""

from __future__ import annotations

import orjson

_TYPE_OF_STATUS = {
    400: "BadRequestError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    409: "ConflictError",
    413: "RequestTooLargeError",
}


class ApiError(Exception):
    """An answer with an error status; `param` names the field of the request that caused it."""

    def __init__(self, status: int, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param

    def body(self) -> bytes:
        kind = _TYPE_OF_STATUS.get(self.status, "InternalServerError")
        error = {
            "message": self.message,
            "type": kind,
            "param": self.param,
            "code": self.status,
        }
        return orjson.dumps({"error": error})
