"""Flags of the servers, and of `roquet dev`."""

from __future__ import annotations

import argparse
import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roquet.base.errors import UsageError
from roquet.cli.commands import tree
from roquet.cli.flags import client_flags, count, settings_of

if TYPE_CHECKING:
    from roquet.cli.servers.proxy import ProxyFlags

Options = argparse.Namespace

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
_CONSOLE_ABOUT = """\
Run the web console of a cluster, Roquet's or RocketMQ's: topics, groups,
messages, dead letters, brokers.

It prints an address that signs in once, as administrator; after each use a new
one. --users names a file of accounts with passwords for everybody else."""
_PROXY_ABOUT = """\
Run a proxy: clients of 5.x, which speak gRPC, reach every broker of a cluster by it,
Roquet's or RocketMQ's. It keeps nothing on disk; several may run side by side.
With --remoting-port clients of RocketMQ's own protocol reach them by it, too.

It listens on loopback unless --bind names another address, and checks no accounts
itself: over remoting the brokers check them."""
_SERVER_CODES = """\
exit codes: 0 stopped in good order, 253 cannot initialize (an address is taken,
say), 254 the configuration is wrong, 255 unexpected"""


def add(commands: Any) -> dict[str, argparse.ArgumentParser]:
    """Add the servers; return the parsers of those with commands below them."""
    namesrv = commands.add_parser(
        "namesrv", help=tree.NOUNS["namesrv"], description=_NAMESRV_ABOUT, epilog=_SERVER_CODES
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
    _proxy_flags(broker)
    broker.set_defaults(run=_run_broker)
    _proxy(commands)
    _relay(commands)
    _console(commands)
    _dev(commands)
    return {"broker": broker, "namesrv": namesrv}


def _dev(commands: Any) -> None:
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
    dev.add_argument(
        "--console-port",
        type=_port,
        metavar="PORT",
        help="port of the web console (8082, or another when that is taken)",
    )
    dev.add_argument("--no-console", action="store_true", help="run no web console")
    dev.add_argument(
        "-s",
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set one property of the broker",
    )
    _proxy_flags(dev)
    _log_flags(dev, "WARNING")
    dev.set_defaults(run=_run_dev)


def _proxy(commands: Any) -> None:
    proxy = commands.add_parser(
        "proxy",
        help="run a proxy for clients of 5.x before a cluster",
        description=_PROXY_ABOUT,
        epilog=_SERVER_CODES,
    )
    proxy.add_argument(
        "-n", "--namesrv-addr", metavar="HOST:PORT", help="name servers, separated by ';'"
    )
    proxy.add_argument(
        "-pc",
        "--proxy-config",
        type=Path,
        metavar="FILE",
        help="settings like Java's rmq-proxy.json",
    )
    proxy.add_argument(
        "-pm", "--proxy-mode", metavar="MODE", help="cluster; local mode is roquet broker --proxy"
    )
    proxy.add_argument(
        "--bind", type=_address, default="127.0.0.1", help="address to listen on (%(default)s)"
    )
    proxy.add_argument(
        "--grpc-port", type=_port, metavar="PORT", help="port of gRPC (8081); 0: any"
    )
    proxy.add_argument(
        "--remoting-port",
        type=_port,
        metavar="PORT",
        help="port of remoting clients (RocketMQ's is 8080); none without it",
    )
    proxy.add_argument(
        "--health-port",
        type=_port,
        metavar="PORT",
        help="serve /livez, /readyz and /metrics there, to whoever reaches it; 0: any",
    )
    _log_flags(proxy, "INFO")
    proxy.set_defaults(run=_run_proxy)


def _console(commands: Any) -> None:
    console = commands.add_parser(
        "console",
        help="run the web console of a cluster",
        description=_CONSOLE_ABOUT,
        epilog=_SERVER_CODES,
    )
    client_flags(console, as_json=False)
    console.add_argument(
        "--bind", type=_address, default="127.0.0.1", help="address to listen on (%(default)s)"
    )
    console.add_argument("--port", type=_port, default=8_082, help="(%(default)s)")
    console.add_argument(
        "--root-path", default="", metavar="/PATH", help="path below which a proxy serves it"
    )
    console.add_argument(
        "--proxy", type=_address, metavar="ADDRESS", help="believe this proxy's X-Forwarded-*"
    )
    console.add_argument(
        "--host", action="append", default=[], metavar="NAME", help="serve it under this name, too"
    )
    console.add_argument(
        "--cluster-proxy",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="show this proxy, by its --health-port; may be given several times",
    )
    console.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain (PEM)")
    console.add_argument("--tls-key", type=Path, metavar="FILE", help="its key (PEM)")
    console.add_argument("--users", type=Path, metavar="FILE", help="accounts with passwords")
    console.add_argument(
        "--login",
        type=Path,
        metavar="FILE",
        help="sign in by OpenID Connect, a proxy's header or accounts of the cluster (TOML)",
    )
    console.add_argument(
        "--role",
        choices=("viewer", "operator", "administrator"),
        default="administrator",
        help="of the token that is printed (%(default)s)",
    )
    console.add_argument("--read-only", action="store_true", help="refuse every change")
    console.add_argument(
        "--hide-bodies", action="store_true", help="show bodies and properties to nobody"
    )
    console.add_argument(
        "--audit-log", type=Path, metavar="FILE", help="append each action here, as JSON"
    )
    console.add_argument(
        "--alerts", type=Path, metavar="FILE", help="rules and webhook of alerts (TOML)"
    )
    console.add_argument(
        "--alerts-state", type=Path, metavar="FILE", help="keep alerts here over a restart"
    )
    console.add_argument(
        "--cluster",
        action="append",
        default=[],
        metavar="CONTEXT",
        help="show this one as well (roquet context ls); may be given several times",
    )
    console.add_argument(
        "--hash-password", action="store_true", help="read a password, print its hash, and exit"
    )
    _log_flags(console, "WARNING")
    console.set_defaults(run=_run_console)


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


def _proxy_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--proxy", action="store_true", help="serve clients of 5.x over gRPC as well"
    )
    parser.add_argument(
        "--grpc-port", type=_port, metavar="PORT", help="port of gRPC (8081); 0: any"
    )
    parser.add_argument(
        "--proxy-config", type=Path, metavar="FILE", help="settings like Java's rmq-proxy.json"
    )


