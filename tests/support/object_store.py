"""A real object store with S3's API on this machine: OpenStack Swift, from an overlay of the test environment."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def s3_client(variables: dict[str, str]) -> Any:
    import botocore.session

    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        region_name=variables["AWS_DEFAULT_REGION"],
    )
