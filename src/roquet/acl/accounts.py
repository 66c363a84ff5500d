"""The accounts of `plain_acl.yml`: who may sign, and what each may do. Pure."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any, TypeGuard

from roquet.acl.addresses import NOBODY, Pattern, compile_pattern
from roquet.base.errors import UsageError
from roquet.model.data_version import DataVersion
from roquet.protocol import names

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_LENGTH_MIN = 7
KEY_LENGTH_MAX = 1024
ACCOUNTS_MAX = 100_000
PERMS_MAX = 100_000

GLOBAL_WHITE = "globalWhiteRemoteAddresses"
ACCOUNTS = "accounts"
DATA_VERSION = "dataVersion"

Document = dict[str, Any]
"""What a file says: mappings, lists and texts, nothing else."""


class Perm(enum.IntFlag):
    """What an account may do with a topic or a group."""

    DENY = 1
    PUB = 4
    SUB = 8
    BOTH = PUB | SUB
    GET = 16
    """In needs only: users of access control 2.0 may have it, accounts never do."""


_PERMS = {
    "DENY": Perm.DENY,
    "PUB": Perm.PUB,
    "SUB": Perm.SUB,
    "PUB|SUB": Perm.BOTH,
    "SUB|PUB": Perm.BOTH,
}


def perm_text(perm: Perm) -> str:
    """Return a permission as files have it."""
    return {Perm.PUB: "PUB", Perm.SUB: "SUB", Perm.BOTH: "PUB|SUB"}.get(perm, "DENY")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One account. Its secret is in no text that is made of it."""

    access_key: str
    secret: bytes = dataclasses.field(repr=False)
    white: Pattern = NOBODY
    admin: bool = False
    default_topic: Perm = Perm.DENY
    default_group: Perm = Perm.DENY
    topics: Mapping[str, Perm] = dataclasses.field(default_factory=dict[str, Perm])
    groups: Mapping[str, Perm] = dataclasses.field(default_factory=dict[str, Perm])

    def allows_topic(self, topic: str, wanted: Perm) -> bool:
        """Tell whether any of the wanted permissions is there and none is denied.

        Topics in which messages of other topics wait are never meant by the default.
        """
        default = Perm.DENY if names.is_waiting_room(topic) else self.default_topic
        return _allows(self.topics.get(topic, default), wanted)

    def allows_group(self, group: str, wanted: Perm) -> bool:
        """Tell the same of a consumer group."""
        return _allows(self.groups.get(group, self.default_group), wanted)

    def is_producer_of(self, group: str) -> bool:
        """Tell whether it is named as a producer of a group of transactions."""
        return _allows(self.groups.get(group, Perm.DENY), Perm.PUB)

    @property
    def is_unlimited(self) -> bool:
        """Whether it is an administrator's without permissions of its own: all is allowed."""
        return self.admin and not self.topics and not self.groups


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All accounts of all files."""

    accounts: Mapping[str, Account] = dataclasses.field(default_factory=dict[str, Account])
    homes: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Access key -> file."""
    white: tuple[Pattern, ...] = ()
    versions: Mapping[str, DataVersion] = dataclasses.field(default_factory=dict[str, DataVersion])
    """File -> its version."""
    notes: tuple[str, ...] = ()
    """What an operator should know, without secrets."""
    producer_groups: frozenset[str] = frozenset()
    """Producer groups that only the accounts named for it with PUB may join."""


def build(documents: Mapping[str, Document]) -> Table:
    """Put the files together, in their order. Raises UsageError that names the file."""
    accounts: dict[str, Account] = {}
    homes: dict[str, str] = {}
    white: list[Pattern] = []
    versions: dict[str, DataVersion] = {}
    notes: list[str] = []
    for file, document in documents.items():
        try:
            white += [compile_pattern(text) for text in texts(document, GLOBAL_WHITE)]
            versions[file] = version_of(document)
            for entry in entries(document):
                account = read_account(entry)
                if account.access_key in accounts:
                    notes.append(f"{file}: {account.access_key!r} is repeated; the first counts")
                    continue
                accounts[account.access_key] = account
                homes[account.access_key] = file
        except UsageError as error:
            raise UsageError(f"{file}: {error}") from error
    if len(accounts) > ACCOUNTS_MAX:
        raise UsageError(f"{len(accounts)} accounts are more than {ACCOUNTS_MAX}")
    if any(pattern.everyone for pattern in white):
        notes.append(f"{GLOBAL_WHITE} has '*': everybody may do everything")
    notes += [
        f"account {account.access_key!r} has whiteRemoteAddress '*': its key without a signature"
        " may do everything"
        for account in accounts.values()
        if account.white.everyone
    ]
    each = accounts.values()
    producers = (group for it in each for group in it.groups if it.is_producer_of(group))
    return Table(
        accounts=accounts,
        homes=homes,
        white=tuple(white),
        versions=versions,
        notes=tuple(notes),
        producer_groups=frozenset(producers),
    )


