"""Every command with its flags and help; what a command does is in a module of its own.

The parser is the standard library's: libraries that build one from type hints take longer to
import than most commands to run, and start-up is felt.
"""

from __future__ import annotations

import argparse
import errno
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from roquet.base.errors import (
    NotFound,
    OutcomeUnknown,
    Refused,
    RoquetError,
    Unreachable,
    UsageError,
)
from roquet.cli.commands import declared, tree
from roquet.cli.exits import (
    EXIT_INTERRUPTED,
    EXIT_NOT_FOUND,
    EXIT_REFUSED,
    EXIT_TIMEOUT,
    EXIT_USAGE,
)
from roquet.cli.flags import CODES
from roquet.cli.messages import flags as flags_messages
from roquet.cli.output import drop_output, error
from roquet.cli.pipeline import flags as flags_pipeline
from roquet.cli.servers import flags as flags_servers
from roquet.cli.upkeep import flags as flags_upkeep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Options = argparse.Namespace
    Command = Callable[[Options], int]

_MQADMIN = """\
Run an admin command of RocketMQ 5.5.0 by its own name, with its flags and columns:
roquet mqadmin topicRoute -n 127.0.0.1:9876 -t orders. Without a command it lists them."""
_COMPLETION = """\
Print a script for a shell:
  bash: eval "$(roquet completion bash)"
  zsh:  roquet completion zsh > ~/.zfunc/_roquet
  fish: roquet completion fish > ~/.config/fish/completions/roquet.fish"""
_COMMAND = "COMMAND"
_FEW = 8
"""Choices that a mistake lists; help shows more."""
_PORT_FLAG = "--listen-port"
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EBADF, errno.EIO)


def _port_hint(port: str) -> str:
    return f"-p prints every setting; a port is {_PORT_FLAG} {port[:80]}"


class _Help(argparse.RawDescriptionHelpFormatter):
    """Commands stand below their heading alone, in one column with what they do."""

    # typing.override came with Python 3.12.
    def _format_action(self, action: argparse.Action) -> str:  # type: ignore[explicit-override]
        if action.nargs != argparse.PARSER:
            return super()._format_action(action)
        # argparse measures the commands as if they were not indented below a line "COMMAND".
        self._dedent()
        lines = [self._format_action(it) for it in self._iter_indented_subactions(action)]
        self._indent()
        return self._join_parts(lines)


class _NoCommandError(UsageError):
    """The help of a command stands in place of what was to be done."""


class _Parser(argparse.ArgumentParser):
    """Help keeps the lines as they were written; a mistake ends in one line and a hint."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", _Help)
        super().__init__(allow_abbrev=False, **options)
        self._found = argparse.Namespace()

    # typing.override came with Python 3.12.
    def _check_value(self, action: argparse.Action, value: Any) -> None:  # type: ignore[explicit-override]
        """Name the choice that is closest to a mistyped one, or all while they are few."""
        is_command = action.nargs == argparse.PARSER
        if is_command:
            self._check_word(str(value))
        if action.choices is None or value in action.choices:
            return
        import difflib  # noqa: PLC0415  (only a mistake needs it)

        known = [str(it) for it in action.choices]
        near = difflib.get_close_matches(str(value)[:80], known, n=1)
        hint = ""
        if near:
            hint = f": did you mean {near[0]}?"
        elif len(known) <= _FEW:
            hint = f": it is one of {', '.join(known)}"
        text = f"there is no {'command ' * is_command}{str(value)[:80]!r}{hint}"
        raise argparse.ArgumentError(None if is_command else action, text)

    # typing.override came with Python 3.12.
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[explicit-override]
        """Take an optional word behind flags too; refuse what is left where its help is."""
        self._found = argparse.Namespace() if namespace is None else namespace
        found, left = super().parse_known_args(args, self._found)
        if left:
            left = self._taken_late(found, left)
            if left:
                self.error(self._unknown(left))
        return found, left

    def _check_word(self, word: str) -> None:
        """Refuse flags of a server before the word of a command, which argparse would drop."""
        if word.isdecimal() and _PORT_FLAG in self._option_string_actions:
            raise argparse.ArgumentError(None, _port_hint(word))
        for it in self._get_optional_actions():
            if getattr(self._found, it.dest, it.default) != it.default:
                flag = it.option_strings[0]
                text = (
                    f"{flag} before {word[:80]} is a flag of the server: put it behind {word[:80]}"
                )
                raise argparse.ArgumentError(None, text)

    def _taken_late(self, found: Any, left: list[str]) -> list[str]:
        """Give words that came behind flags to the arguments that argparse gave nothing before."""
        for action in self._get_positional_actions():
            is_open = action.nargs == "?" and getattr(found, action.dest) == action.default
            if left and is_open and not left[0].startswith("-"):
                setattr(found, action.dest, self._get_values(action, [left[0]]))
                left = left[1:]
        return left

    def _unknown(self, left: list[str]) -> str:
        import difflib  # noqa: PLC0415  (only a mistake needs it)

        text = f"unrecognized arguments: {' '.join(left)[:200]}"
        flags = [it for it in self._option_string_actions if it.startswith("--")]
        near = difflib.get_close_matches(left[0].partition("=")[0][:80], flags, n=1)
        return f"{text}: did you mean {near[0]}?" if near else text

    # typing.override came with Python 3.12.
    def error(self, message: str) -> NoReturn:  # type: ignore[explicit-override]
        """Raise UsageError instead of exiting; show what there is to whoever typed no command."""
        if message.endswith(f"required: {_COMMAND}"):
            self.print_help(sys.stderr)
            raise _NoCommandError
        _, glued, port = message.partition("argument -p: ignored explicit argument ")
        if glued and _PORT_FLAG in self._option_string_actions:
            message = _port_hint(port.strip("'="))
        raise UsageError(f"{message} (try: {self.prog} -h)")


class _Version(argparse.Action):
    """Prints the version and ends, as most programs do for this flag."""

    # typing.override came with Python 3.12.
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:  # type: ignore[explicit-override]
        _version(argparse.Namespace())
        parser.exit()


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """Build the parser of the whole command line, or one that knows `only` this word's flags."""
    whole = _Parser(
        prog="roquet",
        description="A message broker that speaks RocketMQ.",
        epilog="first steps: run 'roquet dev', then what it prints.\n" + CODES,
    )
    whole.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = whole.add_subparsers(title="commands", metavar=_COMMAND, required=True)
    servers = flags_servers.add(commands)
    flags_messages.add(commands)
    declared.add(commands, tree.NOUNS, tree.ROWS, servers, only)
    flags_upkeep.add(commands)
    flags_pipeline.add(commands)
    java = commands.add_parser(
        "mqadmin",
        help="RocketMQ's admin commands under their own names",
        description=_MQADMIN,
        add_help=False,
    )
    java.add_argument("-h", "--help", action="store_true", help="list them")
    java.add_argument("words", metavar="COMMAND", nargs=argparse.REMAINDER)
    java.set_defaults(run=_mqadmin)
    completion = commands.add_parser(
        "completion", help="print what a shell needs to complete commands", description=_COMPLETION
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    completion.set_defaults(run=_completion)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=_version)
    return whole


