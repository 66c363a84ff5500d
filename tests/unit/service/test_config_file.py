"""Changes behind an operator's own lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.properties_file import read_properties
from roquet.service.config_file import MARK, write_down

if TYPE_CHECKING:
    from pathlib import Path


def test_changes_win_and_what_was_written_stays(tmp_path: Path) -> None:
    path = tmp_path / "conf" / "broker.conf"
    write_down(path, {"a": "1"})
    assert read_properties(path.read_bytes()) == {"a": "1"}
    own = b"# mine\na = 5\nb=2"
    path.write_bytes(own)
    write_down(path, {"a": "6"})
    write_down(path, {"c": "x\ny = 7"})
    text = path.read_bytes()
    assert text.startswith(own + b"\n" + MARK)
    assert text.count(MARK) == 1
    assert read_properties(text) == {"a": "6", "b": "2", "c": "x\ny = 7"}
    assert [p.name for p in path.parent.iterdir()] == ["broker.conf"]
