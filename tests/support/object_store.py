"""A real object store with S3's API on this machine: OpenStack Swift, from an overlay of the test environment."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, build_opener

import pytest

_SERVER = Path(__file__).parents[1] / "environment" / "object_store" / "serve.py"


def object_store_packages() -> Path:
    """Return the folder with the server's packages, or skip where there is none."""
    folder = Path(f"{sys.prefix}-object-store")
    if not (folder / "lock.txt").is_file():
        pytest.skip(f"no {folder}: tests/environment/install_object_store makes it")
    return folder


@contextmanager
def running_object_store(folder: Path) -> Iterator[dict[str, str]]:
    """Give the environment variables with which clients reach a store that keeps its objects in a folder."""
    variables = {**os.environ, "PYTHONPATH": str(object_store_packages()), "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(
        [sys.executable, str(_SERVER), str(folder)],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        endpoint = process.stdout.readline().strip()
        assert endpoint, process.communicate()[1]
        yield {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "test:tester",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
        process.stdout.close()
        process.stderr.close() if process.stderr is not None else None


@contextmanager
def store_that_fails(endpoint: str, wanted: str, *, is_cut: bool) -> Iterator[str]:
    """Give the endpoint of a proxy that answers requests for paths with `wanted` with 500, or cuts their connection."""

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if wanted in self.path and is_cut:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if wanted in self.path:
                status, headers, body = 500, [], b"<Error><Code>InternalError</Code></Error>"
            else:
                request = Request(endpoint + self.path, headers=dict(self.headers), method=self.command)
                with self._ask(request) as answer:
                    status, headers, body = answer.status, answer.getheaders(), answer.read()
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                    self.send_header(name, value)
            length = dict(headers).get("Content-Length", len(body)) if self.command == "HEAD" else len(body)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 (the name that the base class looks up)

        def _ask(self, request: Request) -> Any:
            try:
                return build_opener().open(request)
            except HTTPError as answer:
                return answer

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def s3_client(variables: dict[str, str]) -> Any:
    import botocore.session

    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        region_name=variables["AWS_DEFAULT_REGION"],
    )
