"""What is installed, seen from folders alone."""

from __future__ import annotations

import sys
import zipfile
from importlib import metadata
from typing import TYPE_CHECKING

from roquet.base.installed import entry_points, release

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

GROUP = "roquet.some_plugins"


def describe(folder: Path, name: str, text: str = "") -> None:
    about = folder / f"{name}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: it\nVersion: 1\n")
    if text:
        (about / "entry_points.txt").write_text(text)


def test_the_release_is_the_installed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "absent")])
    assert release() == "(from source)"
    describe(tmp_path, "roquet_other-9.9")
    assert release() == "(from source)"
    describe(tmp_path, "roquet-1.2.3")
    assert release() == "1.2.3"


def test_entry_points_are_found_where_the_library_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(tmp_path / "a", "one-1", f"[{GROUP}]\nz = one:Z\nb = one:B\n")
    describe(tmp_path / "b", "two-1", f"[console_scripts]\nit = two:main\n\n[{GROUP}]\nc = two:C\n")
    describe(tmp_path / "c", "three-1", "[console_scripts]\nit = three:main\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / name) for name in "abc"])
    assert [(point.name, point.value) for point in entry_points(GROUP)] == [
        ("b", "one:B"),
        ("c", "two:C"),
        ("z", "one:Z"),
    ]
    assert entry_points("roquet.other") == []


def test_an_archive_is_left_to_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe(tmp_path, "four-1", f"[{GROUP}]\nd = four:D\n")
    archive = tmp_path / "packages.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("METADATA", "entry_points.txt"):
            file.write(tmp_path / "four-1.dist-info" / name, f"four-1.dist-info/{name}")
    monkeypatch.setattr(sys, "path", [str(archive)])
    assert [point.name for point in entry_points(GROUP)] == ["d"]
    assert [point.name for point in metadata.entry_points(group=GROUP)] == ["d"]
