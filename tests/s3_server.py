"""An S3 server in this process, on a port of its own: moto's, over real HTTP."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

BUCKET = "backup"


class S3:
    """A bucket; `endpoint` is where it is."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)

    def __enter__(self) -> Self:
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        # It has no types.
        boto3: Any = importlib.import_module("boto3")
        self._client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        self._client.create_bucket(Bucket=BUCKET)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()
        self._server.stop()

    def put(self, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=BUCKET, Key=key, Body=data)

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=BUCKET, Key=key)
