"""LocalStore where the place says no, for real: modes, users, limits."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from tapstore.errors import StoreError
from tapstore.keys import TEMP_MARK
from tapstore.stores.local import LocalStore
from tapstore.types import OVERWRITE

NOBODY = 65534

spawn = multiprocessing.get_context("spawn")


def drop_rights():
    # Modes do not hold for root.
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def limit_file_size():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))


def answer(root, prepare, action, arguments, answers):
    store = LocalStore(root)
    prepare()
    try:
        answers.put(("done", None, action(store, *arguments)))
    except StoreError as exc:
        answers.put((type(exc).__name__, exc.errno, str(exc)))


def in_a_process(root, prepare, action, *arguments):
    """What `action` gives in a process that has prepared itself: how, errno, message or result."""
    answers = spawn.Queue()
    child = spawn.Process(target=answer, args=(root, prepare, action, arguments, answers))
    child.start()
    found = answers.get(timeout=60)
    child.join(60)
    return found


def read(store):
    return store.get("a/b").data


def names(store):
    return [info.key for info in store.list()]


def children(store):
    return list(store.children())


def write(store, key, size=3):
    store.put(key, b"x" * size, OVERWRITE)


def delete(store):
    store.delete("a/b")


@pytest.fixture
def root():
    """A folder that other users can reach, with the key `a/b`."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    root = folder / "root"
    LocalStore(root).put("a/b", b"old")
    yield root
    for path in (root, root / "a"):
        path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture
def read_only(root):
    for path in (root / "a", root):
        path.chmod(0o555)
    return root


def test_a_read_only_folder_can_be_read(read_only):
    assert in_a_process(read_only, drop_rights, read) == ("done", None, b"old")


def test_a_read_only_folder_can_be_listed(read_only):
    assert in_a_process(read_only, drop_rights, names) == ("done", None, ["a/b"])


@pytest.mark.parametrize("key", ["a/b", "a/new", "new/folder/key"])
def test_a_read_only_folder_refuses_writes_with_advice(read_only, key):
    kind, code, message = in_a_process(read_only, drop_rights, write, key)
    assert (kind, code) == ("StoreError", errno.EACCES)
    assert repr(key) in message
    assert "no permission" in message


def test_a_read_only_folder_refuses_deletes(read_only):
    kind, code, _ = in_a_process(read_only, drop_rights, delete)
    assert (kind, code, (read_only / "a/b").read_bytes()) == ("StoreError", errno.EACCES, b"old")


def test_a_file_that_may_not_be_read_is_an_error_and_not_missing(root):
    (root / "a/b").chmod(0)
    kind, code, message = in_a_process(root, drop_rights, read)
    assert (kind, code) == ("StoreError", errno.EACCES)
    assert "no permission" in message


def test_a_folder_that_may_not_be_listed_is_an_error_and_not_empty(root):
    (root / "a").chmod(0)
    kind, code, _ = in_a_process(root, drop_rights, names)
    assert (kind, code) == ("StoreError", errno.EACCES)


def test_a_folder_that_may_not_be_listed_hides_nothing_beside_it(root):
    (root / "a").chmod(0)
    (root / "c").touch()
    assert in_a_process(root, drop_rights, children)[2] == ["a/", "c"]


def test_a_write_that_does_not_fit_leaves_the_old_state_and_no_rest(root):
    kind, code, message = in_a_process(root, limit_file_size, write, "a/b", 100_000)
    assert (kind, code) == ("StoreError", errno.EFBIG)
    assert "larger than" in message
    assert (root / "a/b").read_bytes() == b"old"
    assert not [path for path in (root / "a").iterdir() if path.name.startswith(TEMP_MARK)]
