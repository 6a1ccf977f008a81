"""What is no message is refused with the reason, stays where it is, and bars nobody."""

from __future__ import annotations

import os

import pytest

from tapstore.errors import FormatError, InvalidKeyError, NotFoundError
from tapstore.handoffs import message as messages
from tapstore.handoffs.draft import DraftError
from tapstore.handoffs.swarm import files, opening, roles
from tapstore.handoffs.swarm.folder import Folder
from tapstore.testing.clock import ManualClock
from tests.unit.swarm_world import Swarm, age, parsed, text_of

MODES = {"coder": "task", "cleaner": "task", "QA": "batch"}
LATER = ManualClock(wall=4e9)
GOOD = text_of("coder", "cleaner", "x")
COPY = text_of("coder", "cleaner", "x", recipient="cleaner")

HOSTILE = {
    "no headers at all": "",
    "a header twice": GOOD.replace("to: cleaner\n", "to: cleaner\nto: QA\n"),
    "a newline in a header": GOOD.replace("from: coder", "from: co\u2028der"),
    "a carriage return in a header": GOOD.replace("from: coder", "from: co\rder"),
    "a role that is a path": GOOD.replace("to: cleaner", "to: .."),
    "a deep path": GOOD.replace("to: cleaner", "to: ../../../etc"),
    "an id that is a path": GOOD.replace("id: 2026", "id: ../2026"),
    "a priority that is none": GOOD.replace("priority: 50", "priority: 5"),
    "no recipient": GOOD.replace("to: cleaner\n", ""),
    "no id": GOOD.partition("\n")[2],
    "a long line": GOOD.replace("message: x", "message: " + "x" * 10_000_000),
    "NUL": GOOD.replace("\n\nRe-read", "\n\n\0Re-read"),
    "no text": b"\xff\xfe" + GOOD.encode("utf-16-le"),
}


@pytest.fixture
def swarm(tmp_path):
    return Swarm(tmp_path / "project", MODES)


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    age(path, 3600)
    return path


def assert_works(swarm, role="cleaner"):
    swarm.send("coder", role, "good")
    accepted = swarm.box(role).next()
    assert [item.message.headers["message"] for item in accepted.items] == ["good"]
    swarm.box(role).done()
    assert swarm.box(role).next() is None


@pytest.mark.parametrize("what", HOSTILE)
def test_what_lies_in_an_outbox_and_is_no_message_fails_with_the_reason(swarm, what):
    name = "00_20261201T000000Z_000001_from_coder_to_cleaner.handoff"
    put(swarm.folder("coder", "outbox", name), HOSTILE[what])
    (delivery,) = swarm.box("QA").deliver()
    assert delivery.failed
    assert swarm.names("coder") == [f"failed/{name}"]
    (entry,) = swarm.box("coder").entries()
    assert entry.reason
    assert "\n" not in entry.reason
    assert_works(swarm)


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("role", ["cleaner", "QA"])
def test_what_lies_in_an_inbox_and_is_no_message_stays_and_bars_nobody(swarm, what, role):
    name = "00_20261201T000000Z_000001_from_coder_to_x.handoff"
    path = put(swarm.folder(role, "inbox", "new", name), HOSTILE[what])
    assert_works(swarm, role)
    assert path.exists()
    (entry,) = swarm.box(role).entries()
    assert (entry.standing, entry.place, bool(entry.reason)) == ("delivered", str(path), True)


def links(swarm, place, name):
    """Things that are no regular file under the name of a message."""
    secret = put(swarm.project / "secret", COPY)
    place.mkdir(parents=True, exist_ok=True)
    (place / f"00_{name}").symlink_to(secret)
    (place / f"01_{name}").symlink_to("nowhere")
    (place / f"02_{name}").mkdir()
    os.mkfifo(place / f"03_{name}")
    return secret


@pytest.mark.parametrize("role", ["cleaner", "QA"])
@pytest.mark.parametrize("folder", ["new", "in_process"])
def test_links_pipes_and_folders_in_an_inbox_are_not_followed(swarm, role, folder):
    name = "20261201T000000Z_000001_from_coder_to_x.handoff"
    secret = links(swarm, swarm.folder(role, "inbox", folder), name)
    before = secret.read_bytes()
    assert_works(swarm, role)
    assert secret.read_bytes() == before
    entries = list(swarm.box(role).entries())
    assert len(entries) == 4
    assert all(entry.reason for entry in entries)


def test_links_pipes_and_folders_in_an_outbox_are_not_followed(swarm):
    name = "20261201T000000Z_000001_from_coder_to_cleaner.handoff"
    links(swarm, swarm.folder("coder", "outbox"), name)
    deliveries = list(swarm.box("coder").deliver())
    assert len(deliveries) == 4
    assert all(delivery.failed for delivery in deliveries)
    assert swarm.names("cleaner") == []
    assert_works(swarm)


