"""Pages of the documentation: each can be reached, no link leads nowhere, blocks can be used."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from roquet.cli.app import parser

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples/README.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), EXAMPLES])
GUIDES = [ROOT / "README.md", EXAMPLES, *sorted(ROOT.glob("docs/guide/*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
ANCHOR = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def links(page: Path) -> list[Path]:
    found = LINK.findall(FENCE.sub("", page.read_text()))
    return [(page.parent / link).resolve() for link in found if "://" not in link]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_every_page_can_be_reached_by_links_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        waiting.extend(link for link in links(page) if link.suffix == ".md" and link.exists())
    assert [name(page) for page in PAGES if page not in seen] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert [str(link) for link in links(page) if not link.exists()] == []


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as they are made of their words."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        count, other = 0, anchor
        while other in found:
            count += 1
            other = f"{anchor}-{count}"
        found.add(other)
    return found


def lost_anchors(page: Path, text: str) -> list[str]:
    """Return the anchors that a page's text links to and that are no heading there."""
    lost: list[str] = []
    for link, anchor in ANCHOR.findall(FENCE.sub("", text)):
        target = (page.parent / link).resolve() if link else page
        if "://" in link or target.suffix != ".md":
            continue
        there = text if target == page else target.read_text()
        if anchor not in anchors(there):
            lost.append(f"{link}#{anchor}")
    return lost


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_anchors_that_a_page_links_to_are_headings(page: Path) -> None:
    assert lost_anchors(page, page.read_text()) == []


def test_an_anchor_that_is_no_heading_is_found() -> None:
    text = "# A page\n## Who may: do `x`?\n## Again\n## Again\n```\n# no heading\n```\n"
    assert anchors(text) == {"a-page", "who-may-do-x", "again", "again-1"}
    linked = "[a](#again-1) [b](#nowhere) [c](README.md#nowhere) [d](https://a.example/b#c)"
    found = lost_anchors(ROOT / "CHANGELOG.md", text + linked)
    assert found == ["#nowhere", "README.md#nowhere"]


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_python_blocks_of_a_guide_compile(page: Path) -> None:
    for number, (language, text) in enumerate(BLOCK.findall(page.read_text())):
        if language == "python":
            compile(text, f"{name(page)} block {number}", "exec")


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_commands_of_a_guide_are_commands_of_ours(page: Path) -> None:
    for language, text in BLOCK.findall(page.read_text()):
        if language:
            continue
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True) if "roquet" in line else []
            if words[:1] == ["roquet"] and "..." not in words and "|" not in words:
                parser().parse_args([word for word in words[1:] if word not in ("&", ">")])


RUN_BY = {
    "docs/guide/transactions.md": "tests/unit/cli/test_guides_at_work.py",
    "docs/guide/plugins.md": "tests/unit/cli/test_guides_at_work.py",
    "docs/guide/name-server.md": "tests/unit/cli/test_guides_at_work.py",
    "docs/guide/metrics.md": "tests/unit/cli/test_guides_at_work.py",
    "docs/guide/master-slave.md": "tests/unit/cli/test_guides_at_work.py",
    "docs/guide/configuration.md": "tests/unit/cli/test_guides_at_work.py",
    "docs/guide/command-line.md": "tests/unit/cli/test_guides_at_work.py",
    "README.md": "tests/unit/cli/test_reader_blocks.py",
    "examples/README.md": "tests/unit/examples/test_examples.py",
    "docs/guide/python-client.md": "tests/unit/cli/test_reader_blocks.py",
    "docs/guide/pop.md": "tests/unit/cli/test_reader_blocks.py",
    "docs/guide/first-steps.md": "tests/unit/cli/test_reader_blocks.py",
    "docs/guide/capacity.md": "tests/unit/cli/test_new_brokers.py",
    "docs/guide/backup.md": "tests/unit/cli/test_backup_guide.py",
    "docs/guide/console.md": "tests/unit/cli/test_console_command.py",
    "docs/guide/migration.md": "tests/interop/test_migration_guide.py",
    "docs/guide/pipeline.md": "tests/spark/test_spark_guide.py",
    "docs/guide/production.md": "tests/unit/deploy/test_units_served.py",
    "docs/guide/relay.md": "tests/unit/relay/test_relay_guide.py",
    "docs/guide/security.md": "tests/unit/cli/test_tls_guide.py",
    "docs/guide/spark.md": "tests/spark/test_spark_guide.py",
    "docs/guide/users-and-policies.md": "tests/interop/test_java_auth.py",
    "docs/guide/watching-consumers.md": "tests/nightly/test_spark_watch_guide.py",
}
"""Which test runs blocks of a guide; what it leaves out is read by the tests above."""


def test_blocks_of_each_guide_are_run() -> None:
    with_blocks = {
        name(page)
        for page in GUIDES
        if any(language in ("", "python") for language, _ in BLOCK.findall(page.read_text()))
    }
    assert with_blocks == RUN_BY.keys()
    for page, test in RUN_BY.items():
        assert Path(page).stem in (ROOT / test).read_text(), test
