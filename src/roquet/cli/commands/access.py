"""Rows of the commands over accounts (access control 1.0), users and policies (2.0)."""

from __future__ import annotations

import argparse

from roquet.cli.commands.declared import Row, argument

_TYPES = ("Super", "Normal")
_KEY = argument("user", metavar="USER", help="its access key")
_USER = argument("user", metavar="USER", help="the user's name")
_ONE = argument("user", metavar="USER", nargs="?", help="only of this user")
_TYPE = argument("--type", choices=_TYPES, help="Super: it may do all; Normal: by policies")
_PASSWORD = "its password; -: a line of the input"  # noqa: S105  (a text of the help)
_RESOURCE = "as Topic:orders, Topic:or*, Group:*, Cluster:NAME or *"

ACCOUNTS = (
    Row(
        ("user", "ls"),
        "list accounts, without secrets",
        "accounts:ls",
        (argument("broker", metavar="BROKER", nargs="?", help="only of this broker"),),
    ),
    Row(
        ("user", "set"),
        "make an account, or change one",
        "accounts:put",
        (
            _KEY,
            argument("--secret-file", metavar="FILE", help="its secret; -: a line of the input"),
            argument("--admin", action=argparse.BooleanOptionalAction, help="it may do all"),
            argument("--topics", metavar="PERM", help="with any topic: DENY, PUB|SUB, ..."),
            argument("--groups", metavar="PERM", help="with any group"),
            argument("--topic", action="append", metavar="NAME=PERM", help="with one topic"),
            argument("--group", action="append", metavar="NAME=PERM", help="with one group"),
            argument("--addresses", metavar="ADDRESSES", help="it needs no signature from there"),
        ),
        prints=False,
        changes=True,
    ),
    Row(("user", "rm"), "delete an account", "accounts:rm", (_KEY,), prints=False, changes=True),
    Row(
        ("acl", "allow"),
        "replace the addresses that need no account",
        "accounts:allow",
        (argument("address", metavar="ADDRESS", nargs="*", help="as 10.0.0.*; none: no address"),),
        prints=False,
        changes=True,
    ),
)

_IMPORT = """\
Read users and policies of a running broker, RocketMQ's 5.x for instance, and make them
on all other brokers that the name servers know. The account of the command has to be a
Super user on all of them. What is there stays; each thing that cannot be had is a line."""

USERS = (
    Row(
        ("user", "create"),
        "make a user of 5.x on every broker",
        "users:create",
        (
            _USER,
            argument("--password-file", metavar="FILE", required=True, help=_PASSWORD),
            _TYPE,
        ),
        prints=False,
    ),
    Row(("user", "show"), "list users of 5.x, without passwords", "users:show", (_ONE,)),
    Row(
        ("user", "alter"),
        "change a user of 5.x on every broker",
        "users:alter",
        (
            _USER,
            argument("--password-file", metavar="FILE", help=_PASSWORD),
            _TYPE,
            argument("--status", choices=("enable", "disable"), help="disable: refused at once"),
        ),
        prints=False,
        changes=True,
    ),
    Row(
        ("user", "delete"),
        "delete a user of 5.x with all policies",
        "users:delete",
        (_USER,),
        prints=False,
        changes=True,
    ),
    Row(("acl", "ls"), "list what users of 5.x may do", "users:policies", (_ONE,)),
    Row(
        ("acl", "grant"),
        "say what a user of 5.x may do, or may not",
        "users:grant",
        (
            _USER,
            argument("resource", metavar="RESOURCE", nargs="+", help=_RESOURCE),
            argument("--actions", required=True, help="as Pub,Sub or All"),
            argument("--deny", action="store_true", help="it may not"),
            argument("--default", action="store_true", help="looked at behind the others"),
            argument(
                "--from",
                dest="source",
                metavar="ADDRESS",
                action="append",
                default=[],
                help="only from there: an IP address or a block",
            ),
        ),
        prints=False,
        changes=True,
    ),
    Row(
        ("acl", "revoke"),
        "take away what a user of 5.x may do",
        "users:revoke",
        (
            _USER,
            argument("resource", metavar="RESOURCE", nargs="?", help="only about this one"),
        ),
        prints=False,
        changes=True,
    ),
    Row(
        ("auth", "import"),
        "make the users of one broker on all others",
        "users:bring",
        (argument("source", metavar="HOST:PORT", help="of that broker, as 10.0.0.7:10911"),),
        about=_IMPORT,
        prints=False,
        changes=True,
    ),
)
