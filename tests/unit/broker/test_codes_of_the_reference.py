"""Every request code of RocketMQ 5.5.0, and who of us answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_harness import play
from roquet.broker.app import build
from roquet.broker.config import load_config
from roquet.broker.network.routes import DECLINED
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

NAME_SERVER = (
    *(100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313),
    *(318, 319, 322, 327, 901, 904),
)
"""What the reference's name server answers."""
BROKER_4 = (
    *(10, 11, 12, 14, 15, 17, 21, 25, 26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 41, 42),
    *(43, 45, 46, 200, 201, 202, 203, 204, 207, 208, 215, 222, 223, 300, 303, 305, 306, 307),
    *(308, 309, 310, 314, 315, 316, 317, 320, 321, 323, 324, 325, 328, 329, 343, 345, 351, 352),
    *(353, 361),
)
"""What brokers of 4.x answer, as far as 5.5.0 still has it."""
BROKER_5 = (
    *(18, 60, 61, 225, 354, 355, 370, 400, 401, 402, 513, 905, 906, 907, 908, 1007, 1008),
    *(2001, 2002, 2003, 2004, *range(3001, 3011), 200050, 200051, 200052, 200053, 200054),
    *(200055, 200056, 200151, 5001, 200070, 200071, 200074, 200075, 200076, 200077, 200078),
    200079,
)
"""What came with 5.x."""
TO_CLIENTS = (39, 40, 220, 221, 326, 200073)
CONTAINER = (902, 903)
CONTROLLER = tuple(code for code in range(1001, 1019) if code not in (1007, 1008))
OURS = (7001, 7002, 7003, 7004)
"""Of ours alone."""
NOBODY = (13, 22, 23, 27, 47, 209, 210, 211, 212, 213, 214, 301, 302, 200072)
"""Numbers without a handler anywhere."""
ALL = (
    *NAME_SERVER,
    *BROKER_4,
    *BROKER_5,
    *TO_CLIENTS,
    *CONTAINER,
    *CONTROLLER,
    *NOBODY,
)


def served() -> set[int]:
    config, _ = load_config(None, {}, {})
    return {int(code) for route in build(config).routes for code in route.codes}


def test_the_reference_has_169_codes_and_all_are_named_here() -> None:
    assert len(ALL) == len(set(ALL)) == 169
    assert {*ALL, *OURS} <= {int(code) for code in RequestCode}
    assert not {*ALL} & {*OURS}


def test_the_broker_serves_every_code_of_4x() -> None:
    assert set(BROKER_4) <= served()


@pytest.mark.parametrize("code", [*BROKER_5, *TO_CLIENTS, *CONTAINER, *CONTROLLER, *NOBODY])
def test_what_is_not_served_has_a_reason(code: int) -> None:
    assert (code in served()) != (RequestCode(code) in DECLINED)
    if RequestCode(code) in DECLINED:
        assert len(DECLINED[RequestCode(code)]) > 10


def test_what_is_declined_is_answered_three_in_javas_words(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for declined in DECLINED:
            answer = await it.call(Command(declined, {}))
            remark = f" request type {int(declined)} not supported"
            assert (answer.code, answer.remark) == (3, remark)
        names = it.name_servers
        for code in (*NAME_SERVER, 999_999):
            answer = await it.call(Command(code, {}), names)
            assert (answer.code == 3) == (code == 999_999), code

    play(tmp_path, tell)
