"""Programs that edit the Tapfile as they like, and a ledger of what became of each edit.

A program takes `tapfile.lock` by exclusive creation, reads, changes, writes (by rename, or in
place in two steps), and unlocks; it may die before any of its requests, and then a person removes
its lock.  The ledger knows for each content of the file which program made it of which.
"""

# ruff: noqa: ARG001 - the kinds of change share one signature

import errno
import hashlib
import json

import yaml
from schedules import Place, failed

from tapstore.errors import AlreadyExistsError, NotFoundError, OutcomeUnknownError
from tapstore.sessions.config import TAPFILE_KEY, TAPFILE_LOCK_KEY
from tapstore.types import CREATE, OVERWRITE

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
ABSENT = "(absent)"


class Killed(BaseException):
    """The process ended here."""


def look(store, key):
    try:
        return store.get(key).data
    except NotFoundError:
        return None


def unlock(store, owner):
    if look(store, TAPFILE_LOCK_KEY) == owner:
        store.delete(TAPFILE_LOCK_KEY)


class FilePlace(Place):
    """What one process sees of a folder.  A process that was killed makes no request any more.

    A rename is done when it returns, or is not done at all: it does not land late.
    """

    def __init__(self, *args, deaths=0.0, window=True, full=0.0):
        """`full`: how often nothing can be published; then programs edit what others left."""
        super().__init__(*args)
        self._deaths, self._window, self._full = deaths, window, full
        self._looked = self._dead = False

    def _request(self):
        if self._dead:
            raise Killed
        super()._request()
        self._looked = False
        self._die()

    def _die(self, often=1):
        if self._rng.random() < self._deaths * often:
            self._dead = True
            raise Killed

    def put(self, key, data, mode=CREATE):
        if key == TAPFILE_KEY:
            return self._rename(key, data, mode)
        result = super().put(key, data, mode)
        self._die()
        return result

    def _rename(self, key, data, mode):
        if not self._looked:
            self._request()
        if self._rng.random() < self._full:
            raise failed(errno.ENOSPC)
        result = self.inner.put(key, data, mode)
        if self._rng.random() < self._trouble:
            raise OutcomeUnknownError("the reply was lost")
        self._die()
        return result

    def look_before_rename(self):
        """With `window`, another thread may come in between this look and the rename."""
        self._request()
        self._die(often=8)  # between commit and rename is where most can go wrong
        self._looked = not self._window

    def step(self):
        self._request()


class Lock:
    """`tapfile.lock` as a tapstore process holds it; `breaks`: how often a living one is broken."""

    def __init__(self, place, owner, rng, dead, breaks):
        self._place, self._owner, self._rng = place, owner, rng
        self._dead, self._breaks = dead, breaks

    def acquire(self, wait):
        for _ in range(3 if wait else 1):
            self._place.step()
            holder = look(self._place.inner, TAPFILE_LOCK_KEY)
            if holder is not None and self._is_over(holder):
                self._place.inner.delete(TAPFILE_LOCK_KEY)
                holder = None
            if holder is None:
                self._place.inner.put(TAPFILE_LOCK_KEY, self._owner, CREATE)
                return True
        return False

    def _is_over(self, holder):
        return holder in self._dead or (
            holder[:8] == b"tapstore" and self._rng.random() < self._breaks
        )

    def is_ours(self):
        self._place.look_before_rename()
        return look(self._place.inner, TAPFILE_LOCK_KEY) == self._owner

    def release(self):
        self._place.step()
        unlock(self._place.inner, self._owner)


class Edit:
    """One content that a program wrote, and what it changed in what it had read."""

    def __init__(self, data, read, parent, sets, adds, *, at, half=False):
        self.data, self.read, self.parent = data, read, parent
        self.sets, self.adds = sets, adds
        self.at, self.half = at, half
        self.fate = ""
        digest = hashlib.sha256(data).hexdigest()[:24]
        self.names = (f"edit-{digest}", f"park-{digest}")

    def chain(self):
        """This edit and those below it, back to what tapstore published; the oldest first."""
        found, at = [], self
        while at is not None:
            found.append(at)
            at = at.parent
        return found[::-1]


class Ledger:
    """Every content that programs left in the file."""

    def __init__(self, store):
        self._store = store
        self.edits = []
        self.destroyed = []

    def of(self, data):
        return next((e for e in reversed(self.edits) if e.data == data), None)

    def wrote(self, edit):
        there = self.of(look(self._store, TAPFILE_KEY))
        kept = edit.chain()
        # Documented: who wrote over it had read before it had the lock, or died half-way.
        if there is not None:
            self.destroyed += [e for e in there.chain() if e not in kept]
        self.edits.append(edit)
        self._store.put(TAPFILE_KEY, edit.data, OVERWRITE)


