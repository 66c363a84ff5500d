"""Build the site of the documentation: `python -m tools.pages.documentation_site`, or `make site`.

The pages are those of the repository, in folders of the same names, so that their links stay as
they are. What differs between the two readers of Markdown is made alike on the way (`prepared`).
Navigation follows docs/README.md, the reference of the API the docstrings. Nothing of the site is
loaded from elsewhere. zensical makes it, in strict mode: a link or an anchor that leads nowhere
ends the build.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build/site"
"""Folder of the pages, the settings and, in `html`, the site."""
INDEX = ROOT / "docs/README.md"
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")
"""Pages outside of docs/."""
FILES = (
    "LICENSE",
    "deploy/grafana/roquet.json",
    "examples/*.py",
    "docs/notebooks/*",
    "docs/images/*",
)
"""What pages link to and show."""
TITLES = {
    "README.md": "Roquet",
    "ARCHITECTURE.md": "Architecture",
    "CONTRIBUTING.md": "Contributing",
    "CHANGELOG.md": "Changes",
    "examples/README.md": "Examples",
    "docs/README.md": "All pages",
}
API: dict[str, tuple[str, tuple[str, ...]]] = {
    "connect": ("Connecting", ("connect", "MQ", "Credentials", "TlsOptions")),
    "producers": (
        "Producers",
        ("Producer", "ProducerOptions", "Message", "SendReceipt", "SendStatus", "MessageQueue"),
    ),
    "consumers": (
        "Consumers",
        ("Consumer", "ConsumerOptions", "Received", "Sql", "StoredMessage", "PullConsumer"),
    ),
    "pop": ("Simple consumers", ("SimpleConsumer", "Popped")),
    "transactions": (
        "Transactions",
        ("TransactionProducer", "Transaction", "TransactionState"),
    ),
    "sequences": ("Appends in sequence", ("Sequences", "SequencedPart", "Appended", "Known")),
    "codecs": ("Codecs", ("Codec", "Json", "Msgspec", "Protobuf", "Avro")),
    "errors": (
        "Errors",
        ("RoquetError", "UsageError", "Refused", "Unreachable", "OutcomeUnknown", "DecodeFailed"),
    ),
}
"""File -> title and names of `roquet`."""
MODULES = {
    "admin": (
        "Administration",
        (
            "roquet.admin.Admin",
            "roquet.admin.Topics",
            "roquet.admin.Groups",
            "roquet.admin.Messages",
            "roquet.admin.Brokers",
            "roquet.admin.NameServers",
            "roquet.admin.Accounts",
        ),
    ),
    "testing": ("Testing", ("roquet.testing.broker.Broker", "roquet.testing.plugin")),
    "relay": (
        "The relay's inner servers",
        tuple(f"roquet.relay.client.{name}" for name in ("InnerServer", "ClientOptions", "Packet")),
    ),
}
"""File -> title and objects beside those names."""

GIVEN = frozenset(
    {
        "MQ",
        "Producer",
        "Consumer",
        "Received",
        "PullConsumer",
        "SimpleConsumer",
        "TransactionProducer",
        "Transaction",
        "Sequences",
        "Admin",
        "Topics",
        "Groups",
        "Messages",
        "Brokers",
        "NameServers",
        "Accounts",
    }
)
"""Classes that users are given: how they are made is nobody's business."""

_FENCE = re.compile(r"^ {0,3}(```|~~~)")
_ITEM = re.compile(r"^ {0,3}([-*] |\d+\. )")
_NESTED = re.compile(r"^( {2,3})([-*] |\d+\. )")
_ROW = re.compile(r"^\|")
_LINK = re.compile(r"^- \[([^\]]+)\]\(([^)#]+)\)")


def prepared(text: str) -> str:
    """Return a page as Python's reader of Markdown shows it as others do.

    It wants an empty line before a list or a table that follows a paragraph, and four blanks
    before what is nested. Code stays as it is.
    """
    lines: list[str] = []
    in_code = in_list = False
    for line in text.split("\n"):
        before = lines[-1] if lines else ""
        if _FENCE.match(line):
            in_code = not in_code
        elif not in_code:
            begins_list = bool(_ITEM.match(line)) and not in_list
            begins_table = bool(_ROW.match(line)) and not _ROW.match(before)
            if before and (begins_list or begins_table):
                lines.append("")
            if _ITEM.match(line):
                nested = in_list and _NESTED.match(line)
                lines.append("    " + line.lstrip() if nested else line)
                in_list = True
                continue
            # A list goes on with words that are indented; anything else ends it.
            in_list = in_list and line.startswith(" ")
        lines.append(line)
    return "\n".join(lines)


def stage(work: Path) -> list[str]:
    """Copy pages and what they show into a folder that is made anew; return their names."""
    shutil.rmtree(work, ignore_errors=True)
    pages = [*PAGES, *(str(it.relative_to(ROOT)) for it in sorted(ROOT.glob("docs/**/*.md")))]
    for name in pages:
        to = work / "pages" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(prepared((ROOT / name).read_text()))
    for pattern in FILES:
        for file in ROOT.glob(pattern):
            to = work / "pages" / file.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to)
    return pages + reference(work)


