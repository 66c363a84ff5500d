"""Every setting of RocketMQ 5.5.0 has an effect that a test shows, or a reason why not."""

from __future__ import annotations

import re
from pathlib import Path

from tools import setting_mutants
from tools.pages import java_settings, own_settings_tests
from tools.pages.java_settings_table import AT_START, EXACTLY, WITHOUT_EFFECT

from roquet.base.java_keys import JAVA_KEYS

REPOSITORY = Path(__file__).resolve().parents[3]


def source_of(file: str) -> str:
    folder = "crates/core/tests" if file.endswith(".rs") else "tests"
    return "\n".join(path.read_text() for path in (REPOSITORY / folder).rglob(file))


def test_page_of_java_settings_is_current() -> None:
    assert java_settings.PAGE.read_text() == java_settings.page(), (
        "run python -m tools.pages.java_settings"
    )


def test_undeclared_setting_has_a_reason() -> None:
    undeclared = JAVA_KEYS - set(java_settings.declared())
    assert len(undeclared) > 300
    assert [key for key in sorted(undeclared) if java_settings.fate(key) is None] == []
    assert sorted(set(EXACTLY) - undeclared) == []


def test_declared_setting_is_live_or_says_why_not() -> None:
    known = java_settings.declared()
    silent = [
        key
        for key in sorted(JAVA_KEYS & set(known))
        if not known[key].live and java_settings.reason_of(key, AT_START) is None
    ]
    assert silent == []


def test_declared_setting_has_a_test_that_shows_its_effect() -> None:
    declared = JAVA_KEYS & set(java_settings.declared())
    shown = java_settings.shown_by()
    assert set(shown) == declared
    for key, cited in shown.items():
        if key in WITHOUT_EFFECT:
            continue
        file, _, name = cited.partition("::")
        source = source_of(file)
        assert name, key
        assert re.search(rf"\b(def|fn) {name}\b", source), f"{key}: no {cited}"
        if file.endswith(".py") and file in {"test_live_settings.py", "test_each_setting.py"}:
            assert key in source, f"{file} says nothing of {key}"


def test_setting_of_our_own_has_a_test_that_shows_its_effect() -> None:
    rows = [
        (key, file, name)
        for file, tests in own_settings_tests.SHOWN_BY.items()
        for name, keys in tests.items()
        for key in keys
    ]
    assert sorted(key for key, _, _ in rows) == sorted(set(java_settings.declared()) - JAVA_KEYS)
    for key, file, name in rows:
        assert re.search(rf"\bdef {name}\b", source_of(file)), f"{key}: no {file}::{name}"


def test_every_declared_setting_with_an_effect_is_among_the_setting_mutants() -> None:
    judged = [key for _, _, key in setting_mutants.rows()]
    assert len(judged) == len(set(judged))
    assert set(judged) == set(java_settings.declared()) - set(WITHOUT_EFFECT)
