"""The other place of a session, where bytes of its artifacts lie: what agents need of it.

That it is the right place is looked at before anything is written there: a folder where nothing
is mounted takes everything, too.

Not promised: that the bytes that lie there are right; that is for `tapstore validate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from tapstore.abc import Clock
from tapstore.doctor import access, conditions, folder
from tapstore.doctor.subject import Subject, tried
from tapstore.doctor.workplace import Workplace
from tapstore.errors import TapstoreError
from tapstore.keys import mask_url
from tapstore.sessions.artifactplace import ArtifactPlaces
from tapstore.types import Finding

PREFIX = "artifacts-"

REACH = "artifacts-reach"
LEFTOVERS = "artifacts-leftovers"


def examine(places: ArtifactPlaces, clock: Clock) -> Iterator[Finding]:
    """Probe the place of `places`, if the session has one, and clean up there."""
    try:
        away = places.away
        if away is None:
            return
        foreign = places.why_not_collected()
    except (TapstoreError, OSError) as exc:
        yield Finding(REACH, "fatal", str(exc), "no artifact can be published or fetched there")
        return
    if foreign is None:
        yield Finding(REACH, "ok", mask_url(away.url))
    else:
        yield Finding(REACH, "note", foreign)
    with closing(places.open_folder(places.config.incarnation)) as other:
        subject = Subject(away, other, Workplace(away), clock)
        try:
            for finding in _probed(subject):
                yield replace(finding, probe=PREFIX + finding.probe)
        finally:
            stuck = subject.work.clean()
        if stuck:
            yield Finding(LEFTOVERS, "warning", f"could not be removed: {', '.join(stuck)}",
                          change="remove them")  # fmt: skip


def _probed(subject: Subject) -> Iterator[Finding]:
    allowed = access.permissions(subject, session=False)
    yield allowed
    if not access.may_write(allowed):
        return
    subject.work.begin()
    yield from tried(conditions.CREATION, lambda: [conditions.creation(subject)])
    if subject.store.capabilities.files:
        yield from tried(folder.FILES, lambda: [folder.files(subject)])
        yield from tried(folder.MOUNT, lambda: folder.mount(subject))
