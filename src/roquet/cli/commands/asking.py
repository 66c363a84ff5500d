"""Asking a person before something is taken away."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from roquet.base.errors import RoquetError, UsageError

if TYPE_CHECKING:
    import argparse


class OnlySaid(Exception):  # noqa: N818  (it is the wanted end of a dry run)
    """A dry run has come to what it would do; the text says what that is."""


def ask(loss: str, options: argparse.Namespace, word: str = "y") -> None:
    """Have a person agree to a loss by typing `word`, unless --yes was given.

    Raises OnlySaid in a dry run, UsageError when nobody is there to be asked, RoquetError when
    they do not agree, and KeyboardInterrupt at Ctrl-C.
    """
    if options.dry_run:
        raise OnlySaid(loss)
    if options.yes:
        return
    if not (sys.stdin is not None and sys.stdin.isatty()):
        raise UsageError(f"{loss}: --yes does it all the same")
    question = "Go on? [y/N] " if word == "y" else f"Type {word} to go on: "
    # The loop's handler would only note the signal, and nobody looks while a line is waited for.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.stderr.write(f"{loss}. {question}")
        sys.stderr.flush()
        given = sys.stdin.readline().strip()
    finally:
        signal.signal(signal.SIGINT, before)
    if given != word and not (word == "y" and given.lower() in ("y", "yes")):
        raise RoquetError("nothing is changed")
