"""Asking a person before something is taken away."""

from __future__ import annotations

import sys

from roquet.base.errors import UsageError


def ask(loss: str, *, agreed: bool, word: str = "y") -> None:
    """Have a person agree to a loss by typing `word`.

    Raises UsageError when nobody is there to, or does not.
    """
    if agreed:
        return
    if not (sys.stdin is not None and sys.stdin.isatty()):
        raise UsageError(f"{loss}: --yes does it all the same")
    question = "Go on? [y/N] " if word == "y" else f"Type {word} to go on: "
    sys.stderr.write(f"{loss}. {question}")
    sys.stderr.flush()
    given = sys.stdin.readline().strip()
    if given != word and not (word == "y" and given.lower() in ("y", "yes")):
        raise UsageError("nothing is changed")
