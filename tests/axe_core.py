"""axe-core, which judges the accessibility of a page: fetched once, by a pinned hash."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from roquet.testing.java import cache_folder

if TYPE_CHECKING:
    from playwright.sync_api import Page

VERSION = "4.10.3"
PACKAGE_SHA256 = "0f2b4d7dcdf7d1219df8d1959ad68e565f51d14c3f0d88bb71cd59abeb956292"
_FETCH_S = 120


def source() -> str:
    """Return the script. Raises AssertionError for a package that is not the pinned one."""
    kept = cache_folder() / f"axe-core-{VERSION}.tgz"
    if not kept.exists():
        _fetch(kept)
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == PACKAGE_SHA256, kept
    with tarfile.open(kept) as package:
        script = package.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


def _fetch(kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", f"axe-core@{VERSION}", "--silent", "--pack-destination", folder]
        subprocess.run(command, check=True, capture_output=True, timeout=_FETCH_S, cwd=folder)
        draft = kept.with_name(f"{kept.name}.{os.getpid()}")
        shutil.copy(Path(folder) / kept.name, draft)
        draft.replace(kept)


def violations(page: Page, script: str) -> list[str]:
    """Return what axe-core finds wrong with the page that is open: rule, help, first elements."""
    page.evaluate(script)  # evaluated by the browser's tools, so the page's policy stays as it is
    found = cast(
        "dict[str, Any]", page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    )
    assert len(found["passes"]) > 5, "it has looked at the page"
    return [
        f"{rule['id']}: {rule['help']}: {[node['html'][:120] for node in rule['nodes'][:3]]}"
        for rule in found["violations"]
    ]
