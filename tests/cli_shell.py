"""Commands in the process of the test, against one server."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

from roquet.cli.app import run


class Shell:
    """Runs commands against one dev server."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.code = 0
        self.err = ""

    def __call__(self, *words: str) -> str:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.code = run([*words, "-n", self.address])
        self.err = err.getvalue()
        assert "Traceback" not in self.err
        return out.getvalue()

    def rows(self, *words: str) -> list[dict[str, Any]]:
        text = self(*words, "-o", "json")
        assert (self.code, self.err) == (0, "")
        return [json.loads(line) for line in text.splitlines()]
