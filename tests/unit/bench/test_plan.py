"""A benchmark's plan: how long it takes, how far it is, and what it makes of the frame shapes."""

from __future__ import annotations

import pytest
from bench import report
from bench.plan import FULL, QUICK, RECOVERY_S, START_S, Plan, Watch
from bench.scenarios import ASYNC, SERVICES, SLOW, SYNC, frame_shapes


def total_s(plan: Plan) -> float:
    groups = ((ASYNC, 2), (frame_shapes(1), 1), (SYNC, 2), (SERVICES, 2), (SLOW, 2))
    loads = sum(plan.group_s(group, kinds, read_back=True) for group, kinds in groups)
    return loads + (plan.starts + 3) * START_S + 4 * RECOVERY_S


def test_the_full_plan_fits_into_its_time_and_pairs_up_often_enough() -> None:
    assert FULL.pairs >= 5
    assert total_s(FULL) < 40 * 60
    assert total_s(QUICK) < 9 * 60


def test_reading_back_and_senders_beside_count() -> None:
    plain = next(each for each in ASYNC if each.name == "send 4x32")
    beside = next(each for each in ASYNC if each.send_rate)
    assert FULL.run_s(plain, read_back=True) > FULL.run_s(plain, read_back=False) >= FULL.secs
    assert FULL.run_s(beside, read_back=False) >= FULL.secs + 2
    assert FULL.group_s([], 2, read_back=True) == 0


def test_the_time_left_follows_the_speed_so_far() -> None:
    lines: list[str] = []
    time = iter([0.0, 20.0, 60.0])
    watch = Watch(100, lines.append, lambda: next(time))
    watch.done("first", 10)
    watch.done("second", 90)
    assert lines == [
        "0 min 20 s gone, about 3 min 00 s left: first",
        "1 min 00 s gone, about 0 min 00 s left: second",
    ]


@pytest.mark.parametrize(("dearest", "word"), [(9.0, "held"), (9.2, "missed")])
def test_the_spread_over_shapes_is_a_row_of_the_table(dearest: float, word: str) -> None:
    shapes = frame_shapes(1)
    assert len(shapes) == 10
    rows = [
        report.row(shape, {"roquet": [figures(pace * cost) | {"to_reference": cost}] * 3})
        # The machine is slower for some: what counts is the reference beside each.
        for shape, cost, pace in zip(shapes, [7.0] * 9 + [dearest], [1, 3] * 5, strict=True)
    ]
    line = report.spread(rows)
    assert line["spread"] == pytest.approx(dearest / 7.0)
    table = report.markdown([{"rows": [*rows, line]}]).splitlines()
    assert len(table) == 2 + 10 + 1
    assert table[-1].endswith(f"x {dearest / 7:.2f} from the cheapest to the dearest, {word} |")
    assert {row.count("|") for row in table} == {10}


def test_pairs_are_told_with_their_range() -> None:
    runs = {
        "roquet": [figures(2.0), figures(3.0), figures(4.0)],
        "java": [figures(10.0), figures(10.0), figures(10.0)],
    }
    line = report.row(ASYNC[0], runs)
    assert (line["cpu_ratio"], line["cpu_ratio_range"]) == (0.3, [0.2, 0.4])
    row = report.markdown([{"rows": [line]}]).splitlines()[-1]
    assert "| 3.0 (2.0 to 4.0) | 10.0 |" in row
    assert "CPU x 0.30 (0.20 to 0.40), missed" in row


def figures(cpu_us: float) -> dict[str, float]:
    return {"per_second": 1000.0, "cpu_us": cpu_us, "p50_us": 1.0, "p99_us": 2.0}


def test_what_is_no_load_is_told_in_a_list() -> None:
    rows = [
        {"name": "disk", "alone_per_second": 3500.4},
        {"name": "memory", "memory": {"roquet": {"rss": 90.0, "private": 44.6}}},
        {"name": "start", "start_s": {"roquet": 0.456}, "idle_rss_mib": {"roquet": 43.9}},
        {"name": "kill", "seconds": {"java": 2.0}, "log_mib": {"java": 1024.0}},
    ]
    assert report.remarks([{"rows": rows}]).splitlines() == [
        "- disk: 3,500 a second",
        "- memory: roquet 45",
        "- start: roquet 0.46, roquet idle 44 MiB",
        "- kill: java 2.00 s for 1,024 MiB",
    ]