def _proxy_of(options: Options) -> ProxyFlags | None:
    if options.proxy:
        from roquet.cli.servers.proxy import ProxyFlags  # noqa: PLC0415

        return ProxyFlags(options.proxy_config, options.grpc_port)
    if options.grpc_port is not None or options.proxy_config is not None:
        raise UsageError("--grpc-port and --proxy-config are about --proxy, which is not given")
    return None


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
    from roquet.cli.servers.serve import given, namesrv  # noqa: PLC0415

    return namesrv(given(options))


def _run_relay(options: Options) -> int:
    from roquet.cli.servers.relay import relay  # noqa: PLC0415

    return relay(options)


def _run_proxy(options: Options) -> int:
    from roquet.cli.servers.cluster_proxy import proxy  # noqa: PLC0415

    return proxy(options)


def _run_console(options: Options) -> int:
    from roquet.cli.servers.console import console  # noqa: PLC0415

    return console(options)


def _run_broker(options: Options) -> int:
    from roquet.cli.servers.serve import broker, given  # noqa: PLC0415

    flags = {"namesrv-addr": options.namesrv_addr}
    return broker(given(options, flags), options.explain, _proxy_of(options))


def _run_dev(options: Options) -> int:
    from roquet.cli.servers.dev import Plan, run_dev  # noqa: PLC0415

    return run_dev(
        Plan(
            options.data,
            options.port,
            options.namesrv_port,
            options.bind,
            options.advertise,
            options.health_port,
            proxy=_proxy_of(options),
            console_port=options.console_port,
            has_console=not options.no_console,
            settings=settings_of(options.set),
        ),
        options.log_level,
        options.log_style,
    )
