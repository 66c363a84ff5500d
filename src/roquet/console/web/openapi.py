"""The OpenAPI document of the JSON API, made of the rows that serve it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.base.installed import release
from roquet.console.web.files import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.console.declared import Action, Data, Download, Field, View

_ERROR = {
    "description": "Why not",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {"error": {"type": "string"}},
                "required": ["error"],
            }
        }
    },
}
_ERRORS = {
    str(code): _ERROR for code in (400, 401, 403, 404, 405, 409, 413, 415, 429, 502, 503, 504)
}


def document(
    views: Iterable[View],
    actions: Iterable[Action],
    downloads: Iterable[Download],
    root_path: str,
) -> Data:
    """Return the document (OpenAPI 3.1)."""
    paths: dict[str, dict[str, Any]] = {}
    for view in views:
        paths.setdefault("/api" + view.path.rstrip("/"), {})["get"] = {
            **_about("get", view.title, view.path, view.role.word),
            "parameters": [_parameter(it) for it in view.fields],
        }
    for file in downloads:
        kinds: dict[str, Any] = {it.partition(";")[0]: {} for it in FORMATS.values()}
        about = _about("get", file.title, file.path, file.role.word)
        about["responses"]["200"]["content"] = kinds
        paths.setdefault("/api" + file.path, {})["get"] = {
            **about,
            "parameters": [_parameter(it) for it in file.fields],
        }
    for action in actions:
        required = [it.name for it in action.fields if it.required]
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {it.name: _schema(it) for it in action.fields},
            "additionalProperties": False,
        }
        if required:
            schema["required"] = required
        paths.setdefault("/api" + action.path, {})["post"] = {
            **_about("post", action.title, action.path, action.role.word),
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Roquet console", "version": release()},
        "servers": [{"url": root_path or "/"}],
        "security": [{"session": []}],
        "components": {"securitySchemes": {"session": {"type": "http", "scheme": "bearer"}}},
        "paths": paths,
    }


def _about(method: str, title: str, path: str, role: str) -> dict[str, Any]:
    answer = {"application/json": {"schema": {"type": "object"}}}
    return {
        "summary": title,
        "operationId": f"{method}_{path.strip('/').replace('/', '_') or 'overview'}",
        "description": f"Role: {role}.",
        "responses": {"200": {"description": "Done", "content": answer}, **_ERRORS},
    }


def _parameter(field: Field) -> dict[str, Any]:
    return {
        "name": field.name,
        "in": "query",
        "required": field.required,
        "description": field.about,
        "schema": _schema(field),
    }


def _schema(field: Field) -> dict[str, Any]:
    if field.kind == "integer":
        return {"type": "integer", "minimum": field.low, "maximum": field.high}
    if field.kind == "boolean":
        return {"type": "boolean"}
    text: dict[str, Any] = {"type": "string", "maxLength": field.size_max}
    if field.required:
        text["minLength"] = 1
    if field.choices:
        text["enum"] = list(field.choices)
    if field.kind == "texts":
        fewest = {"minItems": 1} if field.required else {}
        return {"type": "array", "items": text, "maxItems": field.high, **fewest}
    return {**text, "description": field.about}
