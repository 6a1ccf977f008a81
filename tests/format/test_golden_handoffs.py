"""Names, drafts and messages of hand-offs, and what they have to be read as for ever.

`names/*.json` hold a name and its parts or words of the refusal.  A folder of `drafts` holds a
draft and either the message that it becomes or the faults that it has; one of `messages` a file
and either what it is read as and written again as, or words of the refusal.  Those called seed or
original are from the protocol's own documents and scripts.

Files are only ever added: `cd tests/format/handoffs && sha256sum drafts/NAME/* >> SHA256SUMS`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tapstore.errors import FormatError, InvalidKeyError
from tapstore.handoffs import draft, message, names
from tapstore.handoffs.draft import DraftError
from tapstore.handoffs.names import Stamp

GOLDEN = Path(__file__).parent / "handoffs"
ROLES = ("coder", "cleaner", "architect", "QA")
STAMP = Stamp(1781532331, 42)


def cases(pattern: str) -> list[Path]:
    found = sorted(GOLDEN.glob(pattern))
    assert found
    return found


def load(path: Path):
    return json.loads(path.read_text("utf-8"))


def resolve(commit: str) -> str:
    """A repository with one commit."""
    if commit.lower() != "a1b2c3d9e8":
        raise FormatError(f"must resolve to exactly one Git object; {commit!r} matched 0")
    return commit.lower()


@pytest.mark.parametrize("path", cases("names/*.json"), ids=lambda path: path.stem)
def test_a_name_is_read_or_refused_as_it_always_was(path):
    golden = load(path)
    if "refused" in golden:
        with pytest.raises(InvalidKeyError) as caught:
            names.parse(golden["name"])
        assert not [words for words in golden["refused"] if words not in str(caught.value)]
        return
    name = names.parse(golden["name"])
    assert {
        "priority": name.priority,
        "at": name.stamp.at,
        "sequence": name.stamp.sequence,
        "sender": name.sender,
        "recipients": list(name.recipients),
        "more": name.more,
    } == golden["parts"]
    assert name.id == golden["id"]
    assert str(name) == golden["name"]


@pytest.mark.parametrize("path", cases("drafts/*/sent.json"), ids=lambda path: path.parent.name)
def test_a_draft_becomes_the_message_that_it_always_became(path):
    golden = load(path)
    checked = draft.check(
        (path.parent / "draft.handoff").read_bytes(),
        sender=golden["sender"],
        roles=ROLES,
        resolve=resolve,
    )
    name, queued = checked.message(STAMP, created_at=STAMP.at)
    assert str(name) == golden["name"]
    assert message.render(queued) == (path.parent / "queued.handoff").read_bytes()


@pytest.mark.parametrize("path", cases("drafts/*/refused.json"), ids=lambda path: path.parent.name)
def test_a_draft_is_refused_with_every_fault_and_its_line(path):
    golden = load(path)
    with pytest.raises(DraftError) as caught:
        draft.check(
            (path.parent / "draft.handoff").read_bytes(),
            sender=golden["sender"],
            roles=ROLES,
            resolve=resolve,
            name="tmp/handoff.txt",
        )
    found = caught.value.faults
    assert [fault.line for fault in found] == [line for line, _ in golden["faults"]]
    for fault, (line, words) in zip(found, golden["faults"], strict=True):
        assert words in fault.reason
        shown = f"- {fault}" if line is None else f"- Line {line}: "
        assert shown in str(caught.value)
    assert str(caught.value).startswith("HANDOFF INVALID: tmp/handoff.txt\n\nErrors:\n- ")


@pytest.mark.parametrize("path", cases("messages/*/parsed.json"), ids=lambda path: path.parent.name)
def test_a_message_is_read_as_it_always_was(path):
    golden = load(path)
    read = message.parse((path.parent / "message.handoff").read_bytes())
    assert dict(read.headers) == golden["headers"]
    assert read.body == golden["body"]
    assert read.state == golden["state"]


@pytest.mark.parametrize("path", cases("messages/*/parsed.json"), ids=lambda path: path.parent.name)
def test_a_message_is_written_byte_for_byte_as_it_always_was(path):
    read = message.parse((path.parent / "message.handoff").read_bytes())
    assert message.render(read) == (path.parent / "rendered.handoff").read_bytes()


@pytest.mark.parametrize(
    "path", cases("messages/*/refused.json"), ids=lambda path: path.parent.name
)
def test_a_message_is_refused_with_the_reason(path):
    with pytest.raises(FormatError, match=r"^new/x\.handoff") as caught:
        message.parse((path.parent / "message.handoff").read_bytes(), name="new/x.handoff")
    text = str(caught.value)
    assert not [words for words in load(path)["mentions"] if words not in text], text


def test_no_golden_file_was_changed_or_removed():
    listed = dict(
        reversed(line.split("  ", 1)) for line in (GOLDEN / "SHA256SUMS").read_text().splitlines()
    )
    present = {
        path.relative_to(GOLDEN).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in GOLDEN.rglob("*")
        if path.is_file() and path.name != "SHA256SUMS"
    }
    assert present == listed
