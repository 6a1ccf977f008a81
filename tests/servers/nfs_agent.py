"""Runs in a guest and starts programs there for whoever connects.

    python nfs_agent.py ADDRESS

A connection is one program: a JSON line with `argv`, `env` and `cwd` comes in, a line with a
port goes out, and there three connections are expected, which become its stdin, stdout and
stderr.  Then lines with numbers of signals come in, and the last line that goes out is its exit
status.  A program whose connection ends is killed.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading

PORT = 4040


def serve(address: str) -> None:
    with socket.create_server((address, PORT)) as listener:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=attend, args=(connection, address), daemon=True).start()


def attend(connection: socket.socket, address: str) -> None:
    with connection, connection.makefile("rw") as control:
        request = json.loads(control.readline())
        with socket.create_server((address, 0)) as listener:
            print(listener.getsockname()[1], file=control, flush=True)
            streams = [listener.accept()[0] for _ in range(3)]
        try:
            # Its own session: the signals are for all that it starts.
            process = subprocess.Popen(
                request["argv"], env=request["env"], cwd=request["cwd"], start_new_session=True,
                stdin=streams[0], stdout=streams[1], stderr=streams[2],
            )  # fmt: skip
        except OSError as exc:
            streams[2].sendall(f"{exc}\n".encode())
            print(127, file=control, flush=True)
            return
        finally:
            for each in streams:
                each.close()
        waiter = threading.Thread(target=wait, args=(process, connection))
        waiter.start()
        for line in control:
            send(process, int(line))
        send(process, signal.SIGKILL)
        waiter.join()


def wait(process: "subprocess.Popen[bytes]", connection: socket.socket) -> None:
    status = process.wait()
    with contextlib.suppress(OSError):
        connection.sendall(b"%d\n" % status)


def send(process: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    serve(sys.argv[1])
