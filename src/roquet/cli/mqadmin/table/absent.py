"""Commands of RocketMQ's mqadmin whose feature the product does not have."""

from __future__ import annotations

from roquet.cli.mqadmin.table.declared import Java

ABSENT: tuple[Java, ...] = (
    Java(
        "exportMetadataInRocksDB",
        "Prints metadata from a RocksDB directory on the local disk",
        "p:path! t:configType! j:jsonEnable",
        lacks="reader of RocksDB's files",
    ),
    Java(
        "startMonitoring",
        "Reports undone and deleted messages and failing clients, on and on",
        "",
        lacks="monitor that writes into log files",
    ),
)
"""`table.declared` says for each thing that is lacking what to type instead."""