class Program:
    """A plain program of that name; `run` makes some edits."""

    def __init__(self, name, place, rng, ledger, clock, *, dies, stale):
        self._name, self._place, self._rng, self._ledger = name, place, rng, ledger
        self._clock, self._dies, self._stale = clock, dies, stale
        self._number = 0

    def run(self):
        for _ in range(self._rng.randint(3, 6)):
            try:
                self._edit()
            except Killed:
                self._person_unlocks()

    def _step(self, often=1):
        self._place.step()
        if self._rng.random() < self._dies * often:
            raise Killed

    def _person_unlocks(self):
        for _ in range(self._rng.randint(0, 8)):
            self._place.step()
        unlock(self._place.inner, self._name.encode())

    def _edit(self):
        early = None
        if self._rng.random() < self._stale:
            self._step()
            early = look(self._place.inner, TAPFILE_KEY)
            for _ in range(self._rng.randint(0, 8)):
                self._step()
        for _ in range(12):
            self._step()
            try:
                self._place.inner.put(TAPFILE_LOCK_KEY, self._name.encode(), CREATE)
                break
            except AlreadyExistsError:
                continue
        else:
            return
        for _ in range(self._rng.randint(1, 2)):
            self._step()
            self._change(early or look(self._place.inner, TAPFILE_KEY))
            early = None
        self._step()
        unlock(self._place.inner, self._name.encode())

    def _change(self, data):
        document, read = parse(data), parse(data)
        if document is None:
            return
        parent = self._ledger.of(data)
        sets, adds = {}, []
        self._number += 1
        token = f"{self._name}-{self._number}"
        for kind in dict.fromkeys(self._rng.choices(KINDS, k=self._rng.choice([1, 1, 2, 3]))):
            kind(self._name, token, document, sets, adds, self._rng)
        if not sets and not adds:
            return
        self._write(dump(document, self._rng), read, parent, sets, adds)

    def _write(self, data, read, parent, sets, adds):
        self._step()
        if self._rng.random() < 0.5:
            self._land(data, read, parent, sets, adds)
            return
        half = data[: self._rng.randrange(len(data))]
        if data[:1] != b"{" and self._rng.random() < 0.7:
            half = half[: half.rfind(b"\n") + 1]  # half of a YAML file, but YAML
        self._land(half, read, parent, sets, adds, half=True)
        published = parent.chain()[0].read if parent else read
        if complete(half, published):
            # Documented: who dies here leaves a shorter edit that can't be told from a whole one.
            self._place.step()
        else:
            self._step(often=3)
        self._land(data, read, parent, sets, adds)

    def _land(self, data, read, parent, sets, adds, *, half=False):
        edit = Edit(data, read, parent, sets, adds, at=self._clock.time(), half=half)
        self._ledger.wrote(edit)


def parse(data):
    """As a program that wants no accident reads it: None if that is no Tapfile."""
    try:
        document = json.loads(data) if data[:1] == b"{" else yaml.load(data, LOADER)
    except (ValueError, yaml.YAMLError):
        return None
    if not isinstance(document, dict) or not {"tapstore", "version", "n"} <= document.keys():
        return None
    entries = document.get("participants") or [None]
    whole = all(isinstance(e, dict) and {"role", "status"} <= e.keys() for e in entries)
    artifacts = document.get("artifacts")
    whole = whole and isinstance(artifacts, list) and all(isinstance(a, dict) for a in artifacts)
    return document if whole else None


def complete(half, read):
    """Whether this beginning of a Tapfile has all participants and artifacts of `read`."""
    document = parse(half)
    return document is not None and names(document) >= names(read)


def names(document):
    entries = [*document["participants"], *document["artifacts"]]
    return {entry.get("role") or entry.get("name") for entry in entries}


def dump(document, rng):
    way = rng.randrange(5)
    if way == 0:
        return json.dumps(document).encode()
    if way in (1, 2):
        # The long lists last: of what is half-written, only they are missing.
        lists = ("artifacts", "participants")
        document = {k: v for k, v in document.items() if k not in lists} | {
            k: document[k] for k in lists if k in document
        }
    return yaml.dump(document, Dumper=DUMPER, sort_keys=way == 3).encode()


# What programs change: `sets` are registers of which the last one counts, `adds` stay for ever.


def count_own(name, token, doc, sets, adds, rng):
    doc["n"][name] = doc["n"].get(name, 0) + 1
    adds.append(("n", name))


def count_all(name, token, doc, sets, adds, rng):
    doc["n"]["all"] += 1
    adds.append(("n", "all"))


def note(name, token, doc, sets, adds, rng):
    doc["notes"].append(token)
    adds.append(("notes", token))


def share(name, token, doc, sets, adds, rng):
    doc["shared"] = sets["shared"] = token


def move(name, token, doc, sets, adds, rng):
    doc["current_phase"] = sets["current_phase"] = token


def flip(name, token, doc, sets, adds, rng):
    doc["flag"] = sets["flag"] = "down" if doc["flag"] == "up" else "up"


def own(name, token, doc, sets, adds, rng):
    key = f"own_{name}"
    if key in doc and rng.random() < 0.3:
        del doc[key]
        sets[key] = ABSENT
    else:
        doc[key] = sets[key] = token


def register(name, token, doc, sets, adds, rng):
    doc["artifacts"].append(
        {"name": token, "path": f"artifacts/x/{token}", "type": "code", "producer": name}
    )
    adds.append(("artifacts", token))


def join(name, token, doc, sets, adds, rng):
    entries = doc["participants"]
    entries.insert(rng.choice([0, len(entries)]), {"role": token, "status": "pending"})
    adds.append(("roles", token))


def describe(name, token, doc, sets, adds, rng):
    for entry in doc["participants"]:
        if entry["role"] == "coder":
            entry["model"] = sets["coder.model"] = token


def work(name, token, doc, sets, adds, rng):
    role = rng.choice(["coder", "reviewer"])
    entry = next((e for e in doc["participants"] if e["role"] == role), {"status": ""})
    status = entry["status"]
    if status == "pending" and not entry.get("agent_id"):
        status, entry["agent_id"] = rng.choice(["working", "working", "completed"]), name
    elif status == "working" and entry["agent_id"] == name:
        status, entry["reason"] = rng.choice(["completed", "failed"]), token
    elif status in ("completed", "failed"):
        status, entry["agent_id"] = "pending", ""
    else:
        return
    entry["status"] = sets[f"{entry['role']}.status"] = status


KINDS = [
    flip,
    flip,
    note,
    own,
    count_own,
    count_all,
    note,
    share,
    move,
    flip,
    own,
    register,
    join,
    describe,
    work,
]