def run(arguments: Sequence[str]) -> int:
    """Run one command line; return the exit code. Errors are one line: what, and what helps."""
    if arguments[:1] == ["help"]:
        # As with git and cargo: the help of the command that stands behind it.
        arguments = [*arguments[1:], "-h"]
    try:
        options = parser(_first_word(arguments)).parse_args(list(arguments))
        code = int(options.run(options))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, say) has left: no error of ours.
        drop_output()
        return 0
    except RoquetError as failure:
        shown = isinstance(failure, _NoCommandError)
        return EXIT_USAGE if shown else _ended(str(failure), _code_of(failure))
    except (OSError, UnicodeEncodeError) as failure:
        return _ended(*_about(failure))
    except Exception as failure:
        if sys.flags.dev_mode:
            raise
        # A defect of ours: one line all the same, and how to see where.
        return _ended(
            f"{type(failure).__name__}: {failure} (python -X dev shows where)", EXIT_REFUSED
        )
    return code


def _first_word(arguments: Sequence[str]) -> str | None:
    """Return the command's first word; flags before it need the whole parser."""
    return arguments[0] if arguments and not arguments[0].startswith("-") else None


def _ended(text: str, code: int) -> int:
    """Say in one line why the command ends."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()
    error(text)
    return code


def _about(failure: OSError | UnicodeEncodeError) -> tuple[str, int]:
    """Return the line and the exit code of what the system, or a text, does not allow."""
    if isinstance(failure, UnicodeEncodeError):
        # Bytes of the command line that are no UTF-8 can be sent nowhere.
        return "an argument has bytes that are no UTF-8 text", EXIT_USAGE
    reason = failure.strerror or str(failure)
    if failure.filename is not None:
        reason = f"{failure.filename}: {reason}"
    elif failure.errno in _OUTPUT_ERRORS:
        reason = f"cannot write: {reason}"
    return reason, EXIT_REFUSED


def _code_of(failure: RoquetError) -> int:
    if isinstance(failure, NotFound):
        return EXIT_NOT_FOUND
    if isinstance(failure, UsageError):
        return EXIT_USAGE
    if isinstance(failure, (Unreachable, OutcomeUnknown)):
        return EXIT_TIMEOUT
    return (
        EXIT_NOT_FOUND
        if isinstance(failure, Refused) and failure.code in (17, 22)
        else EXIT_REFUSED
    )


def _mqadmin(options: Options) -> int:
    from roquet.cli.mqadmin.run import mqadmin  # noqa: PLC0415

    return mqadmin(["-h"] if options.help else options.words)


def _completion(options: Options) -> int:
    import shtab  # noqa: PLC0415  (only this command needs it)

    sys.stdout.write(shtab.complete(parser(), options.shell) + "\n")
    return 0


def _version(_: Options) -> int:
    from roquet.base.installed import release  # noqa: PLC0415
    from roquet.protocol.command import VERSION  # noqa: PLC0415
    from roquet.protocol.versions import describe  # noqa: PLC0415

    sys.stdout.write(f"roquet {release()}, speaks RocketMQ up to {describe(VERSION)}\n")
    return 0