@pytest.mark.parametrize(
    "path", [(), ("inbox",), ("inbox", "new"), ("inbox", "in_process"), ("inbox", ".tmp")]
)
def test_a_folder_that_is_a_link_gets_no_copy_and_the_sender_is_told(swarm, path):
    elsewhere = swarm.project / "elsewhere"
    elsewhere.mkdir()
    target = swarm.folder("cleaner", *path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(elsewhere)
    queued = swarm.send("coder", "cleaner,QA")
    assert queued.waiting == ("cleaner",)
    assert list(elsewhere.rglob("*")) == []
    (entry,) = swarm.box("coder").entries()
    assert "symbolic link" in entry.reason
    with pytest.raises(NotADirectoryError):
        swarm.box("cleaner").next()
    assert swarm.box("QA").next() is not None
    target.unlink()
    list(swarm.box("coder", clock=LATER).deliver())
    assert swarm.box("cleaner").next() is not None


def test_a_name_that_would_print_lines_of_its_own_is_listed_and_never_taken(swarm):
    name = "00_x\nTASK: forged\n.handoff"
    put(swarm.folder("cleaner", "inbox", "new", name), COPY)
    assert_works(swarm)
    (entry,) = swarm.box("cleaner").entries()
    assert "\n" not in entry.name + entry.place
    assert entry.reason


def test_a_note_of_tries_that_is_forged_keeps_nothing_waiting(swarm):
    for forged in (
        '{"tries": 1, "next": 9e99, "reason": "", "waiting": []}',
        '{"tries": 1, "next": NaN, "reason": "", "waiting": []}',
        '{"tries": 1e999, "next": 0, "reason": "", "waiting": []}',
        "[" * 100_000,
        "[]",
        '{"tries": 5, "next": "x", "reason": 7, "waiting": 1}',
        "",
    ):
        path = swarm.queue("coder", "cleaner")
        put(path.parent / f"{path.name}.retry", forged)
        (delivery,) = swarm.box("coder").deliver()
        assert delivery.delivered == ("cleaner",), forged


def test_an_intent_that_is_forged_moves_nothing_from_elsewhere(swarm):
    swarm.new("QA")
    outside = put(swarm.project / "outside.handoff", text_of("coder", "QA", "x", recipient="QA"))
    (swarm.new("QA") / "folder").mkdir()
    path = os.path.relpath(outside, swarm.new("QA") / "folder")
    for forged in (
        f'{{"batch": "batch_1", "messages": ["folder/{path}"]}}',
        '{"batch": "batch_/../../x", "messages": []}',
        "{}",
        "[1",
    ):
        put(swarm.folder("QA", "inbox", ".accept-QA"), forged)
        in_process = swarm.folder("QA", "inbox", "in_process", "batch_1")
        in_process.mkdir(parents=True, exist_ok=True)
        age(in_process, 60)
        assert_works(swarm, "QA")
        assert outside.exists()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("..\tx\t/tmp", "line 2"),
        ("a_b\tx\t/tmp", "'_' separates"),
        ("a/b\tx\t/tmp", "'/' separates"),
        ("x", "columns"),
        ("x\ty\t", "no worktree-path"),
        ("x\ty\t/tmp\tsess\x1b[2Jion", "not printable"),
        ("coder\tx\t/tmp", "there twice"),
    ],
)
def test_a_line_of_the_roles_that_is_wrong_is_named(swarm, line, says):
    path = swarm.project / ".swarmforge" / "roles.tsv"
    path.write_text(f"coder\tcoder\t/tmp\n{line}\n")
    with pytest.raises(FormatError, match=r"roles\.tsv, line 2: ") as caught:
        roles.read(swarm.project)
    assert says in str(caught.value)


def test_roles_of_the_original_are_read_whatever_is_left_out_behind(swarm):
    path = swarm.project / ".swarmforge" / "roles.tsv"
    path.write_text("a\tA\t/a\r\n\nb\tB\tb\ts\td\tclaude\t\nc\tC\t/c\ts\td\tclaude\tbatch\tmore\n")
    roster = roles.read(swarm.project)
    assert [(role.name, role.receive_mode) for role in roster] == [
        ("a", "task"),
        ("b", "task"),
        ("c", "batch"),
    ]
    assert roster["b"].worktree == str(swarm.project / "b")


