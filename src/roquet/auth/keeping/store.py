"""The file of users and policies: written whole and synced before a change is acknowledged.

One line `roquet-auth 1 <CRC-32 in hex> <bytes>`, then JSON of so many bytes. Only its owner may
read it: the passwords are in it, since a signature can be checked by nothing else. A file that is
damaged is never replaced by an empty one: the server does not start.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from roquet.auth.bodies import Unreadable, acl_json, policies_of, subject_name, user_json, user_of
from roquet.auth.directory import AuthFault, Directory
from roquet.auth.policies import Acl
from roquet.base.durable import replace_file
from roquet.base.errors import Corrupt
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from roquet.auth.model import User

MAGIC = b"roquet-auth 1"
NAME = "users.auth"
_JAVA = "users"
"""RocketMQ's database of users (LocalAuthenticationMetadataProvider), in RocksDB's form."""
SIZE_MAX = 64 * 1024 * 1024


class AuthFile:
    """The file; its folder is made when it is first written."""

    def __init__(self, path: Path) -> None:
        """Name the file."""
        self.path = path

    def load(self) -> Directory | None:
        """Return what was written last; None where nothing was. Raises Corrupt and OSError."""
        try:
            with self.path.open("rb") as file:
                data = file.read(SIZE_MAX + 1)
        except FileNotFoundError:
            return None
        try:
            return decode(data)
        except ValueError as error:
            raise Corrupt(
                f"{self.path}: {error}; put back a copy of the file, or move it away to begin"
                " without users"
            ) from None

    @property
    def unread(self) -> Path | None:
        """The folder of users that a RocketMQ broker left beside the file, or None."""
        folder = self.path.with_name(_JAVA)
        return folder if (folder / "CURRENT").exists() else None

    def save(self, directory: Directory) -> None:
        """Write everything; it is durable then. Raises AuthFault when too large, and OSError."""
        data = encode(directory)
        if len(data) > SIZE_MAX:
            raise AuthFault(f"Users and policies may have {SIZE_MAX} bytes.")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, data, mode=0o600)


def encode(directory: Directory) -> bytes:
    """Return the file's content."""
    body = fastjson.standard(
        {
            "acls": [acl_json(name, acl) for name, acl in sorted(directory.acls.items())],
            "users": [
                user_json(user, with_password=True) for _, user in sorted(directory.users.items())
            ],
            "version": directory.version,
        }
    )
    return b"%s %08x %d\n%s" % (MAGIC, zlib.crc32(body), len(body), body)


def decode(data: bytes) -> Directory:
    """Read the file's content. Raises ValueError, which shows nothing of it."""
    if len(data) > SIZE_MAX:
        raise ValueError(f"larger than {SIZE_MAX} bytes")
    head, _, body = data.partition(b"\n")
    words = head.split(b" ")
    if len(words) != 4 or b" ".join(words[:2]) != MAGIC:
        raise ValueError("this is no file of users and policies")
    if words[3] != b"%d" % len(body):
        raise ValueError(f"it has {len(body)} bytes of content and should have another number")
    if words[2] != b"%08x" % zlib.crc32(body):
        raise ValueError("its checksum is wrong: the content is damaged")
    try:
        return _directory(fastjson.read_object(body))
    except (AuthFault, Unreadable, ValueError):
        raise ValueError("its content can not be read") from None


def _directory(source: dict[str, Any]) -> Directory:
    users, acls = fields.objects(source, "users"), fields.objects(source, "acls")
    return directory_of(users, acls, fields.i64(source, "version"))


def directory_of(
    users: Sequence[Mapping[str, Any]], acls: Sequence[Mapping[str, Any]], version: int = 0
) -> Directory:
    """Return what lists of UserInfo and AclInfo say. Raises AuthFault, Unreadable and ValueError.

    There are policies only of users that are in the list.
    """
    found: dict[str, User] = {}
    for one in users:
        made = Directory().with_user(user_of(fields.text(one, "username"), one))
        found |= made.users
    policies: dict[str, Acl] = {}
    for one in acls:
        name = subject_name(fields.text(one, "subject"))
        if name is None or name not in found:
            raise ValueError("policies of nobody")
        policies[name] = Acl(policies_of(one))
    return Directory(found, policies, version)
