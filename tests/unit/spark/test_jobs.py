"""Options of the jobs, the command that runs them, and the page of `stats`; without a Spark."""

from __future__ import annotations

import struct
from base64 import b64decode
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import UsageError
from roquet.cli import app
from roquet.cli.exits import EXIT_USAGE
from roquet.spark.jobs import audit, stats
from roquet.spark.jobs.options.tables import STATS, given, job
from roquet.spark.jobs.shared.page import ROWS_MAX, Bars, Lines, Listing, Page, bytes_text, write

if TYPE_CHECKING:
    from pathlib import Path


def test_words_become_options() -> None:
    words = ["--name-servers", "a:1", "--TOP=3", "--dry-run", "--out", "/x"]
    expected = {"nameservers": "a:1", "top": "3", "dryrun": "true", "out": "/x"}
    assert given(words, STATS) == expected


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["store"], "is no option"),
        (["--"], "is no option"),
        (["--store"], "--store needs a value"),
        (["--store", "--out", "x"], "--store needs a value"),
        (["--top=1", "--top", "2"], "given twice"),
    ],
)
def test_words_that_are_wrong(words: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        given(words, STATS)


def test_an_unknown_job_lists_near_ones() -> None:
    with pytest.raises(UsageError, match="did you mean: stats"):
        job("stat")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "one of nameServers and store"),
        ({"store": "/s", "nameServers": "a:1"}, "one of nameServers and store"),
        ({"store": "/s"}, "out is needed"),
        ({"nameServers": "a:1", "out": "/o"}, "subscribe"),
        ({"store": "/s", "out": "s3://bucket/o"}, "report is needed"),
        ({"store": "/s", "out": "/o", "top": "0"}, "from 1 to 1000"),
        ({"sore": "/s"}, "did you mean: store"),
    ],
)
def test_stats_options_that_are_wrong(options: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        stats.plan(options)


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["--store", str(tmp_path), "--subscribe", "orders", "--out", str(out), "--dry-run"]
    assert app.run(["pipeline", "run", "stats", *words]) == 0
    shown = capsys.readouterr().out
    assert "read orders from" in shown
    assert str(out) in shown
    assert not out.exists()


def test_a_mistake_ends_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["pipeline", "run", "stats", "--stoer", "/s"]) == EXIT_USAGE
    assert "did you mean: store" in capsys.readouterr().err
    assert app.run(["pipeline", "run", "stats", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"--{option.name}" in shown for option in STATS)
    assert app.run(["pipeline", "jobs"]) == 0
    assert "stats" in capsys.readouterr().out


def test_the_page_shows_hostile_names_as_text_and_is_bounded() -> None:
    name = "<script>$\\frac{$</script>\x00"
    rows = [(f"{name}{number}", number, 0.5) for number in range(ROWS_MAX + 5)]
    page = write(
        Page(
            title=name,
            about=name,
            cards=[("1", name)],
            charts=[
                Bars(title=name, names=[name] * 50, counts=[1] * 50),
                Lines(
                    title="t",
                    unit="ms",
                    times=[datetime(2026, 1, 1, tzinfo=UTC)],
                    values={"median": [None], name: [2.0]},
                ),
            ],
            listings=[Listing(title=name, heads=("name", "count", "share"), rows=rows)],
        )
    )
    assert "<script" not in page
    assert "http" not in page
    assert page.count("<tr>") == ROWS_MAX + 1
    pictures = [part.partition('"')[0] for part in page.split("base64,")[1:]]
    for picture in map(b64decode, pictures):
        assert struct.unpack(">II", picture[16:24]) >= (800, 400)
    assert len(pictures) == 2


def test_sizes_are_readable() -> None:
    assert [bytes_text(n) for n in (0, 1023, 1536, 5 << 20, 1 << 42)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 MiB",
        "4.0 TiB",
    ]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "left = ''"),
        ({"left": "disk:/s", "right": "store:/s"}, "must be store:FOLDER"),
        ({"left": "store:/s", "right": "store:"}, "right = "),
        ({"left": "store:/s", "right": "store:/t"}, "out is needed"),
        ({"left": "store:/s", "right": "topic:a:1", "brokerName": "b"}, "subscribe"),
        ({"left": "store:/s", "right": "lake:/t", "out": "/o"}, "brokerName is needed"),
        (
            {"left": "store:/s", "right": "store:/t", "subscribe": "a", "subscribePattern": "b"},
            "not both",
        ),
    ],
)
def test_audit_options_that_are_wrong(options: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        audit.plan(options)


def test_pipeline_name_servers_come_from_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["pipeline", "run", "stats", "--subscribe", "t", "--out", str(tmp_path), "--dry-run"]
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert app.run(words) == EXIT_USAGE
    assert "nameServers" in capsys.readouterr().err
    monkeypatch.setenv("NAMESRV_ADDR", "10.9.8.7:9876")
    assert app.run(words) == 0
    assert "10.9.8.7:9876" in capsys.readouterr().out
    assert app.run([*words, "--nameServers", "10.9.8.6:9876"]) == 0
    assert "10.9.8.7" not in capsys.readouterr().out
    assert app.run([*words, "--store", str(tmp_path)]) == 0
    assert "10.9.8.7" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "remote", "why"),
    [
        (["--master", "local[2]"], "sc://127.0.0.1:1", "SPARK_REMOTE names another"),
        (["--master", "sc://127.0.0.1:2"], "sc://127.0.0.1:1", "SPARK_REMOTE names another"),
        (["--archive", "a.tar.gz"], "sc://127.0.0.1:1", "workers of its own"),
        (["--master", "sc://127.0.0.1:1", "--archive", "a.tar.gz"], "", "workers of its own"),
    ],
)
def test_flags_that_spark_connect_cannot_have_are_refused_before_it_is_asked(
    flags: list[str],
    remote: str,
    why: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", remote)
    job = ["stats", "--store", "/s", "--out", "/nowhere/out"]
    assert app.run(["pipeline", "run", *flags, *job]) == EXIT_USAGE
    assert why in capsys.readouterr().err
