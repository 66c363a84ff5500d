"""The commands of the backup guide, typed in its order on a store; only folders are others."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from cli_harness import Running, roquet

PAGE = Path(__file__).parents[3] / "docs/guide/backup.md"


def test_backup_guide_commands_bring_a_lost_store_back(tmp_path: Path) -> None:
    store = tmp_path / "lib/a"
    store.parent.mkdir()
    page = PAGE.read_text().replace("/var/lib/roquet", str(store.parent))
    page = page.replace("/backup/", f"{tmp_path}/backup/").replace("STORE", str(store))
    typed = re.findall(r"(?:^\$ |`)(roquet store [^`\n]+)", page, re.MULTILINE)
    backup, *others = [shlex.split(command)[1:] for command in typed]
    running = Running(tmp_path, "dev", "--port", "0", "--namesrv-port", "0")
    try:
        lines = running.lines_until("Ctrl-C")
        (address,) = [line.split()[2] for line in lines if line.startswith("  name server ")]
        (data,) = [line.split()[1] for line in lines if line.startswith("  data ")]
        ok(tmp_path, "pub", "orders", "one", "-n", address)
        store.symlink_to(Path(data) / "store")
        ok(tmp_path, *backup)
    finally:
        assert running.stop() == 0
    store.unlink()  # the store is gone with its server
    for words in others:
        shown = ok(tmp_path, *words)
        assert words[1] != "dump" or '"body": "one"' in shown
    assert [words[1] for words in others] == ["restore", "check", "repair", "dump"]


def ok(home: Path, *words: str) -> str:
    done = roquet(home, *words)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout
