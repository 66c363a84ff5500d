"""The name server's settings, under the names of RocketMQ's property files (spec: namesrv)."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.acl.credentials import variables
from roquet.acl.files import AclConfig, accounts_path
from roquet.auth.config import AuthConfig
from roquet.auth.config import check as check_auth
from roquet.base.config import (
    Report,
    as_properties,
    change,
    changed_texts,
    env_name,
    load,
    read_property_file,
    setting,
)
from roquet.base.durable import replace_file
from roquet.base.errors import Refused, UsageError
from roquet.base.java_keys import JAVA_KEYS
from roquet.base.properties_file import read_properties, write_properties
from roquet.namesrv.checks import invalid
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import reply_to
from roquet.remoting.connections.limits import OutgoingConfig, WriteBufferConfig
from roquet.remoting.router import Route
from roquet.remoting.tls import TlsConfig, with_tls_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.protocol.command import Command
    from roquet.remoting.router import Request

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # noqa: S104  (what a Java property file without bindAddress means)
BODY_MAX = 64 * 1024
MARK = "# Changed while running; the lines below win over those above."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """What a name server may be told."""

    listen_port: int = setting("listenPort", 9876, "Port to listen on; 0: any.", low=0, high=65_535)
    bind_address: str | None = setting(
        "bindAddress", None, "Address to listen on; with a property file all, without it loopback."
    )
    kv_config_path: str = setting(
        "kvConfigPath", "~/namesrv/kvConfig.json", "File of the key-value configuration."
    )
    config_store_path: str = setting(
        "configStorePath", "~/namesrv/namesrv.properties", "File that live changes are written to."
    )
    config_black_list: str = setting(
        "configBlackList",
        "configBlackList;configStorePath;kvConfigPath;rocketmqHome",
        "Keys that no request may change.",
    )
    order_message_enable: bool = setting(
        "orderMessageEnable", False, "Show clients the order of order topics.", live=True
    )
    return_order_topics: bool = setting(
        "returnOrderTopicConfigToBroker", True, "Tell brokers the order topics.", live=True
    )
    support_acting_master: bool = setting(
        "supportActingMaster", False, "Show the smallest slave as a read-only master.", live=True
    )
    notify_min_broker_id: bool = setting(
        "notifyMinBrokerIdChanged",
        False,
        "Tell brokers with acting masters when the lowest id of their name changes.",
        live=True,
    )
    enable_all_topic_list: bool = setting(
        "enableAllTopicList", True, "Answer lists of all topics.", live=True
    )
    enable_topic_list: bool = setting(
        "enableTopicList", True, "Answer lists of a cluster's or unit's topics.", live=True
    )
    need_wait_for_service: bool = setting(
        "needWaitForService", False, "Answer no route until brokers had time to come.", live=True
    )
    wait_seconds_for_service: int = setting(
        "waitSecondsForService", 45, "That time.", unit="s", low=0, high=3_600, live=True
    )
    delete_topic_with_broker_registration: bool = setting(
        "deleteTopicWithBrokerRegistration",
        False,
        "A broker's registration drops other topics.",
        live=True,
    )
    scan_interval_ms: int = setting(
        "scanNotActiveBrokerInterval",
        10_000,
        "Time between looks for silent brokers.",
        unit="ms",
        low=10,
        high=3_600_000,
    )
    departed_keep_ms: int = setting(
        "departedBrokerKeepMs",
        86_400_000,
        "How long readers of whole topics are told of a broker that left; 0: not at all.",
        unit="ms",
        high=31_536_000_000,
        live=True,
    )
    unregister_queue_max: int = setting(
        "unRegisterBrokerQueueCapacity", 3_000, "Brokers that may wait to be forgotten.", low=1
    )
    client_request_concurrency: int = setting(
        "clientRequestThreadPoolNums", 8, "Route queries at once.", low=1, high=100_000
    )
    default_concurrency: int = setting(
        "defaultThreadPoolNums", 16, "Other requests at once.", low=1, high=100_000
    )
    client_request_queue_max: int = setting(
        "clientRequestThreadPoolQueueCapacity", 50_000, "Route queries that may wait.", low=1
    )
    default_queue_max: int = setting(
        "defaultThreadPoolQueueCapacity", 10_000, "Other requests that may wait.", low=1
    )
    idle_s: int = setting(
        "serverChannelMaxIdleTimeSeconds", 120, "A silent connection is closed.", unit="s", low=1
    )
    broker_port_min: int = setting(
        "brokerPortMin", 1_024, "Smallest port a broker may register.", low=1, high=65_535
    )

    metrics: str = setting(
        "metricsExporterType",
        "DISABLE",
        "PROM serves /metrics, /livez and /readyz over HTTP.",
        choices=("DISABLE", "PROM"),
    )
    metrics_port: int = setting(
        "metricsPromExporterPort", 5557, "Port of that HTTP server.", low=0, high=65_535
    )
    outgoing: OutgoingConfig = dataclasses.field(default_factory=OutgoingConfig)
    write_buffer: WriteBufferConfig = dataclasses.field(default_factory=WriteBufferConfig)
    tls: TlsConfig = dataclasses.field(default_factory=TlsConfig)
    acl: AclConfig = dataclasses.field(default_factory=AclConfig)
    auth: AuthConfig = dataclasses.field(default_factory=AuthConfig)
    file: Path | None = None
    """The property file that was read."""

    @property
    def host(self) -> str:
        """The address to listen on."""
        return self.bind_address or LOOPBACK


def load_config(
    file: Path | None, env: Mapping[str, str], flags: Mapping[str, str | int | bool | None]
) -> tuple[NamesrvConfig, Report]:
    """Read the settings; raise UsageError, one line, when something in them is wrong.

    With a property file Java's default holds: listen on all addresses, write changes to it.
    """
    given: dict[str, str] = {}
    if file is not None:
        try:
            given = read_property_file(file, NamesrvConfig)
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror or error}") from error
        given.setdefault("bindAddress", EVERYWHERE)
        given.setdefault("configStorePath", str(file))
    # A machine that runs both servers has the broker's variables in the environment as well.
    others = [env_name(key) for key in JAVA_KEYS]
    if "ROCKETMQ_HOME" in env:
        given.setdefault("rocketmqHome", env["ROCKETMQ_HOME"])
    given = with_tls_file(given, env, flags)
    config, report = load(NamesrvConfig, given, env, flags, other_env=[*others, *variables(env)])
    check_auth(config.auth, config.acl)
    config.write_buffer.check()
    if config.acl.enabled or config.auth.migrate:
        accounts_path(config.acl, file)
    return dataclasses.replace(config, file=file), report


class Settings:
    """The configuration in force: `now` is replaced whole when an operator changes a key."""

    def __init__(self, config: NamesrvConfig) -> None:
        """Start with `config`."""
        self.now = config
        self._changed: dict[str, str] = {}
        self._listeners: list[Callable[[NamesrvConfig], None]] = []

    def listen(self, listener: Callable[[NamesrvConfig], None]) -> None:
        """Have `listener` called with the configuration after each change."""
        self._listeners.append(listener)

    def routes(self) -> list[Route]:
        """Return the rows of the request table."""
        return [
            Route((RequestCode.UPDATE_NAMESRV_CONFIG,), self.update, "default"),
            Route((RequestCode.GET_NAMESRV_CONFIG,), self.get, "default"),
        ]

    def get(self, request: Request) -> Command:
        """Show every setting as a property file (319)."""
        return reply_to(request.command, body=write_properties(as_properties(self.now)))

    async def update(self, request: Request) -> Command:
        """Change settings that may be changed, all or none, and write them down (318)."""
        body = request.command.body
        if not body:
            return reply_to(request.command)
        if len(body) > BODY_MAX:
            raise invalid(f"{len(body)} bytes of settings are more than {BODY_MAX}")
        try:
            changes = read_properties(body)
        except UsageError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}") from error
        if not set(self.now.config_black_list.split(";")).isdisjoint(changes):
            raise Refused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            changed = change(self.now, changes)
        except UsageError as error:
            raise invalid(str(error)) from error
        given = self._changed | changed_texts(self.now, changed)
        try:
            await asyncio.to_thread(_write_changes, self.now.config_store_path, given)
        except OSError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"cannot write it down: {error}") from error
        self.now = changed
        self._changed = given
        for listener in self._listeners:
            listener(changed)
        log.info("settings changed by %s: %s", request.peer.address, ", ".join(sorted(changes)))
        return reply_to(request.command)


def _write_changes(file: str, changes: Mapping[str, str]) -> None:
    """Put the changes at the end of the file, where they win; what an operator wrote stays."""
    path = Path(file).expanduser()
    text = path.read_bytes() if path.exists() else b""
    before, _, _ = text.partition(MARK.encode())
    if before and not before.endswith(b"\n"):
        before += b"\n"
    earlier = read_properties(text[len(before) :]) if len(text) > len(before) else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, before + MARK.encode() + b"\n" + write_properties({**earlier, **changes}))
