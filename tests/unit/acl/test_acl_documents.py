"""Files of accounts as text, and credentials: what is read, written and refused."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import yaml

from roquet.acl import credentials, documents
from roquet.acl.credentials import Credentials
from roquet.acl.documents import read_document, write_document
from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from roquet.acl.accounts import Document


def refused(action: Callable[[], object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        action()


# --- documents ---------------------------------------------------------------------------------


def test_document_is_nested_as_deep_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "DEPTH_MAX", 2)
    assert read_document(b"a: [b]\nc: [d]\n") == {"a": ["b"], "c": ["d"]}
    for deeper in (b"a: [[b]]", b"a: [b]\nc: [[d]]"):
        refused(partial(read_document, deeper), "deeper than 2")


def test_document_is_written_as_java_reads_it_and_read_as_it_was() -> None:
    document: Document = {
        "zone": "\u00e9t\u00e9",
        "accounts": [{"admin": "true", "accessKey": "true"}, {"admin": "no", "counter": "x1"}],
        "dataVersion": [{"timestamp": "12", "counter": "\u0663", "other": "12"}],
        "list": ["false", "7"],
    }
    data = write_document(document)
    assert read_document(data) == document
    assert yaml.safe_load(data) == {
        **document,
        "accounts": [{"admin": True, "accessKey": "true"}, {"admin": "no", "counter": "x1"}],
        "dataVersion": [{"timestamp": 12, "counter": "\u0663", "other": "12"}],
    }
    assert list(yaml.safe_load(data)) == list(document), "the order stays"
    assert "\u00e9t\u00e9" in data.decode(), "letters stay readable"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"ok: 1\na: [", "no YAML, line 2: expected the node content"),
        (b"a: b: c", "no YAML, line 1: mapping values are not allowed here"),
        (b"a: \xff", "no YAML: ReaderError"),
    ],
)
def test_document_that_is_no_yaml_is_refused_with_line_and_reason(data: bytes, said: str) -> None:
    refused(lambda: read_document(data), said)


# --- credentials -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["access_key", "secret_key", "security_token"])
def test_keys_are_as_long_as_the_limit_and_printable(name: str) -> None:
    keys = {"access_key": "key", "secret_key": "secret", "security_token": "token"}
    good = Credentials(**{**keys, name: "x" * credentials.LENGTH_MAX})
    assert "x" * 10 not in repr(good) or name == "access_key"
    for bad in ("x" * (credentials.LENGTH_MAX + 1), "a\tb"):
        refused(partial(Credentials, **{**keys, name: bad}), "printable texts")


def test_file_of_credentials_is_as_long_as_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.touch(0o600)
    text = b"accessKey=key\nsecretKey=secret\nsecurityToken='token'\n#"
    file.write_bytes(text.ljust(credentials.FILE_SIZE_MAX, b"x"))
    assert credentials.from_file(file) == Credentials("key", "secret", "token")
    file.write_bytes(text.ljust(credentials.FILE_SIZE_MAX + 1, b"x"))
    refused(lambda: credentials.from_file(file), "is larger than")


@pytest.mark.parametrize(
    "env",
    [
        {"ROQUET_ACCESS_KEY": "k"},
        {"ROQUET_SECRET_KEY": "s"},
        {"ROQUET_SECRET_KEY": "s", "ROQUET_ACCESS_KEY": ""},
    ],
)
def test_half_of_the_credentials_is_refused(env: dict[str, str]) -> None:
    refused(lambda: credentials.from_environment(env), "set together")


def test_credentials_of_the_environment_have_the_token(tmp_path: Path) -> None:
    env = {"ROQUET_ACCESS_KEY": "k", "ROQUET_SECRET_KEY": "s"}
    assert credentials.from_environment(env) == Credentials("k", "s")
    with_token = {**env, "ROQUET_SECURITY_TOKEN": "t", "ROQUET_CREDENTIALS_FILE": str(tmp_path)}
    assert credentials.from_environment(with_token) == Credentials("k", "s", "t")
