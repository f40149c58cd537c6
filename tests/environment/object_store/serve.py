"""Runs an object store with S3's API in one process: OpenStack Swift, its proxy, account, container and object servers.

usage: serve.py FOLDER. Writes the endpoint once it answers, and ends when its input ends. The user is `test:tester`,
the key `testing`, the region `us-east-1`.
"""

import sys
from pathlib import Path
from typing import Any

import eventlet

eventlet.monkey_patch()

from eventlet import wsgi  # noqa: E402
from swift.common import utils  # noqa: E402
from swift.common.ring import RingBuilder  # noqa: E402
from swift.common.storage_policy import reload_storage_policies  # noqa: E402
from swift.common.wsgi import SwiftHttpProtocol, loadapp  # noqa: E402
from swift.obj.diskfile import DiskFileManager  # noqa: E402, F401 (fails here where xattr is missing)

_HOST = "127.0.0.1"
_PARTS_POWER = 2
_FILTERS = "catch_errors gatekeeper healthcheck listing_formats bulk s3api tempauth slo dlo"
_PROXY = """
[DEFAULT]
swift_dir = {swift_dir}
[pipeline:main]
pipeline = {filters} proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
allow_account_management = true
"""
#: Settings of a filter besides its name.
_OPTIONS = {
    "s3api": "location = us-east-1\ns3_acl = false\ncheck_bucket_owner = false\nmin_segment_size = 5242880\n",
    "tempauth": "user_test_tester = testing .admin\n",
}
_STORAGE = """
[DEFAULT]
swift_dir = {swift_dir}
devices = {devices}
mount_check = false
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""


def main(folder: Path) -> None:
    """Serve until the input ends."""
    sockets = {kind: eventlet.listen((_HOST, 0), backlog=128) for kind in ("account", "container", "object", "proxy")}
    _configure(folder, {kind: item.getsockname()[1] for kind, item in sockets.items()})
    for kind, item in sockets.items():
        app = loadapp(str(folder / f"{kind}.conf"), global_conf={"log_level": "ERROR"})
        eventlet.spawn(wsgi.server, item, app, log=_Silence(), log_output=False, protocol=SwiftHttpProtocol)
    sys.stdout.write(f"http://{_HOST}:{sockets['proxy'].getsockname()[1]}\n")
    sys.stdout.flush()
    eventlet.tpool.execute(sys.stdin.read)


def _configure(folder: Path, ports: dict[str, int]) -> None:
    """Write the settings of four servers with one disk, a folder, and the rings that lead to it."""
    devices = folder / "devices"
    (devices / "disk").mkdir(parents=True)
    (folder / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = tests\n[storage-policy:0]\nname = one\n")
    utils.set_swift_dir(str(folder))
    utils.HASH_PATH_SUFFIX = b"tests"
    reload_storage_policies()
    for kind in ("account", "container", "object"):
        ring = RingBuilder(_PARTS_POWER, 1, 1)
        place = {"region": 1, "zone": 1, "weight": 1.0, "ip": _HOST, "port": ports[kind], "device": "disk"}
        ring.add_dev({"id": 0, "replication_ip": _HOST, "replication_port": ports[kind], "meta": "", **place})
        ring.rebalance()
        ring.get_ring().save(str(folder / f"{kind}.ring.gz"))
        (folder / f"{kind}.conf").write_text(_STORAGE.format(swift_dir=folder, devices=devices, kind=kind))
    filters = [f"[filter:{name}]\nuse = egg:swift#{name}\n{_OPTIONS.get(name, '')}" for name in _FILTERS.split()]
    proxy = _PROXY.format(swift_dir=folder, filters=_FILTERS) + "".join(filters)
    (folder / "proxy.conf").write_text(proxy)


class _Silence:
    def write(self, _: str) -> None:
        """Take what is logged."""

    def info(self, *_: Any) -> None:
        """Take what is logged."""

    debug = warning = error = exception = info


if __name__ == "__main__":
    main(Path(sys.argv[1]))
