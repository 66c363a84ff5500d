"""Commit logs in an object store: a real S3 server in this process, and what its files may do."""

from __future__ import annotations

import importlib
import shutil
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from log_store import FILE, write
from roquet import roquet_native as native
from roquet.base.errors import Corrupt, UsageError
from roquet.spark.log_files import GapPartition, LogPartition
from roquet.spark.log_source import LogFilesReader
from roquet.spark.options import LogOptions
from roquet.spark.remote.files import RemoteFile
from roquet.spark.remote.systems import opened
from s3_server import BUCKET, S3

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("pyarrow")
COUNT = 300


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with S3() as found:
        yield found


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROQUET_ACCESS_KEY_LAKE", "canaryKey")
    monkeypatch.setenv("ROQUET_SECRET_KEY_LAKE", "canary-secret-71")
    # Nothing of this machine's own may answer instead.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    write(root, COUNT, tags=False)
    return root


@pytest.fixture
def name(s3: S3, whole: Path, request: pytest.FixtureRequest) -> str:
    """Upload the store under a name of its own; return its URI."""
    prefix = request.node.name.partition("[")[0]
    for file in log(whole):
        s3.put(f"{prefix}/commitlog/{file.name}", file.read_bytes())
    return f"s3a://{BUCKET}/{prefix}"


def _text(_at: int, _size: int) -> Any:
    return "text"


class _Short:
    def read_at(self, _size: int, _at: int) -> bytes:
        return b"short"

    def close(self) -> None:
        pass


