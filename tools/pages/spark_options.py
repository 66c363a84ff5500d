"""Write the pages of Spark options from the tables of options that the code checks against.

docs/reference/spark-options.md has sources and sink, docs/reference/job-options.md the jobs.
`python -m tools.pages.spark_options` writes both, `--check` says whether they are current.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.spark import option_table
from roquet.spark.jobs.options.tables import JOBS

if TYPE_CHECKING:
    from roquet.spark.option_table import Option, Table

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
WRITTEN = """\
Written by `python -m tools.pages.spark_options` from the declarations in the source; do not edit.
"""
HEAD = f"""\
# Options of the Spark sources and the sink

{WRITTEN}
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
JOBS_HEAD = f"""\
# Options of the jobs

{WRITTEN}
`roquet pipeline run JOB --NAME VALUE`; case and dashes in names do not matter, an option that is
`true` or `false` needs no value. An unknown option is an error that lists near ones; all options
are checked before Spark starts. Exit code 2 is wrong usage. The guides have examples:
[jobs over messages](../guide/pipeline.md), [watching consumers](../guide/watching-consumers.md).
"""


def pages() -> dict[Path, str]:
    """Return the pages as they should be."""
    sources = [HEAD]
    for title, options in PARTS:
        sources += [f"## {title}", "", *_table(options), ""]
    jobs = [JOBS_HEAD]
    for it in JOBS:
        about = f"{it.doc[0].upper()}{it.doc[1:]}. Exit codes: {it.codes}."
        jobs += [f"## {it.name}", "", about, "", *_table(it.options), ""]
    found = {"spark-options.md": sources, "job-options.md": jobs}
    return {FOLDER / name: "\n".join(lines) for name, lines in found.items()}


def _table(options: Table) -> list[str]:
    head = ["| option | default | values | meaning |", "|---|---|---|---|"]
    return head + [_row(option) for option in options]


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
    """Write the pages, or check them; return the exit code."""
    code = 0
    for page, text in pages().items():
        if "--check" not in arguments:
            page.write_text(text)
        elif not page.exists() or page.read_text() != text:
            print(f"{page.name} is not current: run python -m tools.pages.spark_options")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