def read_account(entry: Mapping[str, Any]) -> Account:
    """Read one entry of `accounts`. Raises UsageError."""
    key, secret = _text(entry, "accessKey"), _text(entry, "secretKey")
    check_keys(key, secret)
    return Account(
        access_key=key,
        secret=secret.encode(),
        white=compile_pattern(_text(entry, "whiteRemoteAddress")),
        admin=_text(entry, "admin").lower() == "true",
        default_topic=_default(entry, "defaultTopicPerm"),
        default_group=_default(entry, "defaultGroupPerm"),
        topics=_perms(entry, "topicPerms"),
        groups=_perms(entry, "groupPerms"),
    )


def check_keys(key: str, secret: str) -> None:
    """Raise UsageError, in Java's words but without the secret, unless both may be used."""
    if min(len(key), len(secret)) < KEY_LENGTH_MIN:
        raise UsageError(
            f"The accessKey={key[:64]} and secretKey=****** cannot be null and length should longer"
            " than 6"
        )
    if max(len(key), len(secret)) > KEY_LENGTH_MAX:
        raise UsageError(f"accessKey and secretKey have at most {KEY_LENGTH_MAX} characters")


def check_perms(perms: list[str]) -> None:
    """Raise UsageError unless each is `name=PERM` (Java's words)."""
    for text in perms:
        name, equals, perm = text.partition("=")
        if not equals or not name.strip() or "=" in perm:
            raise UsageError(
                f"Parse resource permission error for {text[:200]}.\n"
                "The expected resource is 'resource=permission'."
            )
        if perm.strip() not in _PERMS:
            raise UsageError(
                f"Parse resource permission error for {text[:200]}.\n"
                "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )


def is_mapping(value: object) -> TypeGuard[dict[str, Any]]:
    """Tell whether a part of a document is a mapping; its keys are texts."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Tell whether a part of a document is a list."""
    return isinstance(value, list)


def entries(document: Document) -> list[dict[str, Any]]:
    """Return the entries of `accounts`. Raises UsageError."""
    found: Any = document.get(ACCOUNTS) or list[Any]()
    if not is_list(found) or not all(is_mapping(entry) for entry in found):
        raise UsageError(f"{ACCOUNTS} has to be a list of accounts, each with accessKey, secretKey")
    return found


def texts(entry: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of texts. Raises UsageError."""
    found = entry.get(name)
    if found in (None, "", "null", "~"):
        return []
    if not is_list(found) or not all(isinstance(text, str) for text in found):
        raise UsageError(f"{name} has to be a list of texts")
    if len(found) > PERMS_MAX:
        raise UsageError(f"{name} has more than {PERMS_MAX} entries")
    return found


def version_of(document: Document) -> DataVersion:
    """Return the version that tools wrote into the file, or that of a file without."""
    found = document.get(DATA_VERSION)
    first = found[0] if is_list(found) and found else None
    if not is_mapping(first):
        return DataVersion()
    numbers = {name: str(first.get(name, "0")) for name in ("timestamp", "counter")}
    if not all(number.isascii() and number.isdigit() for number in numbers.values()):
        raise UsageError(f"{DATA_VERSION} has to have numbers: timestamp and counter")
    return DataVersion(timestamp=int(numbers["timestamp"]), counter=int(numbers["counter"]))


def _perms(entry: Mapping[str, Any], name: str) -> dict[str, Perm]:
    found: dict[str, Perm] = {}
    for text in texts(entry, name):
        resource, equals, perm = text.partition("=")
        if not equals or not resource.strip() or "=" in perm:
            kind = "topic" if name == "topicPerms" else "group"
            raise UsageError(f"Parse resource permission failed for {kind}:{text[:200]}")
        # As in Java: what is no permission denies.
        found[resource.strip()] = _PERMS.get(perm.strip(), Perm.DENY)
    return found


def _default(entry: Mapping[str, Any], name: str) -> Perm:
    return _PERMS.get(_text(entry, name).strip(), Perm.DENY)


def _text(entry: Mapping[str, Any], name: str) -> str:
    found = entry.get(name, "")
    if not isinstance(found, str):
        raise UsageError(f"{name} has to be a text")
    return "" if found in {"null", "~"} else found


def _allows(owned: Perm, wanted: Perm) -> bool:
    return not owned & Perm.DENY and bool(owned & wanted)
