"""`roquet cheat`: what people type most, by subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import NotFound
from roquet.cli import output

if TYPE_CHECKING:
    import argparse

SHEETS = {
    "start": """\
roquet dev                                       a server on this machine, in memory
roquet dev --data ./d                            the same, messages are kept
roquet context add prod 10.0.0.1:9876            a cluster with a name
roquet context use prod                          talk to it from now on""",
    "messages": """\
roquet pub orders 'order {{count}}' -c 10        send ten messages
roquet pub orders < lines.txt                    each line is a message
roquet pub orders late --delay 5m                deliver in five minutes
roquet pub orders paid --order-key o-1           one queue for what has this key
roquet sub orders -g billing                     consume as a member of a group
roquet cat orders -o -5 -e                       the last five, without a group
roquet cat orders -e --sql "amount > 10"         only what a filter takes
roquet msg find orders -k o-1                    by key
roquet msg get ID -t orders                      one message, all of it
roquet msg trace ID                              what clients wrote about it
roquet msg resend ID -t orders --yes             send a copy""",
    "groups": """\
roquet group ls                                  groups with members and lag
roquet group lag billing -w 2                    queue by queue, every 2 s
roquet group seek billing -t orders --to 1h --dry-run
roquet dlq ls                                    groups that gave messages up
roquet dlq show billing                          which, and why
roquet dlq resend billing --all --yes            to that group again""",
    "cluster": """\
roquet top                                       rates, lag, problems first
roquet cluster health                            exit code 1 when there are problems
roquet broker ls                                 brokers with their traffic
roquet broker drain broker-a                     have producers leave
roquet broker config set broker-a maxMessageSize=65536
roquet ha status                                 how far each slave has copied
roquet bench send -c 10000                       rate and latency""",
}


def cheat(options: argparse.Namespace) -> int:
    """Print one sheet, or all."""
    if options.subject is not None and options.subject not in SHEETS:
        raise NotFound(f"there is no sheet {options.subject[:40]!r}: {', '.join(SHEETS)}")
    for number, (name, text) in enumerate(SHEETS.items()):
        if options.subject in (None, name):
            if options.subject is None:
                output.line(f"{'' if number == 0 else chr(10)}# {name}")
            output.line(text)
    return 0
