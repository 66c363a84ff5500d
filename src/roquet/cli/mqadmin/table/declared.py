"""A command of RocketMQ's tool as it is declared, and how a declaration becomes a parser.

Flags are written `short:long`, with `!` for those that must be given, `-` for those that take no
value, `>` for those that name the topic whose route leads to the brokers, `=` for those whose wish
is done anyway, and `~` for those that are refused when they are given, since they would change what
is done: `t:topic! l:list- c:cluster>`. Every command also has `-n` and `-h`.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from typing import TYPE_CHECKING, Any, NoReturn

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MARKS = "!-~>="
INSTEAD = {
    "broker containers": "start each broker as a process: roquet broker -c FILE",
    "static topics": "ordinary ones are made by: roquet topic create",
    "metadata or queues in RocksDB": "its tables are JSON files: roquet store check STORE",
    "reader of RocksDB's files": "a broker writes its tables as JSON: mqadmin rocksDBConfigToJson",
    "the controller": "roles are shown and changed by: roquet ha",
    "compaction": "the latest message of a key is found by: roquet msg find TOPIC -k KEY",
    "cold data flow control": "who reads how far back is shown by: roquet group lag",
    "monitor that writes into log files": "try roquet top, or alerts: roquet console --alerts FILE",
}
"""What is lacking -> what to type."""
NAME_SERVERS = ("--namesrvAddr", "--nameserverAddr")
"""RocketMQ's commands for RocksDB use the second name."""
UNKNOWN = {"lastKey": "narrow the search by -b and -e"}
"""A flag that is refused, by its long name -> why, or what to type."""


@dataclasses.dataclass(frozen=True, slots=True)
class Java:
    """One of the 96 commands of mqadmin 5.5.0."""

    name: str
    about: str
    flags: str
    one_of: tuple[str, ...] = ()
    """Long names of flags of which exactly one is given."""
    and_one_of: tuple[str, ...] = ()
    """Others of which exactly one is given as well."""
    work: str = ""
    """`module:function` below `roquet.cli.mqadmin`; awaited with an `Admin` and the options."""
    lacks: str = ""
    """What the product would need to have for it; with `work` it is for RocketMQ's servers."""
    local: bool = False
    """Whether the work is on files alone: it gets the options and asks no server."""

    def function(self) -> Callable[..., Any]:
        """Import and return what does the work."""
        module, _, name = self.work.partition(":")
        found = importlib.import_module(f"roquet.cli.mqadmin.{module}")
        function: Callable[..., Any] = getattr(found, name)
        return function

    def demand_known(self, options: argparse.Namespace) -> None:
        """Raise UsageError for a given flag that has no effect here."""
        for declared in self.flags.split():
            name = declared.partition(":")[2].rstrip(MARKS)
            if "~" in declared and getattr(options, name) not in (None, False):
                raise UsageError(f"mqadmin {self.name}: --{name} is not here; {UNKNOWN[name]}")

    def route(self, options: argparse.Namespace) -> str | None:
        """Return the topic whose route leads to the brokers, where a flag names one."""
        for declared in self.flags.split():
            name = declared.partition(":")[2].rstrip(MARKS)
            if ">" in declared and getattr(options, name) is not None:
                return str(getattr(options, name)).strip()
        return None

    def refusal(self, said: str = "") -> str:
        """Return why there is no work, or none at a server that `said` so."""
        lacks = self.lacks.removeprefix("the ")
        before = f"{said}: " if said else ""
        return f"mqadmin {self.name}: {before}roquet has no {lacks}; {INSTEAD[self.lacks]}"


_ABOUT = {
    "~": "not here",
    ">": "topic whose route leads to the brokers; a cluster has one of its name",
    "=": "is done anyway",
}
ATTRIBUTES = "attributes"
"""The flag whose value may begin with a minus: `-name` takes an attribute away."""


class _Parser(argparse.ArgumentParser):
    # typing.override came with Python 3.12.
    def error(self, message: str) -> NoReturn:  # type: ignore[explicit-override]
        """Raise UsageError instead of exiting."""
        raise UsageError(f"{message} (try: {self.prog} -h)")


def parser_of(command: Java) -> argparse.ArgumentParser:
    """Build the parser of one command; values are texts, None for what is not given."""
    parser = _Parser(
        prog=f"roquet mqadmin {command.name}",
        description=f"{command.about}." + ("" if command.work else f"\n\n{command.refusal()}."),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-n", *NAME_SERVERS, dest="namesrv", help="name servers, by ';'")
    parser.set_defaults(context=None)
    # Help cannot show a group without flags.
    groups = [
        (names, parser.add_mutually_exclusive_group(required=True))
        for names in (command.one_of, command.and_one_of)
        if names
    ]
    flags = [it.partition(":") for it in command.flags.split()]
    # A letter that is declared twice is the later flag's, as in the library of RocketMQ's tool.
    last = {short: rest for short, _, rest in flags}
    for declared, _, rest in flags:
        short = declared if last[declared] == rest else ""
        name = rest.rstrip(MARKS)
        words = [f"-{short}", f"--{name}"] if short else [f"--{name}"]
        to = next((group for names, group in groups if name in names), parser)
        marks = rest.removeprefix(name)
        about = next((text for mark, text in _ABOUT.items() if mark in marks), None)
        if "-" in marks:
            to.add_argument(*words, dest=name, action="store_true", help=about)
        else:
            to.add_argument(*words, dest=name, required="!" in marks, help=about)
    return parser


def with_changes(command: Java, words: Sequence[str]) -> list[str]:
    """Return the words of a command with changes of attributes tied to their flag.

    argparse takes `-name` for a flag, RocketMQ's tool does not unless it has one of that name.
    """
    declared = (it.partition(":") for it in command.flags.split())
    flags = {
        flag
        for short, _, rest in declared
        if rest.rstrip(MARKS) == ATTRIBUTES
        for flag in (f"-{short}", f"--{ATTRIBUTES}")
    }
    found: list[str] = []
    for word in words:
        removes = len(word) > len("-x") and word[0] == "-" and word[1] != "-"
        if removes and found and found[-1] in flags:
            found[-1] = f"--{ATTRIBUTES}={word}"
        else:
            found.append(word)
    return found
