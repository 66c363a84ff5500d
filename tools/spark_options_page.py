"""Write docs/reference/spark-options.md from the tables of options that the code checks against.

`python -m tools.spark_options_page` writes the page, `--check` says whether it is current.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.spark import option_table

if TYPE_CHECKING:
    from roquet.spark.option_table import Option

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "spark-options.md"
HEAD = """\
# Options of the Spark sources and the sink

Written by `python -m tools.spark_options_page` from the declarations in the source; do not edit.

Names are those of Spark's Kafka connector where the meaning is the same; case does not matter. An
unknown option is an error that lists near ones; types and ranges are checked before a task starts.
The [guide](../guide/spark.md) has examples.
"""
PARTS = (
    ('Source `format("roquet")`, batch and stream', option_table.SOURCE),
    ('Commit-log files, `format("roquet-log")`', option_table.LOG),
    ('Metadata, `format("roquet-meta")`', option_table.META),
    ('Sink `format("roquet")`, batch and stream', option_table.SINK),
)


def page() -> str:
    """Return the page as it should be."""
    lines = [HEAD]
    for title, table in PARTS:
        lines += [f"## {title}", "", "| option | default | values | meaning |", "|---|---|---|---|"]
        lines += [_row(option) for option in table]
        lines.append("")
    return "\n".join(lines)


def _row(option: Option) -> str:
    values = ", ".join(f"`{choice}`" for choice in option.choices)
    if option.flag:
        values = "`true`, `false`"
    elif option.number and option.high < 2**62:
        values = f"{option.low} to {option.high}"
    elif option.number:
        values = f"at least {option.low}"
    doc = option.doc.replace("|", "\\|")
    return f"| `{option.name}` | {option.default} | {values} | {doc} |"


def main(arguments: list[str]) -> int:
    """Write the page, or check it; return the exit code."""
    text = page()
    if "--check" in arguments:
        current = PAGE.exists() and PAGE.read_text() == text
        if not current:
            print(f"{PAGE.name} is not current: run python -m tools.spark_options_page")
        return 0 if current else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