def log(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def reader(s3: S3, path: str, **more: str) -> LogFilesReader:
    options = {"storageEndpoint": s3.endpoint, "storageCredentials": "lake", **more}
    return LogFilesReader(LogOptions.parse({"path": path, **options}))


def numbers(reading: LogFilesReader) -> list[int]:
    found = [batch for part in reading.partitions() for batch in reading.read(part)]
    return [int(body.split()[0]) for batch in found for body in batch.column("body").to_pylist()]


def rows(root: Path | str, **more: str) -> list[dict[str, Any]]:
    reading = LogFilesReader(LogOptions.parse({"path": str(root), "table": "damage", **more}))
    found = [
        row for part in reading.partitions() for b in reading.read(part) for row in b.to_pylist()
    ]
    return [{**row, "file": row["file"].rpartition("/")[2]} for row in found]


def test_store_in_s3_has_the_records_of_the_disk_once_and_in_order(s3: S3, name: str) -> None:
    for path in (name, f"{name}/", f"{name}/commitlog", name.replace("s3a:", "s3:")):
        assert numbers(reader(s3, path)) == list(range(COUNT))
    # Each file is one task, however many are wished.
    parts = reader(s3, name, minPartitions="64").partitions()
    assert all(isinstance(part, LogPartition) for part in parts)
    assert numbers(reader(s3, name, minPartitions="64")) == list(range(COUNT))
    assert numbers(reader(s3, name, subscribe="T1")) == list(range(1, COUNT, 3))


def test_file_in_s3_is_read_by_ranges_each_byte_once(
    s3: S3, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    plain = RemoteFile.read

    def noted(self: RemoteFile, at: int, size: int) -> bytes:
        asked.append((at, size))
        return plain(self, at, size)

    reading = reader(s3, name)
    first = reading.partitions()[0]
    monkeypatch.setattr(RemoteFile, "read", noted)
    list(reading.read(first))
    assert sum(size for _, size in asked) <= FILE


@pytest.mark.parametrize(
    ("at", "data"),
    [(90, b"~~~"), (0, b"\xff" * 4), (FILE + 700, bytes(3000)), (2 * FILE + 2, b"\x01" * 30)],
)
def test_damage_in_s3_is_what_it_is_on_a_disk(
    s3: S3, whole: Path, tmp_path: Path, at: int, data: bytes
) -> None:
    copy = Path(shutil.copytree(whole, tmp_path / "copy"))
    with log(copy)[at // FILE].open("r+b") as file:
        file.seek(at % FILE)
        file.write(data)
    prefix = f"damage-{at}"
    for path in log(copy):
        s3.put(f"{prefix}/{path.name}", path.read_bytes())
    given = {"storageEndpoint": s3.endpoint, "storageCredentials": "lake"}
    uri = f"s3a://{BUCKET}/{prefix}"
    there = rows(uri, **given)
    assert there
    assert there == rows(copy)
    local = LogFilesReader(LogOptions.parse({"path": str(copy), "onCorrupt": "report"}))
    assert numbers(reader(s3, uri, onCorrupt="report")) == numbers(local)
    with pytest.raises(Corrupt, match="no record can be read at offset"):
        numbers(reader(s3, uri))


def test_missing_files_of_a_log_in_s3_are_a_gap_and_a_cut_one_is_damage(
    s3: S3, whole: Path, name: str
) -> None:
    second, third = log(whole)[1:3]
    prefix = name.rpartition("/")[2]
    s3.delete(f"{prefix}/commitlog/{second.name}")
    parts = reader(s3, name, onCorrupt="report").partitions()
    gap = next(it for it in parts if isinstance(it, GapPartition))
    assert (gap.folder, gap.begin, gap.end) == (f"{name}/commitlog", FILE, 2 * FILE)
    with pytest.raises(Corrupt, match="no file holds these offsets"):
        numbers(reader(s3, name))
    s3.put(f"{prefix}/commitlog/{second.name}", second.read_bytes())
    s3.put(f"{prefix}/commitlog/{third.name}", third.read_bytes()[:30_000])
    with pytest.raises(Corrupt, match="no record can be read"):
        numbers(reader(s3, name))


def test_files_made_for_later_records_end_a_log_in_s3(s3: S3, whole: Path, name: str) -> None:
    last = int(log(whole)[-1].name)
    prefix = name.rpartition("/")[2]
    s3.put(f"{prefix}/commitlog/{last + FILE:020}", bytes(FILE))
    assert numbers(reader(s3, name)) == list(range(COUNT))


def test_file_that_goes_or_changes_after_the_plan_is_said(s3: S3, whole: Path, name: str) -> None:
    reading = reader(s3, name)
    parts = reading.partitions()
    first = log(whole)[0]
    key = f"{name.rpartition('/')[2]}/commitlog/{first.name}"
    s3.delete(key)
    with pytest.raises(Corrupt, match="the file is gone"):
        list(reading.read(parts[0]))
    s3.put(key, first.read_bytes()[:-1])
    with pytest.raises(Corrupt, match=f"{FILE} bytes when it was planned, {FILE - 1} now"):
        list(reading.read(parts[0]))


@pytest.mark.parametrize("what", ["cut", "gone"])
def test_file_that_goes_or_is_cut_while_it_is_read_fails_the_task(
    s3: S3, whole: Path, name: str, what: str
) -> None:
    reading = reader(s3, name, maxBytesPerBatch="65536", onCorrupt="report")
    parts = reading.partitions()
    last = log(whole)[-1]
    key = f"{name.rpartition('/')[2]}/commitlog/{last.name}"
    found = reading.read(parts[-1])
    next(found)
    if what == "cut":
        s3.put(key, last.read_bytes()[:2000])
    else:
        s3.delete(key)
    with pytest.raises((Corrupt, OSError), match=r"changed while|gone|cut or replaced"):
        list(found)


def test_range_that_comes_back_short_fails_the_scan(
    s3: S3, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = reader(s3, name).partitions()[0]
    assert isinstance(part, LogPartition)
    options = LogOptions.parse(
        {"path": name, "storageEndpoint": s3.endpoint, "storageCredentials": "lake"}
    )
    with RemoteFile(part.file, options.storage) as file:
        monkeypatch.setattr(file, "_opened", _Short())
        scan = native.LogReader(part.file.path, 0, FILE, 0, FILE, read=(file.read, file.size))
        with pytest.raises(Corrupt, match="5 of 65536 bytes came from byte 0 on"):
            scan.next()


def test_reader_over_a_function_takes_no_more_bytes_than_it_asked_for() -> None:
    scan = native.LogReader("x", 0, FILE, 0, FILE, read=(lambda _, size: bytes(size + 1), FILE))
    with pytest.raises(OSError, match="more bytes than were asked for"):
        scan.next()
    with pytest.raises(TypeError):
        native.LogReader("x", 0, FILE, 0, FILE, read=(_text, FILE)).next()


def test_store_that_is_not_there_is_named(s3: S3) -> None:
    for path in (f"s3a://{BUCKET}/nothing", "s3a://no-such-bucket/x"):
        with pytest.raises(UsageError, match=f"'{path}': there is no commit-log file"):
            reader(s3, path).partitions()


def test_keys_are_named_and_never_written(s3: S3, name: str) -> None:
    reading = reader(s3, name)
    assert "canary" not in repr(reading.__dict__)
    with pytest.raises(UsageError, match="storageCredentials") as refused:
        LogOptions.parse({"path": "s3a://canaryKey:canary-secret-71@bucket/x"})
    assert "canary" not in str(refused.value)
    with pytest.raises(UsageError, match="ROQUET_ACCESS_KEY_OTHER"):
        reader(s3, name, storageCredentials="other").partitions()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "s3a:///x"}, "no bucket or host"),
        ({"path": "s3a://b/x", "storageEndpoint": "minio:9000"}, "must be http://HOST:PORT"),
        ({"path": "s3a://b/x", "storageEndpoint": "http://k:s@h:1"}, "must be http://HOST:PORT"),
        ({"path": "s3a://b/x", "storageCredentials": "../x"}, "credentials: a name"),
    ],
)
def test_wrong_options_of_storage_fail_before_anything_is_asked(
    options: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        LogOptions.parse(options)


def test_region_is_that_of_the_options(s3: S3) -> None:
    given = {"path": "s3a://b/x", "storageEndpoint": s3.endpoint, "storageRegion": "eu-west-3"}
    options = LogOptions.parse(given)
    system, _ = opened(given["path"], options.storage)
    assert system.region == "eu-west-3"


def test_hdfs_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(name, raising=False)
    reading = LogFilesReader(LogOptions.parse({"path": "hdfs://names:8020/store"}))
    with pytest.raises(UsageError, match=r"libhdfs\.so .* CLASSPATH=.*webhdfs://"):
        reading.partitions()


def test_other_schemes_are_read_by_fsspec_or_say_that_it_lacks(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory: Any = importlib.import_module("fsspec").filesystem("memory")
    for file in log(whole):
        memory.pipe(f"/store/commitlog/{file.name}", file.read_bytes())
    reading = LogFilesReader(LogOptions.parse({"path": "memory://store"}))
    assert numbers(reading) == list(range(COUNT))
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(UsageError, match="install fsspec"):
        reading.partitions()


def test_server_of_these_tests_is_a_server(s3: S3) -> None:
    with urllib.request.urlopen(s3.endpoint, timeout=10) as answer:
        assert b"ListAllMyBucketsResult" in answer.read()
