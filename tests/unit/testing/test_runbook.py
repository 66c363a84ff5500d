"""The runbook has texts that the program says, settings and commands that there are."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from roquet.base.config import settings
from roquet.base.java_keys import JAVA_KEYS
from roquet.broker.config import BrokerConfig
from roquet.cli.app import run
from roquet.protocol.codes import ResponseCode

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs/guide/runbook.md").read_text()
QUOTED = re.compile(r"`([^`]+)`")
OF_CLIENTS = {"No route info of this topic"}
"""What only clients say."""
MARK = "…"


def rows() -> list[tuple[str, str]]:
    """Return the left and the right sides of all tables, without their heads."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    found = [line.strip("| ").split(" | ", 1) for line in lines]
    return [(left, right) for left, right in found]


def flat(node: ast.expr) -> str:
    """Return a text of the program with a mark for each thing that is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(flat(part) for part in node.values)
    if isinstance(node, ast.Constant):
        text = node.value if isinstance(node.value, str) else ""
        return re.sub(r"%[sdr.\d]*[sdrf]|\{\w*\}", MARK, text)
    return MARK


@functools.cache
def texts() -> frozenset[str]:
    """Return every text of the product, Python's and Rust's."""
    found: set[str] = set()
    for path in (REPOSITORY / "src/roquet").rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        found |= {flat(node) for node in nodes if isinstance(node, (ast.JoinedStr, ast.Constant))}
    for path in (REPOSITORY / "crates").rglob("*.rs"):
        source = re.sub(r"\\\n\s*", "", path.read_text())
        found |= {re.sub(r"\{[^}]*\}", MARK, text) for text in re.findall(r'"([^"\n]+)"', source)}
    return frozenset(found)


def is_said(text: str) -> bool:
    """Tell whether the parts between the marks stand in one text, in their order."""
    return any(_in_order(text.split(MARK), known) for known in texts())


def _in_order(parts: list[str], known: str) -> bool:
    at = 0
    for part in parts:
        at = known.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


@pytest.mark.parametrize("left", [left for left, _ in rows()])
def test_what_it_says_is_said(left: str) -> None:
    for quoted in QUOTED.findall(left):
        # What is in the file names of a row, and the rule behind a setting, are texts of their own.
        for text in quoted.split(": must be …"):
            known = text in OF_CLIENTS or text in ResponseCode.__members__
            assert not text or known or is_said(text), f"nothing says {text!r}"


def test_a_text_that_nothing_says_is_noticed() -> None:
    assert not is_said("unknown properties: …")
    assert not is_said("group … is not readable")


def test_settings_and_commands_of_the_page_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    known = JAVA_KEYS | {about.java for _, about, _ in settings(BrokerConfig)}
    words = [word for text in QUOTED.findall(PAGE) for word in [text.partition("=")[0]]]
    keys = [word for word in words if re.fullmatch(r"[a-z]+[A-Z]\w+", word)]
    assert len(keys) >= 8
    assert [key for key in keys if key not in known] == ["topicPerms", "groupPerms"]
    commands = {text for text in QUOTED.findall(PAGE) if text.startswith("roquet ")}
    assert commands
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            run([*command.split()[1:], "-h"])
        assert ended.value.code == 0, command
    capsys.readouterr()