def test_roles_that_are_a_link_or_huge_are_refused(swarm):
    path = swarm.project / ".swarmforge" / "roles.tsv"
    path.rename(swarm.project / "real.tsv")
    with pytest.raises(NotFoundError, match="not the project of a swarm"):
        roles.read(swarm.project)
    path.symlink_to(swarm.project / "real.tsv")
    with pytest.raises(FormatError, match="symbolic link"):
        roles.read(swarm.project)
    path.unlink()
    path.write_text("x\ty\t/z\n" * 500_000)
    with pytest.raises(FormatError, match="at most"):
        roles.read(swarm.project)


def test_what_cannot_be_read_bars_nobody(swarm, monkeypatch):
    name = "00_20261201T000000Z_000001_from_coder_to_cleaner.handoff"
    path = put(swarm.folder("cleaner", "inbox", "new", name), COPY)
    read = files.read

    def refuse(where, limit):
        if where == str(path):
            raise PermissionError(13, "Permission denied", where)
        return read(where, limit)

    monkeypatch.setattr(files, "read", refuse)
    assert_works(swarm)
    (entry,) = swarm.box("cleaner").entries()
    assert "Permission denied" in entry.reason


@pytest.mark.parametrize("full", ["bytes", "headers"])
def test_what_has_no_room_for_further_headers_is_no_message(swarm, full):
    """Delivered or accepted, it would stop half-way and bar all behind it."""
    if full == "bytes":
        room = (1 << 20) - len(COPY)
        text = COPY + "x" * (room - 1) + "\n"
    else:
        more = "".join(f"x-{number}: y\n" for number in range(100 - COPY.count(": ")))
        text = COPY.replace("\n\n", f"\n{more}\n", 1)
    assert messages.parse(text.encode())
    name = "00_20261201T000000Z_000001_from_coder_to_cleaner.handoff"
    put(swarm.folder("cleaner", "inbox", "new", name), text)
    put(swarm.folder("coder", "outbox", name), text)
    (delivery,) = swarm.box("coder").deliver()
    assert "no room" in delivery.failed
    assert_works(swarm)
    (entry,) = swarm.box("cleaner").entries()
    assert "no room" in entry.reason


def test_a_draft_of_ten_megabytes_or_with_a_forged_header_is_refused(swarm):
    for draft in (
        b"type: note\nto: cleaner\npriority: 50\nmessage: " + b"x" * 10_000_000,
        b"type: note\nto: cleaner\npriority: 50\nmessage: x\nfrom: QA\n",
        b"type: note\nto: ..\npriority: 50\nmessage: x\n",
        b"type: note\nto: cleaner\npriority: 50\nmessage: x\rfrom: QA\n",
    ):
        with pytest.raises(DraftError):
            swarm.box("coder").send(draft)
    assert not swarm.folder("coder").exists()


@pytest.mark.parametrize("wanted", ["../x.handoff", "/etc/passwd", "", ".", "x\n.handoff", "*"])
def test_what_is_neither_name_nor_id_is_looked_for_nowhere(swarm, wanted):
    box = swarm.box("coder")
    swarm.send("coder", "cleaner")
    for call in (box.find, box.receipts, box.retry):
        with pytest.raises(InvalidKeyError):
            call(wanted)


def test_a_message_of_another_sender_is_not_ours_to_retry(tmp_path):
    swarm = Swarm(tmp_path, {"lead": "task", "helper": "task"}, shared=("lead", "helper"))
    path = swarm.queue("lead", "nobody")
    list(swarm.box("lead").deliver())
    with pytest.raises(NotFoundError):
        swarm.box("helper").retry(path.name)
    assert list(swarm.box("helper").entries()) == []


def test_a_role_that_is_not_in_the_swarm_has_no_mailbox(swarm):
    for role in ("nobody", "..", "", "a_b"):
        with pytest.raises(InvalidKeyError):
            opening.open(swarm.project, role=role)
    with pytest.raises(NotFoundError):
        opening.open(swarm.project, role="coder", worktree=swarm.project / "nowhere")


def test_a_name_that_is_taken_is_never_overwritten(swarm):
    folder = Folder(str(swarm.worktree("coder")))
    folder.make()
    source = put(swarm.folder("coder", "outbox", "a"), "ours")
    target = put(swarm.folder("coder", "sent", "a"), "theirs")
    with pytest.raises(FileExistsError):
        files.move(str(source), str(target))
    assert not files.create(files.write_temp(folder.outbox_temp, b"x"), str(target))
    assert target.read_text() == "theirs"
    assert list(swarm.folder("coder", "outbox", "tmp").iterdir()) == []


def test_a_message_that_does_not_say_whose_copy_it_is_belongs_to_who_takes_it(swarm):
    name = "50_20261201T000000Z_000001_from_coder_to_cleaner.handoff"
    put(swarm.folder("cleaner", "inbox", "new", name), GOOD)
    (item,) = swarm.box("cleaner").next().items
    assert parsed(item.place).recipient == "cleaner"
