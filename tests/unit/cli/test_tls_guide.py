"""The TLS guide, step by step, as its reader types it; only folders and ports are others."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli_harness import Running, environment, roquet
from roquet.testing.java import free_port

PAGE = Path(__file__).parents[3] / "docs/guide/security.md"
STEPS = re.compile(r"^### A name server, .*?(?=^### )", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Guide:
    """The blocks of the guide, moved to a folder and to free ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name_server, self.broker = free_port(), free_port()
        steps = STEPS.search(PAGE.read_text())
        assert steps is not None
        self.blocks = [(kind, self.moved(text)) for kind, text in BLOCK.findall(steps[0])]

    def moved(self, text: str) -> str:
        text = text.replace("/etc/roquet", str(self.folder / "etc"))
        text = text.replace("/var/lib/roquet", str(self.folder / "lib"))
        return text.replace("9876", str(self.name_server)).replace("10911", str(self.broker))

    def of(self, kind: str) -> list[str]:
        return [text for found, text in self.blocks if found == kind]


def ok(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def shell(folder: Path, text: str) -> str:
    command = ["bash", "-e", "-c", text]
    return ok(subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder))


@pytest.fixture
def guide(tmp_path: Path) -> Guide:
    return Guide(tmp_path)


def test_tls_guide_followed_step_by_step_ends_with_messages_over_tls(guide: Guide) -> None:
    folder = guide.folder
    ca, server, start, client = guide.of("")
    shell(folder, ca)
    assert shell(folder, server).endswith("server.pem: OK\n")
    for text, name in zip(guide.of("properties"), ("namesrv.conf", "broker-a.conf"), strict=True):
        (folder / "etc" / name).write_text(text)
    namesrv, doctor, broker = (shlex.split(line)[1:] for line in start.splitlines())
    *exports, publish, read = client.splitlines()
    settings = dict(line.removeprefix("export ").split("=", 1) for line in exports)
    first = Running(folder, *namesrv)
    try:
        first.lines_until("boot success")
        assert "FAIL" not in ok(roquet(folder, *doctor))
        second = Running(folder, *broker)
        try:
            second.lines_until("listening on")
            plain = roquet(folder, *shlex.split(publish)[1:])
            assert "speaks only TLS" in plain.stderr
            ok(command(folder, settings, "-m", "roquet", *shlex.split(publish)[1:]))
            (script,) = guide.of("python")
            (folder / "client.py").write_text(script)
            ok(command(folder, {}, str(folder / "client.py")))
            seen = ok(command(folder, settings, "-m", "roquet", *shlex.split(read)[1:]))
            assert "over TLS" in seen
            assert "from Python" in seen
            (in_context,) = guide.of("sh")
            lines = [shlex.split(it)[1:] for it in in_context.splitlines()]
            assert "over TLS" in [ok(roquet(folder, *words)) for words in lines][-1]
        finally:
            assert second.stop() == 0
    finally:
        assert first.stop() == 0
    assert (folder / "lib/a/commitlog").is_dir()


def command(
    folder: Path, settings: dict[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**environment(folder), **settings},
    )
