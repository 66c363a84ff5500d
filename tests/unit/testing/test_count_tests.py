"""The run's last word: what counts as green."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tools.count_tests import main
from tools.second_try import failed_tests

if TYPE_CHECKING:
    from pathlib import Path


def report(path: Path, **outcomes: str) -> None:
    cases = "".join(
        f'<testcase classname="suite" name="{name}">{f"<{tag}/>" if tag else ""}</testcase>'
        for name, tag in outcomes.items()
    )
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")


@pytest.mark.parametrize(
    ("tries", "said", "code"),
    [
        (({"a": "", "b": ""}, None), "2 passed, 0 failed, 0 skipped", 0),
        (({}, None), "no test ran", 1),
        (({"a": "", "b": "skipped"}, None), "1 passed, 0 failed, 1 skipped", 1),
        (({"a": "", "b": "failure"}, None), "1 passed, 1 failed", 1),
        (({"a": "", "b": "failure"}, None), "FAILED, stage.xml: suite::b", 1),
        (
            ({"a": "", "b": "failure"}, {"b": ""}),
            "UNSTABLE, passed at the second try only: suite::b",
            0,
        ),
        (({"a": "", "b": "error"}, {"b": "failure"}), "1 passed, 1 failed", 1),
        (({"a": "", "b": "failure"}, {"a": ""}), "1 passed, 1 failed", 1),
    ],
)
def test_what_counts_as_green(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tries: tuple[dict[str, str], dict[str, str] | None],
    said: str,
    code: int,
) -> None:
    first, second = tries
    report(tmp_path / "stage.xml", **first)
    if second is not None:
        report(tmp_path / "stage-second.xml", **second)
    assert main(tmp_path) == code
    assert said in capsys.readouterr().out


def test_only_what_pytest_noted_gets_a_second_try(tmp_path: Path) -> None:
    cache = tmp_path / "lastfailed"
    assert failed_tests(cache) == []
    cache.write_text('{"tests/b.py::two": true, "tests/a.py::one": true}')
    assert failed_tests(cache) == ["tests/a.py::one", "tests/b.py::two"]
