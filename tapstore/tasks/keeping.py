"""Keeps what was in an inbox: done, or set aside with the reason.  Safe to repeat."""

from __future__ import annotations

from tapstore.abc import Store
from tapstore.errors import AlreadyExistsError, NotFoundError
from tapstore.keys import encode_name, is_key
from tapstore.types import CREATE

DONE = ".done"
FAILED = ".failed"


def keep(store: Store, key: str, data: bytes, where: str) -> str:
    """Copy a file to the folder `where` beside it, and return the name that it got there.

    The same bytes are kept once; others under the same name get the next free one.
    """
    home, _, name = key.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    number = 1
    while True:
        suffix = "" if number == 1 else f"~{number}"
        kept = _joined(stem, f"{suffix}{dot}{ending}")
        copy = f"{home}/{where}/{kept}"
        try:
            store.put(copy, data, CREATE)
        except AlreadyExistsError:
            if store.get(copy).data != data:
                number += 1
                continue
        return kept


def place(original: str, kept: str, where: str) -> str:
    """Where `keep` put its copy of the file `original`, under the name that it returned."""
    return f"{original.rpartition('/')[0]}/{where}/{kept}"


def explain(store: Store, key: str, name: str, text: str) -> None:
    """Leave a note on `name` in `.failed/` beside `key`, unless there is one."""
    home = key.rpartition("/")[0]
    note = f"{home}/{FAILED}/{_joined(name, '.reason')}"
    if not is_key(note):
        plain = name.encode(errors="backslashreplace").decode()
        note = f"{home}/{FAILED}/{encode_name(plain[:40])}.reason"
    # Looked at first: even a refused creation would wake everybody who watches the folder.
    try:
        store.head(note)
    except NotFoundError:
        try:
            store.put(note, text.encode(errors="backslashreplace"), CREATE)
        except AlreadyExistsError:
            return


def _joined(stem: str, ending: str) -> str:
    """Both as one segment of a key; the stem is cut if they are too long for one."""
    while not is_key(stem + ending) and len(stem) > 20:
        stem = stem[:-1]
    return stem + ending
