"""NFS for real: Ganesha serves a folder to guests that mount it with the NFS client of Linux.

    with nfs.server(version="4.2", clients=2, clock_offsets=(0, 3600)) as running:
        running.clients[0].run(["touch", "here"])

Each guest is a kernel of its own (user-mode Linux, so the host's needs no NFS), with its own
caches, host name, pids and clock.  Programs of the host, and of this project, run in it by their
paths.  Server and guests are on a network of their own.  All of it needs root.

Not real: NLM, the locks of NFS v3, for which `nolock` is mounted; power failures of the server.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.servers import nfs_network
from tests.servers.nfs_client import MOUNT, Client
from tests.servers.nfs_network import Network, network
from tests.servers.process import Process, ServerMissingError, find_program, temporary_folder

Version = Literal["3", "4.2"]

HOW = "make servers"
PROGRAMS = ("ganesha.nfsd", "rpcbind", "linux.uml", "mount.nfs", "modprobe", "ip", "unshare")
HERE = Path(__file__).resolve().parent

GUEST_MEGABYTES = 512

OPTIONS: dict[str, tuple[str, ...]] = {
    "3": ("vers=3", "nolock", "port=2049", "mountport=20048", "proto=tcp", "mountproto=tcp"),
    "4.2": ("vers=4.2",),
}

CONFIGURATION = """\
NFS_CORE_PARAM {{ Protocols = 3, 4; mount_path_pseudo = true; NFS_Port = 2049; MNT_Port = 20048; }}
NFSV4 {{ Graceless = true; Minor_Versions = 0, 1, 2; RecoveryBackend = fs; Lease_Lifetime = 20; }}
LOG {{ Default_Log_Level = EVENT; }}
EXPORT {{
  Export_Id = 1; Path = {export}; Pseudo = /export; Protocols = 3, 4; Transports = TCP;
  Access_Type = RW; Squash = No_Root_Squash; Sectype = sys; FSAL {{ Name = VFS; }}
}}
"""

# What is served lies in memory: it need not outlive anything, and the tests sync much.
# Ganesha does not start without a portmapper, and both have fixed places for their files.
SERVE = """\
mount -t tmpfs tmpfs "$1/export"
mount -t tmpfs tmpfs /run
mkdir -p /run/ganesha /run/rpcbind /var/lib/nfs/ganesha
mount -t tmpfs tmpfs /var/lib/nfs/ganesha
rpcbind -f &
until [ -S /run/rpcbind.sock ]; do sleep 0.02; done
exec ganesha.nfsd -F -f "$1/ganesha.conf" -L /dev/stdout -p /run/ganesha.pid
"""


@dataclass(frozen=True)
class Server:
    """A running server, and the guests that have mounted it."""

    version: Version
    export: Path
    """The folder that is served, as the server sees it, for an oracle to read.

    What is written here is not seen by the server, which believes to be the only one.
    """
    clients: tuple[Client, ...]
    process: Process

    def mount(self, client: Client, *options: str, at: str = MOUNT) -> None:
        """Mount the export (once more) with these options."""
        client.check(["mkdir", "-p", at], cwd="/")
        every = ",".join((*OPTIONS[self.version], *options))
        source = f"{nfs_network.SERVER}:/export"
        client.check(["mount.nfs", source, at, "-o", every], cwd="/")


@contextmanager
def server(
    *,
    version: Version = "4.2",
    clients: int = 2,
    clock_offsets: Sequence[float] = (),
    options: Sequence[str] = (),
) -> Iterator[Server]:
    """Run a server with so many guests; the clock of each is so many seconds ahead."""
    if os.geteuid() != 0:
        raise ServerMissingError("an NFS server and its clients need root")
    for program in PROGRAMS:
        find_program(program, HOW)
    if not os.path.exists("/dev/net/tun"):
        raise ServerMissingError("guests need /dev/net/tun, which this host does not have")
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("nfs"))
        net = stack.enter_context(network())
        export = folder / "export"
        export.mkdir()
        (folder / "ganesha.conf").write_text(CONFIGURATION.format(export=export))
        serving = _start(
            net,
            stack,
            "ganesha",
            ["unshare", "--mount", "sh", "-ec", SERVE, "-", str(folder)],
            folder,
        )
        guests = tuple(_guest(number, net, stack, folder) for number in range(1, clients + 1))
        serving.wait_until(
            lambda: "NFS SERVER INITIALIZED" in serving.log.read_text(errors="replace"), "serving"
        )
        seen_by_server = Path(f"/proc/{serving.pid}/root{export}")
        running = Server(version, seen_by_server, guests, serving)
        for number, guest in enumerate(guests):
            guest.wait_until_up()
            running.mount(guest, *options)
            if number < len(clock_offsets) and clock_offsets[number]:
                guest.check(["date", "--set", f"{clock_offsets[number]:+.0f} seconds"])
        yield running


def _guest(number: int, net: Network, stack: ExitStack, folder: Path) -> Client:
    name, address, device = f"guest{number}", f"192.0.2.{10 + number}", f"tap{number}"
    net.add_guest(device, address)
    start = [str(HERE / "nfs_guest.sh"), name, address, nfs_network.SERVER]
    program = [
        "linux.uml", f"mem={GUEST_MEGABYTES}M", "rootfstype=hostfs", "rootflags=/", "ro",
        "quiet", "loglevel=3", "con=null", "con0=null,fd:1", f"umid={folder.name}-{number}",
        f"uml_dir={folder}", f"vec0:transport=tap,ifname={device},depth=128,gro=1",
        f"init={start[0]}", "--", *start[1:], sys.executable, str(HERE / "nfs_agent.py"),
    ]  # fmt: skip
    process = _start(net, stack, name, program, folder, env={"TMPDIR": _memory_folder(folder)})
    return Client(name, address, process, net.connect)


def _start(
    net: Network,
    stack: ExitStack,
    name: str,
    program: list[str],
    folder: Path,
    env: dict[str, str] | None = None,
) -> Process:
    process = net.inside(lambda: Process(name, program, folder, env=env))
    stack.callback(process.kill)
    return process


def _memory_folder(folder: Path) -> str:
    """Where a guest keeps its memory, a file that has no name: in memory, if that is enough."""
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError:
        free = 0
    return "/dev/shm" if free > 4 * GUEST_MEGABYTES * 2**20 else str(folder)
