"""The relay's HTTP calls described as OpenAPI 3.1, from the registry and the rows of the view."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any, get_type_hints

from roquet.relay.codes import ID_MAX
from roquet.relay.web.view import HealthRow, ServerRow, WorkerRow

if TYPE_CHECKING:
    from collections.abc import Iterable

_TYPES: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int | None: {"type": ["integer", "null"]},
}
_ERROR = {"$ref": "#/components/schemas/Error"}
_BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "GET /": ("text/html", {"type": "string"}),
    "GET /metrics": ("text/plain", {"type": "string"}),
    "GET /health": ("application/json", {"$ref": "#/components/schemas/HealthRow"}),
    "GET /servers": (
        "application/json",
        {"type": "array", "items": {"$ref": "#/components/schemas/ServerRow"}},
    ),
    "GET /servers/{id}": ("application/json", {"$ref": "#/components/schemas/ServerRow"}),
    "GET /workers": (
        "application/json",
        {"type": "array", "items": {"$ref": "#/components/schemas/WorkerRow"}},
    ),
}


def document(rows: Iterable[tuple[str, object]]) -> dict[str, Any]:
    """Return the description of `rows`: `METHOD /path` and its handler."""
    paths: dict[str, dict[str, Any]] = {}
    for key, handler in rows:
        method, path = key.split(" ", 1)
        paths.setdefault(path, {})[method.lower()] = _call(key, handler)
    schemas = {row.__name__: _schema(row) for row in (HealthRow, ServerRow, WorkerRow)}
    schemas["Error"] = _object({"error": {"type": "string"}})
    schemas["Done"] = _object({"done": {"type": "string"}})
    return {
        "openapi": "3.1.0",
        "info": {"title": "Roquet relay", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"admin": {"type": "http", "scheme": "bearer"}},
        },
    }


def _call(key: str, handler: object) -> dict[str, Any]:
    method, path = key.split(" ", 1)
    name = path.replace("{id}", "id").strip("/").replace("/", "_").replace(".", "_") or "page"
    call: dict[str, Any] = {
        "operationId": f"{method.lower()}_{name}",
        "summary": (inspect.getdoc(handler) or name).splitlines()[0],
        "responses": _responses(key, path),
    }
    if "{id}" in path:
        bounds = {"type": "integer", "minimum": 1, "maximum": ID_MAX}
        call["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": bounds}]
    if method != "GET":
        call["security"] = [{"admin": []}]
    return call


def _responses(key: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if key.startswith("GET "):
        kind, schema = _BODIES.get(key, ("application/json", {"type": "object"}))
        found["200"] = _body("what was asked for", kind, schema)
        if key == "GET /health":
            found["503"] = _body("there is no configuration yet", kind, schema)
    else:
        done = {"$ref": "#/components/schemas/Done"}
        found["202"] = _body("it is done at the next tick", "application/json", done)
        for code, text in (("401", "no token"), ("403", "no token is set"), ("503", "too busy")):
            found[code] = _body(text, "application/json", _ERROR)
    if "{id}" in path:
        found["400"] = _body("the id is none", "application/json", _ERROR)
        found["404"] = _body("no such server", "application/json", _ERROR)
    return found


def _body(text: str, kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {kind: {"schema": schema}}}


def _schema(row: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(row)
    return _object({field.name: _TYPES[hints[field.name]] for field in dataclasses.fields(row)})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}
