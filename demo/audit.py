"""The audit: a process of its own that sees only the ledger and the lake.

Each acknowledged message has to be in the lake once, at its queue and offset, with its body (by
CRC), and the parsed columns of its row have to be those of its body. Exit code 0 when all is well,
1 when anything differs, 2 when ledger or lake cannot be read.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import sys
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo import lake, ledger
from demo.flights import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

EXAMPLES_MAX = 10


@dataclasses.dataclass(slots=True)
class Report:
    """What differs between ledger and lake. All counts but the first two have to be 0."""

    sent: int = 0
    in_lake: int = 0
    lost: int = 0
    """Acknowledged, and not in the lake."""
    duplicated: int = 0
    """Rows more than one for a queue and offset."""
    changed: int = 0
    """Rows whose body or columns are not what was sent to that offset; swapped rows are two."""
    unexpected: int = 0
    """Rows that nobody acknowledged."""
    gaps: int = 0
    """Offsets that the acknowledgements of a queue leave out."""
    acknowledged_twice: int = 0
    queues: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """Queue -> (acknowledged, rows in the lake)."""
    examples: list[str] = dataclasses.field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing differs."""
        wrong = self.lost + self.duplicated + self.changed + self.unexpected
        return wrong + self.gaps + self.acknowledged_twice == 0 and self.sent == self.in_lake

    def note(self, what: str, queue: tuple[str, int], offset: int) -> None:
        """Keep the first few differences for people."""
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"{what}: {queue[0]}/{queue[1]} offset {offset}")


Sent = dict[tuple[str, int], dict[int, tuple[int, int]]]
"""(broker, queue) -> offset -> (CRC, size)."""


def compare(entries: Iterable[ledger.Entry], rows: Iterable[dict[str, list[Any]]]) -> Report:
    """Compare acknowledgements with rows, given as columns."""
    report = Report()
    sent = _sent(entries, report)
    seen: dict[tuple[str, int], collections.Counter[int]] = collections.defaultdict(
        collections.Counter
    )
    for row in _rows(rows):
        queue, offset = (row["brokerName"], row["queueId"]), row["queueOffset"]
        report.in_lake += 1
        seen[queue][offset] += 1
        expected = sent.get(queue, {}).get(offset)
        if expected is None:
            report.unexpected += 1
            report.note("unexpected", queue, offset)
        elif not _same(row, expected):
            report.changed += 1
            report.note("changed", queue, offset)
        if seen[queue][offset] == 2:
            report.note("duplicated", queue, offset)
    for queue in sorted(sent.keys() | seen.keys()):
        _count(report, queue, sent.get(queue, {}), seen[queue])
    return report


def _sent(entries: Iterable[ledger.Entry], report: Report) -> Sent:
    sent: Sent = collections.defaultdict(dict)
    for entry in entries:
        report.sent += 1
        table = sent[entry.broker, entry.queue]
        if entry.offset in table:
            report.acknowledged_twice += 1
            report.note("acknowledged twice", (entry.broker, entry.queue), entry.offset)
        table[entry.offset] = (entry.crc, entry.size)
    return sent


def _count(
    report: Report,
    queue: tuple[str, int],
    sent: dict[int, tuple[int, int]],
    seen: collections.Counter[int],
) -> None:
    if sent:
        # The topic is new and ours alone: offsets begin at 0 and leave none out.
        report.gaps += max(sent) + 1 - len(sent)
    for offset in sent:
        if offset not in seen:
            report.lost += 1
            report.note("lost", queue, offset)
    report.duplicated += sum(count - 1 for count in seen.values())
    report.queues[f"{queue[0]}/{queue[1]}"] = (len(sent), seen.total())


def _same(row: dict[str, Any], expected: tuple[int, int]) -> bool:
    body = row["body"]
    if body is None or (zlib.crc32(body), len(body)) != expected:
        return False
    fields = json.loads(body)
    if any(row[name] != fields[name] for name in FIELDS):
        return False
    day = f"{fields['year']:04}-{fields['month']:02}-{fields['day']:02}"
    beside = (str(row["date"]), row["keys"], row["tags"])
    return beside == (day, fields["tailnum"], fields["carrier"])


def _rows(batches: Iterable[dict[str, list[Any]]]) -> Iterator[dict[str, Any]]:
    for columns in batches:
        names = list(columns)
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(names, values, strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print one line for people (or JSON), and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--json", type=Path, help="write the whole report here")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    try:
        report = compare(ledger.read(options.ledger), lake.read(options.lake))
    except (OSError, ValueError, KeyError, TypeError, ledger.LedgerError) as error:
        print(f"the audit cannot read what it is to compare: {error!r}", file=sys.stderr)
        return 2
    seconds = time.monotonic() - begin
    if options.json is not None:
        facts = {**dataclasses.asdict(report), "clean": report.clean, "seconds": seconds}
        options.json.write_text(json.dumps(facts))
    print(summary(report))
    for line in report.examples:
        print(f"  {line}")
    return 0 if report.clean else 1


def summary(report: Report) -> str:
    """Return the line that says it all."""
    text = (
        f"sent {report.sent:,} in lake {report.in_lake:,}"
        f" lost {report.lost} duplicated {report.duplicated}"
    )
    more = {
        "changed": report.changed,
        "unexpected": report.unexpected,
        "offsets left out": report.gaps,
        "acknowledged twice": report.acknowledged_twice,
    }
    return text + "".join(f" {name} {count}" for name, count in more.items() if count)


if __name__ == "__main__":
    sys.exit(main())
