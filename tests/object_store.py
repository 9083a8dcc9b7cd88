"""An object store that speaks S3, in the process of the test: `moto`, which keeps its objects in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pyarrow import fs

KEY, SECRET = "testing-key", "testing/secret"
BUCKET = "bucket"


class ObjectStore:
    """A server with one bucket. It can be stopped, and started again at the same place with the same objects."""

    def __init__(self, server: Any) -> None:
        self._server = server
        server.start()
        host, port = server.get_host_and_port()
        self.endpoint = f"{host}:{port}"
        self.system = fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region="us-east-1",
            scheme="http",
            endpoint_override=self.endpoint,
            allow_bucket_creation=True,
        )
        self.system.create_dir(BUCKET)

    def uri(self, folder: str, bucket: str = BUCKET) -> str:
        """Where state may be, with the credentials: Spark's workers have no others."""
        secret = SECRET.replace("/", "%2F")
        options = f"region=us-east-1&scheme=http&endpoint_override={self.endpoint}"
        return f"s3://{KEY}:{secret}@{bucket}/{folder}?{options}"

    def objects(self, folder: str) -> dict[str, bytes]:
        """What is below a folder; directories that pyarrow notes as objects are left out."""
        selector = fs.FileSelector(f"{BUCKET}/{folder}", recursive=True, allow_not_found=True)
        found = [info for info in self.system.get_file_info(selector) if info.type == fs.FileType.File]
        return {info.path.removeprefix(f"{BUCKET}/{folder}/"): self.get(info.path) for info in found}

    def names(self, folder: str) -> set[str]:
        """Names of `objects`."""
        selector = fs.FileSelector(f"{BUCKET}/{folder}", recursive=True, allow_not_found=True)
        found = [info for info in self.system.get_file_info(selector) if info.type == fs.FileType.File]
        return {info.path.removeprefix(f"{BUCKET}/{folder}/") for info in found}

    def get(self, path: str) -> bytes:
        with self.system.open_input_file(path) as file:
            return bytes(file.read())

    def put(self, folder: str, name: str, data: bytes) -> None:
        with self.system.open_output_stream(f"{BUCKET}/{folder}/{name}", compression=None) as file:
            file.write(data)

    def delete(self, folder: str, name: str) -> None:
        self.system.delete_file(f"{BUCKET}/{folder}/{name}")

    def clear(self) -> None:
        self.system.delete_dir_contents(BUCKET)

    def stop(self) -> None:
        """The store is away: nobody answers at its address."""
        self._server.stop()

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        host, port = self.endpoint.split(":")
        self._server = ThreadedMotoServer(host, int(port), verbose=False)
        self._server.start()


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectStore]:
    """One for all tests."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed: no object store to test with")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    made = ObjectStore(moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False))
    yield made
    made.stop()


@pytest.fixture
def object_store(object_server: ObjectStore) -> Iterator[ObjectStore]:
    """The one for all tests, without what other tests put there: pytest gives a folder's name twice."""
    yield object_server
    object_server.clear()


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The cache of this machine is a new folder for each test, also in the processes that it starts."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CROSSSTREAM_CACHE", str(folder))
    return folder
