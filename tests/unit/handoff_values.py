"""Roles, names and stamps of hand-offs, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from tapstore.errors import InvalidKeyError
from tapstore.handoffs import names
from tapstore.handoffs.names import MAX_SEQUENCE, Stamp

LATEST = 253_402_300_799
"""The last second of the year 9999."""


def is_role(text: str) -> bool:
    try:
        names.check_role(text)
    except InvalidKeyError:
        return False
    return True


roles = st.one_of(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{0,20}", fullmatch=True),
    st.text(min_size=1, max_size=12),
).filter(is_role)
stamps = st.builds(Stamp, st.integers(0, LATEST) | st.integers(0, 3), st.integers(0, MAX_SEQUENCE))
recipient_lists = st.lists(roles, min_size=1, max_size=12, unique=True)
handoff_names = st.builds(names.name_for, st.integers(0, 99), stamps, roles, recipient_lists)
