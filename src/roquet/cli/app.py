"""Every command with its flags and help; what a command does is in a module of its own.

The parser is the standard library's: libraries that build one from type hints take longer to
import than most commands to run, and start-up is felt.
"""

from __future__ import annotations

import argparse
import errno
import ipaddress
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable, UsageError
from roquet.cli import flags_pipeline, flags_upkeep
from roquet.cli.commands import declared, tree
from roquet.cli.flags import CODES, client_flags, count
from roquet.cli.output import drop_output, error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Options = argparse.Namespace
    Command = Callable[[Options], int]

EXIT_USAGE = 2
EXIT_TIMEOUT = 3
EXIT_NOT_FOUND = 5
EXIT_INTERRUPTED = 130
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EBADF, errno.EIO)

_NAMESRV_ABOUT = """\
Run a name server: it tells clients which broker serves which topic.

Without -c it listens on loopback only; with a property file, on all addresses
as Java does."""
_BROKER_ABOUT = """\
Run a broker: it stores messages and gives them to consumers.

Without -c it listens on loopback only; with a property file, on all addresses
as Java does. Every property of the file can be set by -s and by an environment
variable as well: listenPort is ROQUET_LISTEN_PORT."""
_RELAY_ABOUT = """\
Run a relay: it connects to the inner servers that a configuration server lists
and carries their packets to one another.

FILE is flat TOML; each setting is also an environment variable:
reconnect_ms is ROQUET_RELAY_RECONNECT_MS."""
_SERVER_CODES = """\
exit codes: 0 stopped in good order, 253 cannot initialize (an address is taken,
say), 254 the configuration is wrong, 255 unexpected"""


class _Parser(argparse.ArgumentParser):
    """Help keeps the lines as they were written; a mistake ends in one line and a hint."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    # typing.override came with Python 3.12.
    def error(self, message: str) -> NoReturn:  # type: ignore[explicit-override]
        """Raise UsageError instead of exiting."""
        raise UsageError(f"{message} (try: {self.prog} -h)")


class _Version(argparse.Action):
    """Prints the version and ends, as most programs do for this flag."""

    # typing.override came with Python 3.12.
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:  # type: ignore[explicit-override]
        _version(argparse.Namespace())
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command line."""
    whole = _Parser(
        prog="roquet",
        description="A message broker that speaks RocketMQ.",
        epilog="first steps: run 'roquet dev', then what it prints.\n" + CODES,
    )
    whole.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = whole.add_subparsers(title="commands", metavar="COMMAND", required=True)
    broker = _servers(commands)
    _messages(commands)
    declared.add(commands, tree.NOUNS, tree.ROWS, {"broker": broker})
    flags_upkeep.add(commands)
    flags_pipeline.add(commands)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=_version)
    return whole


def run(arguments: Sequence[str]) -> int:
    """Run one command line; return the exit code. Errors are one line: what, and what helps."""
    try:
        options = parser().parse_args(list(arguments))
        code = int(options.run(options))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, say) has left: no error of ours.
        drop_output()
        return 0
    except RoquetError as failure:
        return _ended(str(failure), _code_of(failure))
    except OSError as failure:
        return _ended(_about(failure), 1)
    except Exception as failure:
        if sys.flags.dev_mode:
            raise
        # A defect of ours: one line all the same, and how to see where.
        return _ended(f"{type(failure).__name__}: {failure} (python -X dev shows where)", 1)
    return code


