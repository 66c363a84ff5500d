"""What tools are told of a pair: the answer to GET_BROKER_HA_STATUS (907)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

from roquet.protocol import fastjson
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.protocol.bodies.fields import Json


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlaveInfo:
    """One connected slave (Java: HAConnectionRuntimeInfo). Sizes are bytes."""

    address: str
    acked: int
    behind: int
    in_sync: bool
    bytes_per_second: int
    position: int

    def to_json(self) -> Json:
        """Return the fields."""
        return {
            "addr": self.address,
            "diff": self.behind,
            "inSync": self.in_sync,
            "slaveAckOffset": self.acked,
            "transferFromWhere": self.position,
            "transferredByteInSecond": self.bytes_per_second,
        }

    @classmethod
    def of_json(cls, source: Mapping[str, Any]) -> Self:
        """Read the fields. Raises JsonError."""
        return cls(
            address=fields.text(source, "addr"),
            acked=fields.i64(source, "slaveAckOffset"),
            behind=fields.i64(source, "diff"),
            in_sync=fields.boolean(source, "inSync"),
            bytes_per_second=fields.i64(source, "transferredByteInSecond"),
            position=fields.i64(source, "transferFromWhere"),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FollowInfo:
    """A slave's own connection (Java: HAClientRuntimeInfo). Times are Unix milliseconds."""

    master_address: str = ""
    bytes_per_second: int = 0
    max_offset: int = 0
    last_read_ms: int = 0
    last_write_ms: int = 0
    master_flush_offset: int = 0

    def to_json(self) -> Json:
        """Return the fields."""
        return {
            "lastReadTimestamp": self.last_read_ms,
            "lastWriteTimestamp": self.last_write_ms,
            "masterAddr": self.master_address,
            "masterFlushOffset": self.master_flush_offset,
            "maxOffset": self.max_offset,
            "transferredByteInSecond": self.bytes_per_second,
        }

    @classmethod
    def of_json(cls, source: Mapping[str, Any]) -> Self:
        """Read the fields. Raises JsonError."""
        return cls(
            master_address=fields.optional_text(source, "masterAddr") or "",
            bytes_per_second=fields.i64(source, "transferredByteInSecond"),
            max_offset=fields.i64(source, "maxOffset"),
            last_read_ms=fields.i64(source, "lastReadTimestamp"),
            last_write_ms=fields.i64(source, "lastWriteTimestamp"),
            master_flush_offset=fields.i64(source, "masterFlushOffset"),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HaStatusBody:
    """A broker's replication at a moment (Java: HARuntimeInfo)."""

    is_master: bool
    max_offset: int
    in_sync: int
    slaves: tuple[SlaveInfo, ...] = ()
    follow: FollowInfo = dataclasses.field(default_factory=FollowInfo)

    def encode(self) -> bytes:
        """Write the answer to GET_BROKER_HA_STATUS (907)."""
        return fastjson.java(
            {
                "haClientRuntimeInfo": self.follow.to_json(),
                "haConnectionInfo": [slave.to_json() for slave in self.slaves],
                "inSyncSlaveNums": self.in_sync,
                "master": self.is_master,
                "masterCommitLogMaxOffset": self.max_offset,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the answer. Raises JsonError."""
        source = fastjson.read_object(data)
        return cls(
            is_master=fields.boolean(source, "master"),
            max_offset=fields.i64(source, "masterCommitLogMaxOffset"),
            in_sync=fields.i32(source, "inSyncSlaveNums"),
            slaves=tuple(
                SlaveInfo.of_json(item) for item in fields.objects(source, "haConnectionInfo")
            ),
            follow=FollowInfo.of_json(fields.obj(source, "haClientRuntimeInfo")),
        )
