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