def _ended(text: str, code: int) -> int:
    """Say in one line why the command ends."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()
    error(text)
    return code


def _about(failure: OSError) -> str:
    reason = failure.strerror or str(failure)
    if failure.filename is None:
        return f"cannot write: {reason}" if failure.errno in _OUTPUT_ERRORS else reason
    return f"{failure.filename}: {reason}"


def _code_of(failure: RoquetError) -> int:
    if isinstance(failure, UsageError):
        return EXIT_USAGE
    if isinstance(failure, (Unreachable, OutcomeUnknown)):
        return EXIT_TIMEOUT
    return EXIT_NOT_FOUND if isinstance(failure, Refused) and failure.code in (17, 22) else 1


# --- servers -----------------------------------------------------------------------------------


def _servers(commands: Any) -> argparse.ArgumentParser:
    namesrv = commands.add_parser(
        "namesrv", help="run a name server", description=_NAMESRV_ABOUT, epilog=_SERVER_CODES
    )
    _server_flags(namesrv)
    namesrv.add_argument("-n", dest="ignored", help="accepted as Java does; it needs none")
    namesrv.set_defaults(run=_run_namesrv)
    broker: argparse.ArgumentParser = commands.add_parser(
        "broker", help=tree.NOUNS["broker"], description=_BROKER_ABOUT, epilog=_SERVER_CODES
    )
    _server_flags(broker)
    broker.add_argument(
        "-n", "--namesrv-addr", metavar="HOST:PORT", help="name servers, separated by ';'"
    )
    broker.add_argument(
        "-m",
        dest="show",
        action="store_const",
        const="important",
        help="print the settings that are often changed, and exit",
    )
    broker.add_argument(
        "--explain",
        dest="explain",
        nargs="?",
        const="all",
        choices=("all", "parts", "routes"),
        help="print parts with their timers, the table of request codes, or both, and exit",
    )
    broker.set_defaults(run=_run_broker)
    _relay(commands)
    dev = commands.add_parser(
        "dev",
        help="run a name server and a broker in one process, for development",
        description="Run a name server and a broker in one process, on loopback.",
        epilog="Messages are kept in memory unless --data names a folder.",
    )
    dev.add_argument("--data", type=Path, metavar="DIR", help="keep messages here")
    dev.add_argument("--port", type=_port, default=10_911, help="port of the broker (%(default)s)")
    dev.add_argument(
        "--namesrv-port", type=_port, default=9_876, help="port of the name server (%(default)s)"
    )
    dev.add_argument(
        "--bind", type=_address, default="127.0.0.1", help="address to listen on (%(default)s)"
    )
    dev.add_argument(
        "--advertise",
        type=_address,
        metavar="ADDRESS",
        help="address that clients are told, behind a port mapping",
    )
    dev.add_argument(
        "--health-port", type=_port, help="serve /livez, /readyz and /metrics here (not served)"
    )
    _log_flags(dev, "WARNING")
    dev.set_defaults(run=_run_dev)
    return broker


def _relay(commands: Any) -> None:
    relay = commands.add_parser(
        "relay", help="run a relay", description=_RELAY_ABOUT, epilog=_SERVER_CODES
    )
    relay.add_argument("-c", "--config", type=Path, metavar="FILE", help="a TOML file")
    relay.add_argument(
        "-s",
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set one setting; wins over environment and file",
    )
    relay.add_argument(
        "--explain",
        action="store_true",
        help="print parts, ticks, periods and registries, and exit",
    )
    relay.add_argument(
        "--demo",
        action="store_true",
        help="run a configuration server and three inner servers with it, and say what happens",
    )
    _log_flags(relay, "INFO")
    relay.set_defaults(run=_run_relay)


def _server_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="a RocketMQ property file"
    )
    parser.add_argument(
        "-s",
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set one property; wins over environment and file",
    )
    parser.add_argument(
        "-p",
        dest="show",
        action="store_const",
        const="all",
        help="print every setting, and exit",
    )
    parser.add_argument("--listen-port", metavar="PORT", help="port to listen on; 0: any")
    parser.add_argument("--bind-address", metavar="ADDRESS", help="address to listen on")
    _log_flags(parser, "INFO")
    parser.add_argument(
        "--log-file", type=Path, metavar="FILE", help="log here instead of to standard error"
    )
    parser.add_argument(
        "--log-file-mb",
        type=count,
        default=64,
        metavar="N",
        help="begin a new file at so many MiB (%(default)s)",
    )
    parser.add_argument(
        "--log-files",
        type=count,
        default=10,
        metavar="N",
        help="keep so many old ones (%(default)s)",
    )


def _log_flags(parser: argparse.ArgumentParser, level: str) -> None:
    parser.add_argument(
        "--log-level",
        default=level,
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        help="what to log (%(default)s)",
    )
    parser.add_argument(
        "--log-style",
        default="text",
        choices=("text", "json"),
        help="lines of text, or of JSON (%(default)s)",
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65_535):
        raise argparse.ArgumentTypeError(f"{text!r} is no port within 0..65535")
    return int(text)


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no IP address") from None


def _run_namesrv(options: Options) -> int:
    from roquet.cli.servers import given, namesrv  # noqa: PLC0415

    return namesrv(given(options))


def _run_relay(options: Options) -> int:
    from roquet.cli.relay import relay  # noqa: PLC0415

    return relay(options)


def _run_broker(options: Options) -> int:
    from roquet.cli.servers import broker, given  # noqa: PLC0415

    flags = {"namesrv-addr": options.namesrv_addr}
    return broker(given(options, flags), options.explain)


def _run_dev(options: Options) -> int:
    from roquet.cli.dev import Plan, run_dev  # noqa: PLC0415

    return run_dev(
        Plan(
            options.data,
            options.port,
            options.namesrv_port,
            options.bind,
            options.advertise,
            options.health_port,
        ),
        options.log_level,
        options.log_style,
    )


# --- messages ----------------------------------------------------------------------------------


def _messages(commands: Any) -> None:
    pub = commands.add_parser(
        "pub",
        help="send messages",
        description="Send messages; print id, queue and offset of each.",
        epilog=CODES,
    )
    pub.add_argument("topic", metavar="TOPIC")
    pub.add_argument(
        "body", metavar="BODY", nargs="?", help="text; without it each line of input is a message"
    )
    pub.add_argument(
        "-f", "--file", metavar="FILE", help="send this whole file as one message; -: the input"
    )
    pub.add_argument(
        "--lines", action="store_true", help="each line of --file is a message, as of the input"
    )
    pub.add_argument(
        "--delimiter", metavar="TEXT", help=r"what separates messages instead of \n: ',' or '\0'"
    )
    pub.add_argument(
        "-c", "--count", type=count, default=1, help="send so often; {{count}} is replaced"
    )
    pub.add_argument("-t", "--tag", help="tag that consumers filter by")
    pub.add_argument("-k", "--key", action="append", default=[], help="key to find it by")
    pub.add_argument(
        "-p",
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="property that consumers filter by",
    )
    client_flags(pub)
    pub.set_defaults(run=_run_pub)
    sub = commands.add_parser(
        "sub",
        help="consume as a member of a group",
        description="Consume as a member of a group: each message goes to one member.",
        epilog="Ctrl-C ends; what was printed is marked as consumed.\n" + CODES,
    )
    sub.add_argument("topic", metavar="TOPIC")
    sub.add_argument("-g", "--group", default="roquet_cli", help="the group (%(default)s)")
    sub.add_argument("-t", "--tags", default="*", help="tag expression: 'a || b' (%(default)s)")
    sub.add_argument("--sql", metavar="EXPRESSION", help="SQL92 filter: 'a > 5' (no --tags)")
    sub.add_argument("-c", "--count", type=count, help="end after so many")
    client_flags(sub)
    sub.set_defaults(run=_run_sub)
    cat = commands.add_parser(
        "cat",
        help="read a topic without a group",
        description="Read a topic without a group: nothing is marked as consumed.",
        epilog=CODES,
    )
    cat.add_argument("topic", metavar="TOPIC")
    cat.add_argument(
        "-o",
        "--offset",
        default="earliest",
        help="begin at earliest, latest, a queue offset, or -N: the topic's last N (%(default)s)",
    )
    cat.add_argument("-e", "--end", action="store_true", help="end when all is read")
    client_flags(cat)
    cat.set_defaults(run=_run_cat)


def _run_pub(options: Options) -> int:
    from roquet.cli.messages import publish  # noqa: PLC0415

    return publish(options)


def _run_sub(options: Options) -> int:
    from roquet.cli.messages import subscribe  # noqa: PLC0415

    return subscribe(options)


def _run_cat(options: Options) -> int:
    from roquet.cli.messages import cat  # noqa: PLC0415

    return cat(options)


def _version(_: Options) -> int:
    from roquet.base.installed import release  # noqa: PLC0415
    from roquet.protocol.command import VERSION  # noqa: PLC0415
    from roquet.protocol.versions import describe  # noqa: PLC0415

    sys.stdout.write(f"roquet {release()}, speaks RocketMQ up to {describe(VERSION)}\n")
    return 0
