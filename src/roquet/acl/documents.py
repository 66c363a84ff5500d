"""YAML to plain mappings, lists and texts, and back. Pure.

Every scalar is a text: a key of digits stays as it was written. Nothing in a file can make an
object, and anchors are refused, since a few lines of them can stand for billions of entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from roquet.acl.accounts import is_list, is_mapping
from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from roquet.acl.accounts import Document

DEPTH_MAX = 10
_LINE_MAX = 4096
"""Characters of a line that is written; longer texts are folded, which readers undo."""
_NUMBERS = frozenset({"counter", "timestamp"})
"""Java's tools expect these as numbers, and `admin` as a truth value."""


def read_document(data: bytes) -> Document:
    """Read a file; an empty one is an empty mapping. Raises UsageError, without its contents."""
    try:
        _check_shape(data)
        found = _data(data)
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or type(error).__name__
        raise UsageError(f"this is no YAML{where}: {problem}") from None
    if found in (None, ""):
        return {}
    if not is_mapping(found):
        raise UsageError("a mapping is expected, with accounts and globalWhiteRemoteAddresses")
    return found


def write_document(document: Document) -> bytes:
    """Write a file that Java reads as well."""
    text: str = yaml.safe_dump(
        _typed(document), sort_keys=False, allow_unicode=True, width=_LINE_MAX
    )
    return text.encode()


def _data(data: bytes) -> Any:
    """Return what the loader makes that knows no types but texts, lists and mappings."""
    return yaml.BaseLoader(data).get_single_data()


def _check_shape(data: bytes) -> None:
    depth = 0
    for event in yaml.parse(data, Loader=yaml.BaseLoader):
        if isinstance(event, yaml.AliasEvent):
            raise UsageError("anchors and aliases are not taken here")
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            if depth > DEPTH_MAX:
                raise UsageError(f"it is nested deeper than {DEPTH_MAX} levels")
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1


def _typed(value: Any, name: str = "") -> Any:
    if is_mapping(value):
        return {key: _typed(item, key) for key, item in value.items()}
    if is_list(value):
        return [_typed(item) for item in value]
    if name == "admin" and value in {"true", "false"}:
        return value == "true"
    if name in _NUMBERS and value.isascii() and value.isdigit():
        return int(value)
    return value
