"""File systems of URIs, for the driver and for tasks: PyArrow's, or else fsspec's.

Keys come from the environment of each process and never from an option or a URI, which Spark shows
in its pages, plans and event logs. Hadoop's settings (`fs.s3a.access.key`) are not read: the Python
of a source has no session, and keys of a session would travel with each plan.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import urllib.parse
from typing import TYPE_CHECKING, Any, Final, Self

from roquet.acl.credentials import check_name, from_environment
from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from roquet.acl.credentials import Credentials
    from roquet.spark.option_table import Given

CONNECT_S: Final = 10
REQUEST_S: Final = 60
TRIES: Final = 5
URI: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_S3: Final = ("s3", "s3a", "s3n")
_AZURE: Final = ("abfs", "abfss")
_HDFS: Final = ("hdfs", "viewfs")
_ARROW: Final = (*_S3, *_AZURE, *_HDFS, "gs", "gcs")
_NEEDS_HDFS: Final = (
    "PyArrow reads HDFS by Hadoop's library libhdfs. On the driver and on every worker it needs"
    " libhdfs.so in HADOOP_HOME/lib/native or ARROW_LIBHDFS_DIR, a JDK in JAVA_HOME, and"
    " CLASSPATH=$(hadoop classpath --glob). Without these: pip install fsspec requests, and name"
    " the path webhdfs://HOST:9870/..."
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where an object store is and whose keys open it; nothing secret."""

    endpoint: str | None = None
    """`http://host:port` or `https://…`; None: the service that the scheme is named after."""
    region: str | None = None
    credentials: str | None = None
    """The name of keys in the environment; None: what the file system finds by itself."""

    @classmethod
    def of(cls, options: Given) -> Self:
        """Read options. Raises UsageError."""
        endpoint = options.text("storageEndpoint") or None
        if endpoint is not None:
            _endpoint(endpoint)
        name = options.text("storageCredentials") or None
        if name is not None:
            check_name(name)
        region = options.text("storageRegion") or None
        return cls(endpoint=endpoint, region=region, credentials=name)


def check(uri: str) -> None:
    """Raise UsageError for a URI that names no bucket or host, or has a password in it."""
    scheme, host, _ = _parts(uri)
    user, at, _ = host.rpartition("@")
    if at and (":" in user or scheme in _S3):
        # Not repeated: it would be in the log.
        raise UsageError(f"path = {scheme}://…: keys in a path are shown; name storageCredentials")
    if not host and scheme not in _HDFS:
        raise UsageError(f"path = {uri[:200]!r}: no bucket or host is named")


def opened(uri: str, storage: Storage) -> tuple[Any, str]:
    """Return PyArrow's file system of a URI and the path there, without `/` at its end.

    Raises UsageError with what has to be installed, or for a name without keys; OSError.
    """
    scheme, host, path = _parts(uri)
    keys = (
        None if storage.credentials is None else from_environment(os.environ, storage.credentials)
    )
    if scheme not in _ARROW:
        return _by_fsspec(uri, scheme, storage)
    try:
        if scheme in _S3:
            return _s3(host, storage, keys), f"{host}/{path}".rstrip("/")
        if storage.endpoint is not None or (keys is not None and scheme not in _AZURE):
            raise UsageError(f"path = {uri[:200]!r}: storageEndpoint and keys by name are for S3")
        if scheme in _AZURE and keys is not None:
            return _azure(host, keys), f"{host.partition('@')[0]}/{path}".rstrip("/")
        return _by_uri(scheme, host, path)
    except ImportError as error:
        raise UsageError(f"path = {uri[:200]!r}: this PyArrow has no {scheme}: {error}") from error


# --- inside --------------------------------------------------------------------------------------


def _parts(uri: str) -> tuple[str, str, str]:
    found = URI.match(uri)
    assert found is not None
    host, _, path = uri[found.end() :].partition("/")
    return found[1].lower(), host, path.strip("/")


def _endpoint(text: str) -> tuple[str, str]:
    """Return scheme and `host:port`. Raises UsageError."""
    found = urllib.parse.urlsplit(text)
    wrong = found.scheme not in {"http", "https"} or not found.netloc or found.path.strip("/")
    if wrong or "@" in found.netloc or found.query:
        raise UsageError("storageEndpoint: must be http://HOST:PORT or https://HOST")
    return found.scheme, found.netloc


def _s3(bucket: str, storage: Storage, keys: Credentials | None) -> Any:
    from pyarrow import fs  # noqa: PLC0415  (slow to import)

    given: dict[str, Any] = {}
    if keys is not None:
        given = {"access_key": keys.access_key, "secret_key": keys.secret_key}
        given["session_token"] = keys.security_token or None
    region = storage.region
    if storage.endpoint is not None:
        given["scheme"], given["endpoint_override"] = _endpoint(storage.endpoint)
    elif region is None and not (os.environ.get("AWS_REGION") or _other_endpoint()):
        region = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        region=region,
        connect_timeout=CONNECT_S,
        request_timeout=REQUEST_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=TRIES),
        **given,
    )


def _other_endpoint() -> bool:
    return any(os.environ.get(name) for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"))


def _azure(host: str, keys: Credentials) -> Any:
    from pyarrow import fs  # noqa: PLC0415

    account = host.partition("@")[2].partition(".")[0]
    return fs.AzureFileSystem(account_name=account, account_key=keys.secret_key)


def _by_uri(scheme: str, host: str, path: str) -> tuple[Any, str]:
    from pyarrow import fs  # noqa: PLC0415

    try:
        system, root = fs.FileSystem.from_uri(f"{scheme}://{host}/")
    except (OSError, ValueError) as error:
        why = str(error).partition("\n")[0][:200]
        more = f". {_NEEDS_HDFS}" if scheme in _HDFS else ""
        raise UsageError(f"path = {scheme}://{host}/: {why}{more}") from None
    return system, f"{root.rstrip('/')}/{path}".rstrip("/")


def _by_fsspec(uri: str, scheme: str, storage: Storage) -> tuple[Any, str]:
    from pyarrow import fs  # noqa: PLC0415

    if storage != Storage():
        raise UsageError(f"path = {uri[:200]!r}: the storage options are for S3 and Azure")
    try:
        # It has no types, and need not be installed.
        fsspec: Any = importlib.import_module("fsspec.core")
    except ImportError as error:
        raise UsageError(
            f"path = {uri[:200]!r}: PyArrow reads {', '.join(f'{it}://' for it in _ARROW)}; for"
            f" {scheme}:// install fsspec, and what it needs for it, on the driver and all workers"
        ) from error
    try:
        system, path = fsspec.url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise UsageError(f"path = {uri[:200]!r}: fsspec: {error}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(system)), str(path).rstrip("/")
