"""A small real fsspec filesystem, made like one of an object store, and ways to do it wrong.

Instances of the same `name` share their objects, as clients of a service do.
"""

# ruff: noqa: ARG002 - the signatures are those of fsspec.

from __future__ import annotations

import errno
import io
import threading
import time

from fsspec.spec import AbstractFileSystem

_buckets: dict[str, dict[str, tuple[bytes, int, float]]] = {}
_mutex = threading.Lock()


class BucketFileSystem(AbstractFileSystem):
    """Writes are atomic, and `pipe_file(mode="create")` is exclusive."""

    protocol = "bucket"
    cachable = False
    writes = 0

    def __init__(self, name: str = "b", **options):
        super().__init__(**options)
        self.objects = _buckets.setdefault(name, {})

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        path = self._strip_protocol(path)
        with _mutex:
            if mode == "create" and path in self.objects:
                raise FileExistsError(path)
            self.store(path, value)

    def store(self, path, value):
        BucketFileSystem.writes += 1
        self.objects[path] = (bytes(value), BucketFileSystem.writes, time.time())

    def info(self, path, **kwargs):
        path = self._strip_protocol(path)
        found = self.objects.get(path)
        if found is not None:
            return {"name": path, "type": "file", "size": len(found[0]),
                    "generation": found[1], "mtime": found[2]}  # fmt: skip
        if any(name.startswith(f"{path}/") for name in list(self.objects)):
            return {"name": path, "type": "directory", "size": 0}
        raise FileNotFoundError(path)

    def ls(self, path, detail=True, **kwargs):
        path = self._strip_protocol(path)
        below = f"{path}/" if path else ""
        names = [name for name in list(self.objects) if name.startswith(below)]
        if not names and path:
            return [self.info(path)]
        children = {below + name[len(below) :].partition("/")[0] for name in names}
        found = []
        for child in children:
            if child in self.objects:
                found.append(self.info(child))
            if any(name.startswith(f"{child}/") for name in names):
                found.append({"name": child, "type": "directory", "size": 0})
        return found if detail else [entry["name"] for entry in found]

    def rm_file(self, path):
        with _mutex:
            if self.objects.pop(self._strip_protocol(path), None) is None:
                raise FileNotFoundError(path)

    def cat_file(self, path, start=None, end=None, **kwargs):
        found = self.objects.get(self._strip_protocol(path))
        if found is None:
            raise FileNotFoundError(path)
        return found[0][start:end]

    def put_file(self, lpath, rpath, mode="overwrite", **kwargs):
        with open(lpath, "rb") as file:
            self.pipe_file(rpath, file.read(), mode=mode)

    def _open(self, path, mode="rb", **kwargs):
        assert mode == "rb"
        return io.BytesIO(self.cat_file(path))


class IgnoresTheMode(BucketFileSystem):
    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        super().pipe_file(path, value)


class OverwritesWithNothing(BucketFileSystem):
    """The condition is lost where there are no bytes to send."""

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        super().pipe_file(path, value, mode=mode if value else "overwrite")


class LooksAndThenWrites(BucketFileSystem):
    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        time.sleep(0.002)  # the way to the service
        super().pipe_file(path, value)


class WritesInPieces(BucketFileSystem):
    """Exclusive, but what is being written can be seen."""

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        super().pipe_file(path, value[: len(value) // 2], mode=mode)
        time.sleep(0.002)  # the way to the service
        self.store(self._strip_protocol(path), value)


class RaisesSomethingElse(BucketFileSystem):
    """Exclusive, but the refusal looks like any other error."""

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        try:
            super().pipe_file(path, value, mode=mode)
        except FileExistsError as exc:
            raise OSError(errno.EINVAL, "invalid") from exc


class KnowsNoMode(BucketFileSystem):
    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        if mode != "overwrite":
            raise NotImplementedError("only overwrite")
        super().pipe_file(path, value)


class InheritsIt(BucketFileSystem):
    """What most filesystems do: the base class looks, and then opens for writing."""

    pipe_file = AbstractFileSystem.pipe_file


class WithoutTimes(BucketFileSystem):
    def info(self, path, **kwargs):
        return {key: value for key, value in super().info(path).items() if key != "mtime"}
