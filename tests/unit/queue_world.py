"""A session with hand-offs on a memory store, whose time a test moves."""

import uuid

import tapstore
from tapstore.handoffs.queue import opening
from tapstore.handoffs.queue import settings as settings_file
from tapstore.handoffs.queue.endings import Endings
from tapstore.handoffs.queue.places import Places
from tapstore.testing.clock import ManualClock

LEASE = "lease_seconds: 60\n"

ROLES = ["coder", "reviewer", "QA"]


class World:
    """Mailboxes of one session.  `url` may name another place than memory; then time is real."""

    def __init__(self, url=None, settings="", roles=ROLES):
        self.clock = ManualClock() if url is None else None
        options = {"clock": self.clock} if self.clock else {}
        self.url = url or f"memory://{uuid.uuid4().hex}"
        self.session = tapstore.create(self.url, roles=roles, **options)
        self.store = self.session.store
        if settings:
            settings_file.save(self.store, settings.encode())

    def box(self, role, agent="a1", **options):
        return opening.open(
            self.session, role=role, agent=agent, resolve=lambda commit: commit, **options
        )

    def send(self, to="reviewer", message="m", priority=50, sender="coder", **more):
        lines = {"type": "note", "to": to, "priority": f"{priority:02}", "message": message, **more}
        text = "".join(f"{name}: {value}\n" for name, value in lines.items())
        return str(self.box(sender).send(text.encode()).name)

    def keys(self, part=""):
        return [info.key for info in self.store.list("handoffs/") if part in info.key]


def taken(box):
    """The message that is next, as its text."""
    accepted = box.next()
    return None if accepted is None else accepted.items[0].message.headers["message"]


def record(world, name, role="reviewer"):
    return Endings(world.store, Places(role)).record(name)


def kill(world, times, role="reviewer"):
    for number in range(times):
        assert world.box(role, f"d{number}").next() is not None
        world.clock.advance(61)
