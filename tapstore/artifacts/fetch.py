"""Hands out an artifact's bytes only if they are the ones that were registered.

What the Tapfile says was written by others: paths are checked again, and nothing is written
outside the place that was asked for.  A directory's artifact is its manifest here, except in
`fetch_to`, which recreates the tree.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import IO, Any, BinaryIO

from tapstore.abc import Store
from tapstore.artifacts import destination, external, manifest
from tapstore.artifacts.condemned import is_condemned
from tapstore.artifacts.manifest import Entry, Manifest
from tapstore.artifacts.model import Artifact
from tapstore.artifacts.paths import check_path, describe
from tapstore.artifacts.streams import (
    CHUNK_BYTES,
    Meter,
    Progress,
    VerifyingReader,
    buffered,
    check_checksum,
)
from tapstore.errors import (
    ArtifactNotFoundError,
    ChecksumError,
    FormatError,
    InvalidKeyError,
    NotFoundError,
)

StorageOptions = Mapping[str, Any] | None


@contextmanager
def open_artifact(
    store: Store, artifact: Artifact, *, storage_options: StorageOptions = None
) -> Iterator[BinaryIO]:
    """Open the bytes as a stream that cannot seek.

    The last of them are handed out only after all were found right: reading to the end raises
    `ChecksumError` otherwise.  Who stops before the end has read bytes that nobody verified.
    `storage_options` are for fsspec, where the bytes live elsewhere.
    """
    with _verified(store, artifact, storage_options, None) as stream:
        yield stream


def read_bytes(
    store: Store, artifact: Artifact, *, storage_options: StorageOptions = None
) -> bytes:
    """All bytes, verified."""
    with open_artifact(store, artifact, storage_options=storage_options) as stream:
        return stream.read()


def read_text(
    store: Store,
    artifact: Artifact,
    *,
    encoding: str = "utf-8",
    storage_options: StorageOptions = None,
) -> str:
    """All bytes, verified and decoded.  Line ends are left as they are."""
    data = read_bytes(store, artifact, storage_options=storage_options)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as exc:
        raise FormatError(f"{describe(artifact)} is not {encoding} text: {exc}") from exc


def read_manifest(store: Store, artifact: Artifact) -> Manifest:
    """The files of a directory that was published.  Verified and safe to recreate."""
    what = f"the manifest of {describe(artifact)}"
    if not artifact.manifest or artifact.is_external:
        raise FormatError(f"{describe(artifact)} is not a directory")
    with open_artifact(store, artifact) as stream:
        data = stream.read(manifest.MAX_BYTES + 1)
    if len(data) > manifest.MAX_BYTES:
        raise FormatError(f"{what} is larger than {manifest.MAX_BYTES} bytes")
    return manifest.parse(data, what)


def fetch_to(
    store: Store,
    artifact: Artifact,
    dest: str | os.PathLike[str],
    *,
    inside: str | os.PathLike[str] | None = None,
    on_progress: Progress | None = None,
    storage_options: StorageOptions = None,
) -> str:
    """Copy the artifact to `dest` on this host; return the absolute path.

    It appears there whole and verified, or not at all.  A file replaces the file that is there;
    a directory wants a place that is free or an empty folder.  Give `inside` when `dest` comes
    from somebody else, such as the name of an artifact: then it is relative to that folder, and
    refused if it, or a symbolic link on its way, leads out.
    """
    path = destination.resolve(dest, inside)
    if artifact.manifest:
        tree = read_manifest(store, artifact)
        meter = Meter(tree.total_bytes, on_progress)
        with destination.new_folder(path) as folder:
            for entry in tree.entries:
                with folder.file(entry.path, executable=entry.executable) as file:
                    _copy_object(store, artifact, entry, file, meter)
    else:
        meter = Meter(artifact.size, on_progress)
        with (
            _verified(store, artifact, storage_options, meter) as stream,
            destination.new_file(path) as file,
        ):
            _copy(stream, file)
    meter.add(0)
    return path


@contextmanager
def _verified(
    store: Store, artifact: Artifact, storage_options: StorageOptions, meter: Meter | None
) -> Iterator[BinaryIO]:
    what = describe(artifact)
    checksum = artifact.checksum
    if checksum or not artifact.is_external:
        checksum = check_checksum(checksum, what)
    with ExitStack() as stack:
        if artifact.is_external:
            opened = external.open_uri(artifact, storage_options=storage_options)
            source: IO[bytes] = stack.enter_context(opened)
        else:
            source = stack.enter_context(_open(store, artifact))
        yield buffered(
            VerifyingReader(source, what=what, checksum=checksum, size=artifact.size, meter=meter)
        )


@contextmanager
def _open(store: Store, artifact: Artifact) -> Iterator[BinaryIO]:
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(store.open(check_path(artifact.path)))
        except InvalidKeyError as exc:
            raise InvalidKeyError(f"refused to read {describe(artifact)}: {exc}") from exc
        except NotFoundError as exc:
            raise ArtifactNotFoundError(
                f"{describe(artifact)} is registered with {artifact.checksum}, but its bytes are "
                f"gone from {store.url}: restore that file from a copy, or publish it again"
            ) from exc
        yield stream


def _copy(stream: BinaryIO, file: destination.File) -> None:
    while chunk := stream.read(CHUNK_BYTES):
        file.write(chunk)


def _copy_object(
    store: Store, artifact: Artifact, entry: Entry, file: destination.File, meter: Meter
) -> None:
    """Copy a file of a directory from the first of its names that holds it."""
    what = f"file {entry.path!r} of {describe(artifact)}"
    checksum = f"sha256:{entry.sha256}"
    before = meter.done
    fault: ChecksumError | None = None
    for key in manifest.object_keys(entry.sha256):
        try:
            with store.open(key) as source:
                reader = VerifyingReader(
                    source, what=what, checksum=checksum, size=entry.size, meter=meter
                )
                _copy(buffered(reader), file)
                return
        except ChecksumError as exc:
            # Damaged.  Who published it since has put the right bytes under the next name.
            fault = exc
            file.restart()
            meter.done = before
        except InvalidKeyError as exc:
            raise InvalidKeyError(f"refused to read {what}: {exc}") from exc
        except NotFoundError:
            if not is_condemned(store, key):
                break
    raise fault or ArtifactNotFoundError(
        f"{what} is registered with {checksum}, but its bytes are gone from {store.url} "
        f"({manifest.object_key(entry.sha256)!r}): restore that file from a copy, or publish the "
        "directory again"
    )