def reference(work: Path) -> list[str]:
    """Write the pages of the API; return their names."""
    folder = work / "pages/api"
    folder.mkdir(parents=True)
    found = {
        key: (title, tuple(f"roquet.client.{name}" for name in listed))
        for key, (title, listed) in API.items()
    } | MODULES
    for key, (title, listed) in found.items():
        blocks = "".join(_block(name) for name in listed)
        (folder / f"{key}.md").write_text(f"# {title}\n{blocks}")
    return [f"api/{key}.md" for key in found]


def _block(name: str) -> str:
    text = f"\n::: {name}\n"
    if name.rpartition(".")[2] in GIVEN:
        text += "    options:\n      merge_init_into_class: false\n"
    return text


def navigation(pages: list[str]) -> list[dict[str, Any]]:
    """Return the navigation, by the headings of docs/README.md. Raises ValueError for a lost page.

    A page that no heading lists could be found by search alone.
    """
    sections: dict[str, list[dict[str, str]]] = {}
    section = ""
    for line in INDEX.read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif found := _LINK.match(line):
            target = (INDEX.parent / found[2]).resolve().relative_to(ROOT)
            sections.setdefault(section, []).append({_plain(found[1]): str(target)})
    titles = {key: title for key, (title, _) in (API | MODULES).items()}
    api = [{titles[Path(name).stem]: name} for name in pages if name.startswith("api/")]
    nav: list[dict[str, Any]] = [{TITLES["README.md"]: "README.md"}]
    nav += [{title: listed} for title, listed in sections.items()]
    nav.insert([*sections].index("Reference") + 2, {"API": api})
    project = ("docs/README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
    nav.append({"Project": [{TITLES[name]: name} for name in project]})
    listed = re.findall(r"[\w./-]+\.md", str(nav))
    if lost := set(pages) - set(listed):
        raise ValueError(f"docs/README.md does not list {', '.join(sorted(lost))}")
    return nav


def _plain(text: str) -> str:
    return text.replace("`", "")


def settings(pages: list[str]) -> dict[str, Any]:
    """Return what zensical is told."""
    palettes = [
        {"scheme": scheme, "toggle": {"icon": f"lucide/{icon}", "name": f"to {other} colours"}}
        for scheme, icon, other in (("default", "sun", "dark"), ("slate", "moon", "light"))
    ]
    return {
        "site_name": "Roquet",
        "site_description": "A message broker that speaks RocketMQ",
        "docs_dir": "pages",
        "site_dir": "html",
        "use_directory_urls": False,
        "theme": {
            "font": False,
            "language": "en",
            "palette": palettes,
            "features": [
                "content.code.copy",
                "navigation.footer",
                "navigation.indexes",
                "navigation.sections",
                "navigation.top",
                "search.highlight",
                "toc.follow",
            ],
        },
        "markdown_extensions": [
            "attr_list",
            "md_in_html",
            "tables",
            {"toc": {"permalink": True, "slugify": _SLUGS}},
            {"pymdownx.highlight": {"pygments_lang_class": True}},
            "pymdownx.inlinehilite",
            "pymdownx.superfences",
        ],
        "plugins": [
            "search",
            {
                "mkdocstrings": {
                    "handlers": {"python": {"paths": [str(ROOT / "src")], "options": _DOCSTRINGS}}
                }
            },
        ],
        "validation": {"links": {"anchors": "warn", "not_found": "warn"}},
        "nav": navigation(pages),
    }


class _Slugs:
    """Anchors as others make them: each blank is a hyphen."""


_SLUGS = _Slugs()
_DOCSTRINGS = {
    "docstring_style": "google",
    "filters": ["!^_"],
    "heading_level": 2,
    "members_order": "source",
    "merge_init_into_class": True,
    "separate_signature": True,
    "show_root_full_path": False,
    "show_root_heading": True,
    "show_signature_annotations": True,
    "show_source": False,
    "signature_crossrefs": False,
}


def build(work: Path, found: dict[str, Any]) -> int:
    """Have zensical make the site of a folder with pages; return its exit code."""
    file = _write(work, found)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", str(file)]
    return subprocess.run(command, cwd=work, check=False).returncode


def _write(work: Path, found: dict[str, Any]) -> Path:
    class Dumper(yaml.SafeDumper):
        pass

    def slugs(dumper: yaml.SafeDumper, _: _Slugs) -> yaml.Node:
        name = "tag:yaml.org,2002:python/object/apply:pymdownx.slugs.slugify"
        return dumper.represent_mapping(name, {"kwds": {"case": "lower"}})

    Dumper.add_representer(_Slugs, slugs)
    file = work / "mkdocs.yml"
    file.write_text(yaml.dump(found, Dumper=Dumper, sort_keys=False, allow_unicode=True))
    return file


def main() -> int:
    """Build the site; return the exit code."""
    options = argparse.ArgumentParser()
    options.add_argument("--work", type=Path, default=WORK, help="folder to make it in")
    work = options.parse_args().work.resolve()
    pages = stage(work)
    code = build(work, settings(pages))
    if code == 0:
        sys.stdout.write(f"{len(pages)} pages: {work / 'html/index.html'}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
