"""Ceph's S3 gateway, from Debian's packages, on a store in memory: real, and fast when many race.

It keeps the conditions of PUT if the ETag of If-Match comes without quotes (with them it answers
412), and ignores those of CompleteMultipartUpload and DeleteObject.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.servers.process import (
    Process,
    ServerFailedError,
    find_program,
    free_ports,
    retried,
    run,
    temporary_folder,
)
from tests.servers.s3 import KEY, SECRET, S3Server

HOW = "make servers"
PROGRAMS = (
    "ceph",
    "ceph-authtool",
    "ceph-mon",
    "ceph-osd",
    "monmaptool",
    "radosgw",
    "radosgw-admin",
)
CAPABILITIES = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *", "mgr": "allow *"},
    "osd.0": {"mon": "allow profile osd", "osd": "allow *"},
    "client.rgw.a": {"mon": "allow rw", "osd": "allow rwx"},
}


@contextmanager
def server() -> Iterator[S3Server]:
    """Run one monitor, one store and the gateway."""
    programs = {name: find_program(name, HOW) for name in PROGRAMS}
    with ExitStack() as stack:
        cluster = retried(lambda: _Cluster(programs, stack))
        endpoint = f"http://127.0.0.1:{cluster.port}"
        yield S3Server("radosgw", endpoint, cluster.gateway.pid, stop=cluster.stop)


class _Cluster:
    """Starts all that belongs to a gateway; `stack` ends it."""

    def __init__(self, programs: dict[str, Path], stack: ExitStack) -> None:
        # A folder for each try: a monitor that has begun can't begin again.
        self._folder = stack.enter_context(temporary_folder("radosgw"))
        self._programs = programs
        self._processes: list[Process] = []
        stack.callback(self._kill)
        self.port, self._monitor_port = free_ports(2)
        self._store = str(uuid.uuid4())
        try:
            self._start_monitor()
            self._start_store()
            self.gateway = self._start_gateway()
        except ServerFailedError:
            self._kill()
            raise

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.stop()

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()

    def _start_monitor(self) -> None:
        for name in ("mon", "osd", "run"):
            (self._folder / name).mkdir()
        cluster = str(uuid.uuid4())
        address = f"[v2:127.0.0.1:{self._monitor_port}]"
        (self._folder / "ceph.conf").write_text(self._configuration(cluster, address))
        self._run("monmaptool", "--create", "--fsid", cluster, "--addv", "a", address, "monmap")
        keyring = self._folder / "keyring"
        keyring.touch(mode=0o600)
        for name, capabilities in CAPABILITIES.items():
            granted = [word for pair in capabilities.items() for word in ("--cap", *pair)]
            self._run("ceph-authtool", keyring, "--gen-key", "--name", name, *granted)
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", "monmap", "--keyring", keyring)
        monitor = self._process("ceph-mon", "-f", "-i", "a")
        monitor.wait_until(lambda: monitor.listens_on(self._monitor_port), "listening")

    def _start_store(self) -> None:
        self._run("ceph", "--connect-timeout", "30", "osd", "new", self._store, "0")
        self._run("ceph-osd", "--mkfs", "-i", "0", "--osd-uuid", self._store)
        store = self._process("ceph-osd", "-f", "-i", "0")
        store.wait_until(lambda: "1 up" in self._run("ceph", "osd", "stat"), "up")

    def _start_gateway(self) -> Process:
        gateway = self._process("radosgw", "-f", "-n", "client.rgw.a")
        gateway.wait_until(lambda: gateway.listens_on(self.port), "listening")
        user = ["--uid=test", "--display-name=test"]
        keys = [f"--access-key={KEY}", f"--secret-key={SECRET}"]
        self._run("radosgw-admin", "user", "create", *user, *keys)
        return gateway

    def _run(self, name: str, *arguments: str | Path) -> str:
        return run([self._programs[name], *arguments], self._folder, self._env)

    def _process(self, name: str, *arguments: str) -> Process:
        program = [self._programs[name], *arguments]
        process = Process(name, program, self._folder, env=self._env)
        self._processes.append(process)
        return process

    @property
    def _env(self) -> dict[str, str]:
        return {"CEPH_CONF": str(self._folder / "ceph.conf")}

    def _configuration(self, cluster: str, monitor: str) -> str:
        folder = self._folder
        settings = {
            "fsid": cluster,
            "mon host": monitor,
            "mon initial members": "a",
            "ms bind msgr1": "false",
            "public addr": "127.0.0.1",
            "cluster addr": "127.0.0.1",
            "keyring": folder / "keyring",
            "auth allow insecure global id reclaim": "false",
            "mon data": folder / "mon",
            "osd data": folder / "osd",
            "rgw data": folder / "run",
            "run dir": folder / "run",
            "crash dir": folder / "run",
            "pid file": folder / "run/$type.$id.pid",
            "admin socket": folder / "run/$name.$pid.asok",
            "log file": folder / "$name.messages",
            # Nothing on disk: it must be fast, not durable.
            "osd objectstore": "memstore",
            "memstore device bytes": 4 * 2**30,
            "osd memory target": 2**30,
            "osd pool default size": 1,
            "osd pool default min size": 1,
            "osd pool default pg num": 8,
            "osd pool default pgp num": 8,
            "osd pool default pg autoscale mode": "off",
            "osd crush chooseleaf type": 0,
            "osd crush initial weight": 1,
            "osd max object name len": 1024,
            "mon allow pool size one": "true",
            "mon warn on pool no redundancy": "false",
            # The disk of who runs the tests may be nearly full.
            "mon data avail crit": 1,
            "mon osd full ratio": 0.97,
            "mon osd backfillfull ratio": 0.96,
            "mon osd nearfull ratio": 0.95,
            "paxos propose interval": 0.05,
            # Without tcp_nodelay an answer waits 40 ms for the client's acknowledgement.
            "rgw frontends": f"beast endpoint=127.0.0.1:{self.port} tcp_nodelay=1",
            "rgw enable usage log": "false",
            "rgw thread pool size": 64,
            "rgw dns name": "",
        }
        return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())
