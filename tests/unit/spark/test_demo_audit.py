"""The audit finds every planted fault, and none where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from demo import audit, ledger
from demo.flights import FIELDS, NUMBERS, TEXTS, departure

if TYPE_CHECKING:
    from collections.abc import Callable

    Rows = list[dict[str, Any]]

pa: Any = pytest.importorskip("pyarrow")
pq: Any = pytest.importorskip("pyarrow.parquet")
ROOT = Path(__file__).parents[3]
QUEUES = 3
COUNT = 30


def flight(number: int) -> dict[str, int | str | None]:
    row: dict[str, int | str | None] = {"id": number}
    row |= dict.fromkeys(NUMBERS, number % 12 + 1)
    row |= dict.fromkeys(TEXTS, f"T{number % 4}")
    return row | {"year": 2013, "tailnum": None if number % 7 == 0 else f"N{number}"}


def rows_of(folder: Path) -> Rows:
    """Write the ledger of COUNT messages and return the rows that a right lake has."""
    rows: Rows = []
    with ledger.Ledger(folder / "ledger.csv") as out:
        for number in range(COUNT):
            made = departure(flight(number))
            queue, offset = number % QUEUES, number // QUEUES
            out.append("demo", queue, offset, made.body)
            fields = json.loads(made.body)
            rows.append(
                {
                    "brokerName": "demo",
                    "queueId": queue,
                    "queueOffset": offset,
                    "keys": made.key,
                    "tags": made.tag,
                    "body": made.body,
                    "date": f"2013-{fields['month']:02}-{fields['day']:02}",
                    **{name: fields[name] for name in FIELDS},
                }
            )
    return rows


def write_lake(folder: Path, rows: Rows) -> None:
    """Write each row as a file of its own below its month, the way Spark partitions them."""
    for number, row in enumerate(rows):
        path = folder / "lake" / f"departed={row['date'][:7]}" / "batch=0"
        path.mkdir(parents=True, exist_ok=True)
        kept = {name: [value] for name, value in row.items()}
        texts = {name: pa.string() for name in ("keys", "tags", "brokerName", "date", *TEXTS)}
        table = pa.table({name: pa.array(value, texts.get(name)) for name, value in kept.items()})
        pq.write_table(table, path / f"{number}.parquet")


def run(folder: Path, rows: Rows) -> tuple[int, str, dict[str, Any]]:
    """Run the audit as the demo does: a process that is given ledger and lake, nothing else."""
    write_lake(folder, rows)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "demo.audit", "--ledger", str(folder / "ledger.csv")),
            *("--lake", str(folder / "lake"), "--json", str(folder / "audit.json")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout, json.loads((folder / "audit.json").read_text())


def test_a_right_lake_passes(tmp_path: Path) -> None:
    code, words, report = run(tmp_path, rows_of(tmp_path))
    assert code == 0
    assert words == "sent 30 in lake 30 lost 0 duplicated 0\n"
    assert report["queues"] == {f"demo/{queue}": [10, 10] for queue in range(QUEUES)}


def lose(rows: Rows) -> None:
    del rows[11]


def duplicate(rows: Rows) -> None:
    rows.append(dict(rows[11]))


def change_body(rows: Rows) -> None:
    rows[11]["body"] = rows[11]["body"].replace(b'"id":11', b'"id":12')


def change_column(rows: Rows) -> None:
    rows[11]["dep_delay"] += 1


def change_key(rows: Rows) -> None:
    rows[11]["keys"] = "N0"


def forget_column(rows: Rows) -> None:
    rows[11]["arr_delay"] = None


def swap(rows: Rows) -> None:
    first, second = rows[11], rows[14]
    assert first["queueId"] == second["queueId"]
    first["queueOffset"], second["queueOffset"] = second["queueOffset"], first["queueOffset"]


def swap_bodies(rows: Rows) -> None:
    rows[11]["body"], rows[14]["body"] = rows[14]["body"], rows[11]["body"]


def invent(rows: Rows) -> None:
    rows.append({**rows[11], "queueOffset": 10})


def lose_and_invent(rows: Rows) -> None:
    rows[11]["queueOffset"] = 10


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lose, {"lost": 1}),
        (duplicate, {"duplicated": 1}),
        (change_body, {"changed": 1}),
        (change_column, {"changed": 1}),
        (change_key, {"changed": 1}),
        (forget_column, {"changed": 1}),
        (swap, {"changed": 2}),
        (swap_bodies, {"changed": 2}),
        (invent, {"unexpected": 1}),
        (lose_and_invent, {"lost": 1, "unexpected": 1}),
    ],
)
def test_a_planted_fault_is_found(
    tmp_path: Path, plant: Callable[[Rows], None], found: dict[str, int]
) -> None:
    rows = rows_of(tmp_path)
    plant(rows)
    code, words, report = run(tmp_path, rows)
    assert code == 1
    kinds = ("lost", "duplicated", "changed", "unexpected", "gaps", "acknowledged_twice")
    assert {kind: report[kind] for kind in kinds if report[kind]} == found
    assert report["examples"]
    assert words.count("\n") == 1 + len(report["examples"])


def test_acknowledgements_have_to_be_without_gap_and_repetition() -> None:
    entries = [ledger.Entry("demo", 0, offset, 1, 1) for offset in (0, 1, 3, 3)]
    report = audit.compare(entries, [])
    assert (report.gaps, report.acknowledged_twice, report.lost) == (1, 1, 3)
    assert not report.clean


def test_what_cannot_be_read_is_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ledger.csv").write_bytes(b"broker,queue,offset,crc,size\ndemo,0,0,1")
    (tmp_path / "lake").mkdir()
    arguments = ["--ledger", str(tmp_path / "ledger.csv"), "--lake", str(tmp_path / "lake")]
    assert audit.main(arguments) == 2
    assert "line 2 is broken" in capsys.readouterr().err


def test_an_empty_lake_has_lost_everything(tmp_path: Path) -> None:
    rows_of(tmp_path)
    report = audit.compare(ledger.read(tmp_path / "ledger.csv"), [])
    assert (report.lost, report.in_lake, report.clean) == (COUNT, 0, False)
