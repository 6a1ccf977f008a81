"""Listings are in the order of whole keys, whatever order the server has, over small pages."""

from __future__ import annotations

import random

import pytest
from s3_places import BucketPlace

from tapstore.errors import StoreError
from tapstore_s3.listing import Listings, UnsortedError

PAGE = 3
NAMES = ["a", "a-b", "a.b", "a0", "b", "c-", "c", "d!", "d"]


@pytest.fixture(params=["stub_s3_server", "seaweedfs"])
def place(request):
    return BucketPlace(request.getfixturevalue(request.param))


@pytest.fixture
def listings(place):
    """As a store has them, but for the size of the pages."""
    with place.open() as store:

        def send(operation, **parameters):
            return store._send(operation, **{"MaxKeys": PAGE, **parameters})

        yield Listings(send, place.below)


def ordered(listings, prefix="", start_after=""):
    """The keys of a listing; it is begun again as its error says."""
    try:
        return [info.key for info in listings.objects(prefix, start_after)]
    except UnsortedError:
        return [info.key for info in listings.objects(prefix, start_after)]


def fill(place, drawn):
    keys = set()
    while len(keys) < 24:
        parts = [drawn.choice(NAMES) for _ in range(drawn.randint(1, 3))]
        # A folder of a file's name is possible in S3, not in every server.
        parts[:-1] = [part + "x" for part in parts[:-1]]
        keys.add("/".join(parts))
    for key in keys:
        place.write(key, b"")
    return sorted(keys, key=str.encode)


@pytest.mark.parametrize("seed", range(3))
def test_pages_of_any_server_are_put_in_the_order_of_keys(place, listings, seed):
    drawn = random.Random(seed)
    keys = fill(place, drawn)
    assert ordered(listings) == keys
    for _ in range(12):
        prefix, after = drawn.choice(keys)[: drawn.randint(0, 3)], drawn.choice(keys)[:4]
        expected = [key for key in keys if key.startswith(prefix) and key > after]
        assert ordered(listings, prefix, after) == expected, (prefix, after)


@pytest.mark.parametrize("seed", range(3))
def test_the_children_over_many_pages_are_in_order(place, listings, seed):
    keys = fill(place, random.Random(seed))
    for folder in ["", *{key[: key.index("/") + 1] for key in keys if "/" in key}]:
        below = [key[len(folder) :] for key in keys if key.startswith(folder)]
        names = {name.partition("/")[0] + name.partition("/")[1] for name in below}
        assert list(listings.children(folder)) == sorted(names)


def test_an_order_that_shows_too_late_is_an_error_and_not_a_wrong_listing(place, listings):
    for key in [*(f"a/{number}" for number in range(2 * PAGE)), "a-b"]:
        place.write(key, b"")
    expected = ["a-b", *(f"a/{number}" for number in range(2 * PAGE))]
    shown = []
    try:
        shown += [info.key for info in listings.objects("", "")]
    except UnsortedError:
        shown = [info.key for info in listings.objects("", "")]
    assert shown == expected


def test_a_marker_of_a_folder_is_no_key(stub_s3_server):
    place = BucketPlace(stub_s3_server)
    place.write("folder/", b"")
    place.write("folder/a", b"")
    with place.open() as store:
        assert [info.key for info in store.list()] == ["folder/a"]
        assert list(store.children("folder/")) == ["a"]


def test_a_listing_that_cannot_go_on_is_an_error_and_not_a_short_one(request):
    place = BucketPlace(request.getfixturevalue("stub_s3_server"))
    for name in "abcd":
        place.write(name, b"")
    with place.open() as store:

        def send(operation, **parameters):
            page = store._send(operation, **{"MaxKeys": PAGE, **parameters})
            page.pop("NextContinuationToken", None)
            return page

        with pytest.raises(StoreError, match="not how to go on"):
            list(Listings(send, place.below).objects("", ""))
