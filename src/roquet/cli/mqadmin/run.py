"""Runs one command of RocketMQ's tool."""

from __future__ import annotations

import dataclasses
import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.errors import NotFound, Refused, RoquetError
from roquet.cli import contexts, output
from roquet.cli.exits import EXIT_REFUSED, EXIT_USAGE
from roquet.cli.mqadmin.table.absent import ABSENT
from roquet.cli.mqadmin.table.built import BUILT
from roquet.cli.mqadmin.table.declared import parser_of, with_changes
from roquet.cli.mqadmin.table.for_rocketmq import FOR_ROCKETMQ
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from roquet.admin.calls import Calls
    from roquet.cli.contexts import Context
    from roquet.cli.mqadmin.table.declared import Java

COMMANDS = {it.name: it for it in (*BUILT, *FOR_ROCKETMQ, *ABSENT)}


def mqadmin(words: Sequence[str]) -> int:
    """Run `words`, the command's name first; without one list them. Raises RoquetError."""
    if not words or words[0] in ("-h", "--help", "help"):
        if len(words) > 1 and words[0] == "help":
            return mqadmin([words[1], "-h"])
        _list()
        return 0 if words else EXIT_USAGE
    command = COMMANDS.get(words[0])
    if command is None:
        close = difflib.get_close_matches(words[0][:80], COMMANDS, n=1)
        hint = f"did you mean {close[0]}?" if close else "try: roquet mqadmin -h"
        raise NotFound(f"mqadmin has no command {words[0][:80]!r}; {hint}")
    options = parser_of(command).parse_args(with_changes(command, words[1:]))
    if not command.work:
        output.error(command.refusal())
        return EXIT_REFUSED
    command.demand_known(options)
    if command.local:
        return int(command.function()(options))
    try:
        return _asked(command, options)
    except RoquetError as error:
        said = _unknown_request(error) if command.lacks else None
        if said is None:
            raise
        output.error(command.refusal(said))
        return EXIT_REFUSED


def _asked(command: Java, options: argparse.Namespace) -> int:
    function = command.function()
    from roquet.cli.mqadmin.routed import Routed  # noqa: PLC0415
    from roquet.cli.reach import administered  # noqa: PLC0415

    options.cluster_found = _with_tools_keys(contexts.chosen(options.namesrv, options.context))
    topic = command.route(options)

    def around(calls: Calls) -> Calls:
        return calls if topic is None else Routed(calls, topic)

    return administered(options, lambda admin: function(admin, options), around)


def _unknown_request(error: RoquetError) -> str | None:
    """Return the words of a server that does not know the request, None for another error."""
    from roquet.cli.reach import ServerInstead  # noqa: PLC0415

    refused = error.refusal if isinstance(error, ServerInstead) else error
    unknown = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    return str(refused) if isinstance(refused, Refused) and refused.code == unknown else None


def _with_tools_keys(cluster: Context) -> Context:
    """Return a cluster with the keys of Java's tools, where nothing else says what to sign with.

    They are in `$ROCKETMQ_HOME/conf/tools.yml`; a file without both signs nothing. Raises
    UsageError for one that cannot be read.
    """
    home = os.environ.get("ROCKETMQ_HOME", "")
    file = Path(home) / "conf" / "tools.yml"
    if cluster.access_key is not None or not home or not file.is_file():
        return cluster
    from roquet.acl.credentials import from_environment, from_file  # noqa: PLC0415

    if from_environment(os.environ) is not None:
        return cluster
    found = from_file(file, warn=output.error)
    return dataclasses.replace(cluster, access_key=found.access_key, secret_key=found.secret_key)


def _list() -> None:
    output.line("Commands, with the flags and columns of mqadmin 5.5.0:")
    for it in BUILT:
        output.line(f"   {it.name:<35}  {it.about}.")
    output.line("\nFor what RocketMQ's servers have and ours have not:")
    for it in FOR_ROCKETMQ:
        output.line(f"   {it.name:<35}  {it.about}.")
    output.line("\nWithout the feature that they are for:")
    output.line("   " + ", ".join(it.name for it in ABSENT))
