"""Add up the test reports of a run; fail when none ran, one failed, or one was skipped."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def main(folder: Path) -> int:
    """Print `N passed, N failed, N skipped` for the reports in `folder`; return the exit code."""
    tests = failed = skipped = 0
    for report in sorted(folder.glob("*.xml")):
        for suite in ET.parse(report).getroot().iter("testsuite"):
            tests += int(suite.get("tests", 0))
            failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped += int(suite.get("skipped", 0))
    print(f"{tests - failed - skipped} passed, {failed} failed, {skipped} skipped")
    if tests == 0:
        print("no test ran: that is a failure")
    if skipped:
        print("a skipped test shows nothing: that is a failure")
    return int(tests == 0 or failed > 0 or skipped > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
