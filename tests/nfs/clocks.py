"""Whose clock is an hour ahead: for tests with a fixture `pair`, in the order of its two roles."""

import pytest

# The version matters little to time; both, once, would be enough.
CLOCKS = pytest.mark.parametrize(
    ("nfs", "pair"),
    [("3", "second-ahead"), ("4.2", "second-ahead"), ("4.2", "first-ahead")],
    indirect=True,
)


def in_roles(people, request):
    """The two Pythons, of which the second one's clock is ahead, in the order that is asked for."""
    return people if request.param == "second-ahead" else people[::-1]
