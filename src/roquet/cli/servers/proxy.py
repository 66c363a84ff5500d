"""gRPC beside a broker of the same process: its settings, and its start behind the broker's."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from typing import TYPE_CHECKING, cast

from roquet.base.config import load
from roquet.base.errors import UsageError
from roquet.protocol.hosts import join_address
from roquet.proxy.rules.accounts import SWITCHES, check_local
from roquet.proxy.rules.java_keys import WITHOUT_EFFECT
from roquet.proxy.rules.limits import ProxyLimits, check_limits

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from roquet.acl.files import AclConfig
    from roquet.auth.config import AuthConfig
    from roquet.broker.app import Broker
    from roquet.broker.config import BrokerConfig

log = logging.getLogger(__name__)

FILE_SIZE_MAX = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class ProxyFlags:
    """What the command line said about gRPC."""

    file: Path | None = None
    """A file like Java's rmq-proxy.json."""
    port: int | None = None

    def given(self) -> dict[str, str]:
        """Read the file; nothing is given without one. Raises UsageError."""
        return {} if self.file is None else read_file(self.file)


def rules_of(flags: ProxyFlags, acl: AclConfig, auth: AuthConfig) -> ProxyLimits:
    """Read the settings of a port beside a broker that has these accounts. Raises UsageError.

    Those that nobody here knows are named in the log.
    """
    given = flags.given()
    check_local(given, acl, auth)
    others = {key: value for key, value in given.items() if key not in SWITCHES}
    return rules_from(others, flags.port, WITHOUT_EFFECT)


def rules_from(given: Mapping[str, str], port: int | None, idle: Mapping[str, str]) -> ProxyLimits:
    """Make the settings of texts; `idle` are those without an effect. Raises UsageError."""
    heeded = {key: value for key, value in given.items() if key not in idle}
    rules, report = load(ProxyLimits, heeded, {}, {"grpcServerPort": port})
    check_limits(rules)
    for line in report.lines():
        log.warning(line)
    for key in sorted(given.keys() & idle.keys()):
        log.info("%s has no effect here: %s", key, idle[key])
    return rules


def read_file(file: Path) -> dict[str, str]:
    """Return what a file like rmq-proxy.json says. Raises UsageError."""
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    if len(data) > FILE_SIZE_MAX:
        raise UsageError(f"{file} is larger than {FILE_SIZE_MAX} bytes")
    try:
        found: object = json.loads(data)
    except ValueError as error:
        raise UsageError(f"{file} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{file}: the settings have to be one JSON object")
    settings = cast("dict[str, object]", found)
    return {key: _text(value) for key, value in settings.items()}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def beside(
    config: BrokerConfig, flags: ProxyFlags
) -> Callable[[Broker], AbstractAsyncContextManager[list[str]]]:
    """Return what runs gRPC for as long as a broker runs. Raises UsageError.

    It yields what is said once it listens.
    """
    rules = rules_of(flags, config.acl, config.auth)
    host = config.server.bind_address or "127.0.0.1"

    @contextlib.asynccontextmanager
    async def run(broker: Broker) -> AsyncGenerator[list[str]]:
        from roquet.proxy.app import build_local  # noqa: PLC0415  (needs the extra)

        built = build_local(broker.local, host, rules, config.tls)
        async with built.app:
            yield [f"gRPC on {join_address(host, built.port.port)}"]

    return run
