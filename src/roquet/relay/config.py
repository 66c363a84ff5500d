"""The relay's settings: one flat TOML file, environment (`ROQUET_RELAY_...`) and flags."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from roquet.base.config import ENV_PREFIX, load, setting, settings
from roquet.base.durable import read_front
from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KIB = 1024
MIB = 1024 * KIB
PREFIX = ENV_PREFIX + "RELAY_"
_FILE_SIZE_MAX = 1 * MIB


def _check_url(value: str) -> str | None:
    rule = "must be an address like http://127.0.0.1:7072/servers"
    try:
        parts = urlsplit(value)
        good = parts.scheme == "http" and bool(parts.hostname) and (parts.port or 80) > 0
        # The address is shown in the log and on the page; the question has no such header anyway.
        good = good and parts.username is None and parts.password is None
    except ValueError:
        return rule
    return None if good and value.isprintable() and " " not in value else rule


def _check_secret(value: str | None) -> str | None:
    return None if value is None or len(value) >= 8 else "must have at least 8 characters"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RelayConfig:
    """What a relay may be told. Names ending in `_ms` are milliseconds, in `_bytes` bytes."""

    name: str = setting("name", "relay", "Name that inner servers are told.")
    bind_address: str = setting("bind_address", "127.0.0.1", "Address of both listeners.")
    http_port: int = setting("http_port", 7071, "Port of the HTTP side; 0: any.", low=0, high=65535)
    inbound: bool = setting("inbound", False, "Listen for servers that dial the relay.")
    inbound_port: int = setting(
        "inbound_port", 7070, "Port of that listener; 0: any.", low=0, high=65535
    )
    workers: int = setting(
        "workers", 4, "Worker services; a server belongs to id mod workers.", low=1, high=1024
    )

    config_url: str = setting(
        "config_url",
        "http://127.0.0.1:7072/servers",
        "Where the main configuration server answers.",
        check=_check_url,
    )
    config_copy: str = setting(
        "config_copy", "~/roquet-relay/servers.json", "File of the last good answer."
    )
    config_timeout_ms: int = setting(
        "config_timeout_ms", 5_000, "Longest wait for its answer.", unit="ms", low=10, high=600_000
    )
    servers_max: int = setting(
        "servers_max", 10_000, "Most inner servers of an answer.", low=1, high=1_000_000
    )

    tick_ms: int = setting("tick_ms", 50, "Period of the master.", unit="ms", low=1, high=10_000)
    load_config_ms: int = setting(
        "load_config_ms",
        10_000,
        "Time between questions to it.",
        unit="ms",
        low=10,
        high=86_400_000,
    )
    reconnect_ms: int = setting(
        "reconnect_ms",
        3_000,
        "Time before a lost server is dialled.",
        unit="ms",
        low=1,
        high=600_000,
    )
    connect_timeout_ms: int = setting(
        "connect_timeout_ms", 3_000, "Longest wait for a connect.", unit="ms", low=1, high=600_000
    )
    register_timeout_ms: int = setting(
        "register_timeout_ms", 5_000, "Longest wait for it.", unit="ms", low=1, high=600_000
    )
    heartbeat_ms: int = setting(
        "heartbeat_ms", 5_000, "Time between heartbeats.", unit="ms", low=1, high=600_000
    )
    heartbeat_timeout_ms: int = setting(
        "heartbeat_timeout_ms",
        15_000,
        "A link silent for so long has gone.",
        unit="ms",
        low=2,
        high=3_600_000,
    )

    request_timeout_ms: int = setting(
        "request_timeout_ms",
        5_000,
        "How long a request may take that does not say.",
        unit="ms",
        low=1,
        high=600_000,
    )
    frame_bytes: int = setting(
        "frame_bytes", MIB, "Longest frame.", unit="bytes", low=4 * KIB, high=16 * MIB
    )
    queue_bytes: int = setting(
        "queue_bytes",
        8 * MIB,
        "Packets that wait for one server; above it senders are told SYSTEM_BUSY.",
        unit="bytes",
        low=512 * KIB,  # twice what is read at a time, so that no single read fills it
        high=1024 * MIB,
    )
    notice_bytes: int = setting(
        "notice_bytes",
        4 * MIB,
        "Room for notices and refusals above that; a server that fills it is closed.",
        unit="bytes",
        low=KIB,
        high=1024 * MIB,
    )
    total_bytes: int = setting(
        "total_bytes", 512 * MIB, "Packets that wait for all servers.", unit="bytes", low=512 * KIB
    )
    pending_max: int = setting(
        "pending_max", 65_535, "Requests that one server may have to answer.", low=1, high=1 << 24
    )
    mailbox_max: int = setting(
        "mailbox_max", 65_536, "Messages that wait for one service.", low=16, high=1 << 24
    )

    secret: str | None = setting(
        "secret",
        None,
        "Shared secret that both ends of a link prove.",
        secret=True,
        check=_check_secret,
    )
    admin_token: str | None = setting(
        "admin_token",
        None,
        "Token of the HTTP calls that change things.",
        secret=True,
        check=_check_secret,
    )
    tls: bool = setting("tls", False, "Speak TLS on the links.")
    tls_ca_file: str | None = setting(
        "tls_ca_file", None, "Authorities that servers' certificates are checked by."
    )
    tls_cert_file: str | None = setting("tls_cert_file", None, "The relay's own certificate.")
    tls_key_file: str | None = setting("tls_key_file", None, "Its private key.")


def load_config(
    file: Path | None, env: Mapping[str, str], flags: Mapping[str, str | int | bool | None]
) -> RelayConfig:
    """Read the settings; raise UsageError, one line with key, value and rule."""
    given = {} if file is None else _read(file)
    known = [about.java for _, about, _ in settings(RelayConfig)]
    for key in given:
        if key not in known:
            raise UsageError(f"{key} ({file}): there is no such setting{_hint(key, known)}")
    ours = {
        ENV_PREFIX + name.removeprefix(PREFIX): value
        for name, value in env.items()
        if name.startswith(PREFIX)
    }
    config, report = load(RelayConfig, given, ours, flags)
    for name in report.unknown:
        shown = PREFIX + name.removeprefix(ENV_PREFIX)
        raise UsageError(f"{shown} (env): there is no such setting")
    _check_together(config)
    return config


def _check_together(config: RelayConfig) -> None:
    for larger, smaller, rule in (
        ("heartbeat_timeout_ms", "heartbeat_ms", "must be more than"),
        ("queue_bytes", "frame_bytes", "must be at least"),
        ("total_bytes", "queue_bytes", "must be at least"),
    ):
        high, low = getattr(config, larger), getattr(config, smaller)
        if high < low or (high == low and rule == "must be more than"):
            raise UsageError(f"{larger} = {high}: {rule} {smaller}, which is {low}")
    if config.inbound and config.tls and not (config.tls_cert_file and config.tls_key_file):
        raise UsageError("tls_cert_file has to be set: servers that dial the relay check it")
    if (config.tls_cert_file is None) != (config.tls_key_file is None):
        raise UsageError("tls_cert_file and tls_key_file have to be set together")


def _read(file: Path) -> dict[str, str]:
    try:
        data = read_front(file, _FILE_SIZE_MAX + 1)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    if len(data) > _FILE_SIZE_MAX:
        raise UsageError(f"{file}: more than {_FILE_SIZE_MAX} bytes")
    try:
        values = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: {error}") from error
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, bool):
            found[key] = "true" if value else "false"
        elif isinstance(value, (int, str)):
            found[key] = str(value)
        else:
            kind = type(value).__name__
            raise UsageError(
                f"{key} ({file}): must be a text, a number or true or false, no {kind}"
            )
    return found


def _hint(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, 1)
    return f"; did you mean {near[0]}?" if near else ""
