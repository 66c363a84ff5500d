"""Blocks of the README and the first steps, run as a reader would run them."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli_harness import dev_server, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
PAGES = ["README.md", "docs/guide/first-steps.md"]
COMMAND = re.compile(r"^roquet (?:pub|cat|sub|topic) .*$", re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    home = tmp_path_factory.mktemp("dev")
    with dev_server(home) as (address, _):
        yield address, home


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_page_work(dev: tuple[str, Path], page: str) -> None:
    address, home = dev
    lines = [line for block in blocks(page, "") for line in COMMAND.findall(block)]
    assert len(lines) >= 2
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        child = subprocess.Popen(
            [sys.executable, "-m", "roquet", *words],
            stdout=subprocess.PIPE,
            env={**environment(home), "NAMESRV_ADDR": address},
        )
        assert child.stdout is not None
        if words[0] == "sub" and "-c" not in words:
            assert child.stdout.readline()
            child.send_signal(signal.SIGINT)  # it goes on until Ctrl-C
        out, _ = child.communicate(timeout=120)
        assert child.returncode == 0, line
        assert out or words[0] == "sub", line


@pytest.mark.parametrize("page", [*PAGES, "docs/guide/pop.md", "docs/guide/python-client.md"])
def test_python_blocks_of_the_page_run_as_scripts(dev: tuple[str, Path], page: str) -> None:
    address, home = dev
    found = [it for it in blocks(page, "python") if "spark" not in it and "def test_" not in it]
    assert found
    for number, block in enumerate(found):
        script = home / f"block{number}.py"
        script.write_text(block.replace("127.0.0.1:9876", address))
        child = subprocess.Popen(
            [sys.executable, "-u", str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(home),
        )
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith((b"b'", b'b"')):
                break
        else:
            assert child.stderr is not None
            raise AssertionError(child.stderr.read().decode())
        if "mq.run" in block:
            child.send_signal(signal.SIGTERM)
        _, errors = child.communicate(timeout=120)
        assert (child.returncode, errors) == (0, b"")
