"""Full and broken disks, read-only mounts, no permission: a clear error, the old state intact."""

import errno
import os
import warnings
from contextlib import contextmanager

import pytest

import tapstore
from tapstore.errors import OutcomeUnknownError, StoreError
from tapstore.sessions import history
from tapstore.sessions.view import ViewWarning
from tests.rights import as_nobody

CODES = [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EDQUOT]
CALLS = ("open", "write", "fsync", "link", "rename", "replace", "unlink")


@pytest.fixture
def session(tmp_path):
    with tapstore.create(str(tmp_path / "s"), roles=["coder"], phase="start") as session:
        yield session


@contextmanager
def failing(call, number, code):
    """The `number`th time that `call` would change something it fails; yields a list of hits."""
    real = getattr(os, call)
    count, hits = 0, []

    def fail(*args, **kwargs):
        nonlocal count
        # Reading goes on as it does on a full disk or a read-only mount.
        if call != "open" or args[1] & (os.O_WRONLY | os.O_RDWR):
            count += 1
            if count == number:
                hits.append(args)
                raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    setattr(os, call, fail)
    try:
        yield hits
    finally:
        setattr(os, call, real)


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_at_any_time_leaves_the_old_state_or_the_new(session, call, code):
    phases = iter(range(100))
    for number in range(1, 100):
        rev, phase, wanted = session.state.peek().rev, session.phase, f"p{next(phases)}"
        outcome = "committed"
        with failing(call, number, code) as hits, warnings.catch_warnings():
            warnings.simplefilter("ignore", ViewWarning)
            try:
                session.set_phase(wanted)
            except StoreError as exc:
                outcome, message = "refused", str(exc)
            except OutcomeUnknownError:
                outcome = "unknown"
        if outcome == "refused":
            assert os.strerror(code) in message
            assert session.url in message
        found = session.state.peek()
        allowed = {
            "committed": [(rev + 1, wanted)],
            "refused": [(rev, phase)],
            "unknown": [(rev, phase), (rev + 1, wanted)],
        }[outcome]
        assert (found.rev, found.tapfile.current_phase) in allowed, (outcome, number)
        if not hits:
            break
    assert number > 1 or call in ("rename", "replace")
    session.set_phase("end")
    assert session.phase == "end"
    assert list(history.verify(session.state.log)) == []


def test_a_full_disk_says_so_and_what_to_do(session):
    with (
        failing("write", 1, errno.ENOSPC),
        pytest.raises(StoreError, match=r"No space left on device; .*free some space") as caught,
    ):
        session.set_phase("x")
    assert caught.value.errno == errno.ENOSPC


@pytest.fixture
def read_only(tmp_path):
    """A session that may be read by all and written by nobody."""
    place = tmp_path / "s"
    with tapstore.create(str(place), roles=["coder"], phase="start") as session, \
            session.claim("coder", agent="a") as claim:  # fmt: skip
        claim.publish("x", b"bytes")
        claim.complete()
    folders = [place, *(p for p in place.rglob("*") if p.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    for parent in [tmp_path, *tmp_path.parents]:
        if parent.stat().st_uid == os.getuid() and parent not in (parent.parent,):
            parent.chmod(parent.stat().st_mode | 0o055)
    yield place
    for folder in folders:
        folder.chmod(0o755)


def test_who_may_only_read_can_read_everything(read_only):
    def act():
        session = tapstore.open(str(read_only))
        assert session.phase == "start"
        assert session.artifacts["x"].read_bytes() == b"bytes"
        assert len(list(session.log())) == 4

    assert as_nobody(act)


def test_who_may_not_write_is_told_so(read_only):
    def act():
        with pytest.raises(StoreError, match="no permission: check owner and mode"):
            tapstore.open(str(read_only)).set_phase("x")

    assert as_nobody(act)


def test_a_folder_where_a_file_should_be_is_an_error(tmp_path):
    (tmp_path / ".tap" / "session").mkdir(parents=True)
    with pytest.raises(StoreError, match="folder is where a file should be"):
        tapstore.open(str(tmp_path))


def test_a_file_where_a_folder_should_be_is_an_error(tmp_path):
    (tmp_path / ".tap").write_text("x")
    with pytest.raises(StoreError, match="a file is where a folder should be"):
        tapstore.create(str(tmp_path), roles=["coder"])


def test_a_tapfile_that_is_a_folder_does_not_stop_commits(session):
    path = session.store.local_path(".tap/Tapfile")
    os.unlink(path)
    os.mkdir(path)
    with pytest.warns(ViewWarning, match="a folder is where a file should be"):
        session.set_phase("next")
    os.rmdir(path)
    assert session.phase == "next"
    with open(path) as file:
        assert "current_phase: next" in file.read()


@contextmanager
def syncs_that_fail(folder, times):
    """The next `times` syncs of this folder fail; yields how many of it did not."""
    real, wanted, synced = os.fsync, os.stat(folder).st_ino, []

    def fsync(fd):
        nonlocal times
        if os.fstat(fd).st_ino == wanted:
            times -= 1
            if times >= 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            synced.append(fd)
        real(fd)

    os.fsync = fsync
    try:
        yield synced
    finally:
        os.fsync = real


@pytest.fixture
def log_folder(session):
    return session.store.local_path(f"{session.config.prefix}/log/000000000")


@pytest.mark.parametrize("times", [1, 2])
def test_a_commit_whose_log_was_not_synced_is_acknowledged_after_a_sync(session, log_folder, times):
    with syncs_that_fail(log_folder, times) as synced:
        session.set_phase("x")
        assert synced


def test_a_commit_whose_log_can_not_be_synced_is_never_acknowledged(session, log_folder):
    with syncs_that_fail(log_folder, 1000), pytest.raises(OutcomeUnknownError):
        session.set_phase("x")
    session.set_phase("y")
    assert session.phase == "y"
