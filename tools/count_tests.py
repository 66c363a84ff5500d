"""Add up the test reports of a run; fail when none ran, one failed, or one was skipped."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

SECOND = "-second"
"""The end of a report's name when it holds the second try of another's failures."""


def outcomes(report: Path) -> dict[str, str]:
    """Return `passed`, `failed` or `skipped` by the name of each test."""
    found: dict[str, str] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            found[name] = "failed"
        elif found.get(name) != "failed":
            found[name] = "skipped" if case.find("skipped") is not None else "passed"
    return found


def with_second_try(report: Path) -> tuple[dict[str, str], list[str]]:
    """Return the outcomes of a stage, and which tests passed at their second try only."""
    found = outcomes(report)
    second = report.with_name(f"{report.stem}{SECOND}.xml")
    unstable: list[str] = []
    for name, outcome in (outcomes(second) if second.exists() else {}).items():
        if found.get(name) == "failed" and outcome == "passed":
            unstable.append(name)
            found[name] = outcome
    return found, unstable


def main(folder: Path) -> int:
    """Print how many passed, failed and were skipped in `folder`; return the exit code."""
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    named: list[str] = []
    for report in sorted(folder.glob("*.xml")):
        if report.stem.endswith(SECOND):
            continue
        found, unstable = with_second_try(report)
        named += (f"UNSTABLE, passed at the second try only: {name}" for name in unstable)
        named += (f"FAILED, {report.name}: {name}" for name in found if found[name] == "failed")
        for outcome in found.values():
            counts[outcome] += 1
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    print(*named, sep="\n", end="\n" if named else "")
    if sum(counts.values()) == 0:
        print("no test ran: that is a failure")
    if counts["skipped"]:
        print("a skipped test shows nothing: that is a failure")
    return int(sum(counts.values()) == 0 or counts["failed"] > 0 or counts["skipped"] > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
