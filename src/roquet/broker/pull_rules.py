"""Settings of pulls."""

from __future__ import annotations

import dataclasses

from roquet.base.config import setting


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PullConfig:
    """Settings of pulls."""

    lite_pull: bool = setting(
        "litePullMessageEnable", True, "Whether lite pulls are served.", live=True
    )
    long_polling: bool = setting(
        "longPollingEnable",
        True,
        "Whether empty pulls are held as long as the client asks.",
        live=True,
    )
    short_polling_ms: int = setting(
        "shortPollingTimeMills",
        1000,
        "How long they are held otherwise.",
        unit="ms",
        low=0,
        live=True,
    )
    property_filter: bool = setting(
        "enablePropertyFilter", False, "Whether consumers may filter by SQL92.", live=True
    )
    filter_retries: bool = setting(
        "filterSupportRetry",
        False,
        "Whether SQL92 filters hold for retried messages as well.",
        live=True,
    )
    reject_pull_consumers: bool = setting(
        "rejectPullConsumerEnable",
        False,
        "Whether groups without a heartbeat are refused.",
        live=True,
    )
    slave_read: bool = setting(
        "slaveReadEnable",
        False,
        "Whether slaves serve reads, and masters send slow readers there.",
        live=True,
    )
    offset_check_in_slave: bool = setting(
        "offsetCheckInSlave",
        False,
        "Whether a slave moves readers whose offset it does not have.",
        live=True,
    )
