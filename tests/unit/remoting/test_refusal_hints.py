"""Refusals for want of an account say what carries one."""

from __future__ import annotations

import pytest

from roquet.auth.directory import Directory
from roquet.auth.guard import _enabled  # pyright: ignore[reportPrivateUsage]
from roquet.base.errors import Refused
from roquet.remoting.refusals import refused


@pytest.mark.parametrize(
    ("user", "hint"),
    [
        ("", "set ROQUET_ACCESS_KEY and ROQUET_SECRET_KEY; in Python connect(..., credentials="),
        ("nobody", "check ROQUET_ACCESS_KEY and ROQUET_SECRET_KEY"),
    ],
)
def test_refusal_of_access_control_names_the_variables(user: str, hint: str) -> None:
    with pytest.raises(Refused) as caught:
        _enabled(Directory(), user)
    shown = refused(caught.value.code, caught.value.remark)
    assert hint in shown.remark
    assert shown.about_account


@pytest.mark.parametrize(
    "piece", ["y", "a.", "java.lang.", " ", "User:", "topic[", "See http://", "\n", "aA"]
)
def test_megabyte_of_a_peers_words_is_read_in_no_time(piece: str) -> None:
    # With a search that begins at each place anew this takes hours.
    remark = "x" + piece * ((1 << 20) // len(piece)) + "x"
    assert refused(1, remark).remark == remark


def test_names_of_classes_and_foreign_pages_are_left_out() -> None:
    remark = (
        "org.apache.rocketmq.remoting.exception.RemotingCommandException: the topic is gone"
        "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )
    assert refused(1, remark).remark == "the topic is gone"
    nested = "java.lang.IllegalStateException: CODE: 1 java.io.IOException: no disk"
    assert refused(1, nested).remark == "CODE: 1 no disk"
