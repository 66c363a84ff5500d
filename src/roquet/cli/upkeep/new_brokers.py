"""`roquet broker new`: property files for several brokers of one machine.

A broker has one event loop, so one core carries its connections; a machine with more cores carries
more brokers. They must share no port and no folder: the files are written so that they do not.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.config import load
from roquet.base.errors import UsageError
from roquet.base.properties_file import write_properties
from roquet.broker.config import BrokerConfig, settled
from roquet.cli import contexts, output

if TYPE_CHECKING:
    import argparse

BROKERS_MAX = 64
"""Files of one command."""
_STEP = 10
"""From one broker's port to the next: each also has ports beside its own."""
_METRICS_PORT = 5557


def new(options: argparse.Namespace) -> int:
    """Write the files; none when one is there or a setting is wrong. Raises UsageError."""
    made = _plan(options)
    folder = Path(options.folder)
    if not folder.is_dir():
        raise UsageError(f"{options.folder} is no folder; make it first: mkdir -p {folder}")
    files = {folder / f"broker-{number}.conf": values for number, values in made.items()}
    if there := [str(file) for file in files if file.exists()]:
        raise UsageError(f"there already, and left as they are: {', '.join(there)}; see --first")
    for file, values in files.items():
        try:
            with file.open("xb") as out:
                out.write(write_properties(values))
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error.strerror}") from error
        where = f"port {values['listenPort']}, store {values['storePathRootDir']}"
        output.line(f"{file}: {values['brokerName']}, {where}")
    first, *_ = files
    units = " ".join(f"roquet-broker@{number}" for number in made)
    output.line("")
    output.line("look whether each can start:    roquet doctor -c " + str(first))
    output.line("start one here:                 roquet broker -c " + str(first))
    if folder == Path("/etc/roquet"):
        output.line("or all, with deploy/systemd:    systemctl enable --now " + units)
    return 0


def _plan(options: argparse.Namespace) -> dict[int, dict[str, str]]:
    """Return the settings of each broker by its number, which have been checked."""
    if options.count > BROKERS_MAX:
        raise UsageError(f"at most {BROKERS_MAX} brokers at a time")
    contexts.addresses_of(options.namesrv, "--namesrv")
    store = Path(options.store).expanduser().absolute()
    name = options.name or socket.gethostname()
    made: dict[int, dict[str, str]] = {}
    for at in range(options.count):
        number, before = options.first + at, options.first + at - 1
        port = options.port + _STEP * before
        values = {
            "brokerClusterName": options.cluster,
            "brokerName": f"{name}-{number}",
            "namesrvAddr": options.namesrv,
            "listenPort": str(port),
            "haListenPort": str(port + 1),
            "metricsPromExporterPort": str(_METRICS_PORT + before),
            "storePathRootDir": str(store / str(number)),
        }
        if options.ip:
            values["brokerIP1"] = options.ip
        # The environment of who writes the files is not that of the brokers.
        config, _ = load(BrokerConfig, values, {}, {})
        settled(config, from_file=True)
        made[number] = values
    return made
