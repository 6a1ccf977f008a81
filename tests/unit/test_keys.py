import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapstore.errors import InvalidKeyError
from tapstore.keys import (
    _PLAIN,
    check_key,
    check_name,
    decode_name,
    encode_name,
    is_key,
    mask_url,
    same_service,
    shell_word,
    without_password,
)


@pytest.mark.parametrize(
    "key",
    ["a", "artifacts/phase_1/x.py", ".tap/Tapfile", "a b/c", "日本語.md", "$(touch x); rm -rf .py"],
)
def test_ordinary_keys_pass(key):
    assert check_key(key) == key


@pytest.mark.parametrize(
    "key",
    ["", "/etc/passwd", "..", "a/../b", "a//b", "a/", "./a", "a\x00b", "a\\b", "CON", "nul.txt",
     "a/com1.log", "end.", "end ", "a:b", "x" * 201, "/".join(["x" * 100] * 10), "\ud800",
     "e\u0301", ".tapstore-tmp-x"],
)  # fmt: skip
def test_hostile_or_unportable_keys_are_refused_with_a_reason(key):
    with pytest.raises(InvalidKeyError, match=r"invalid key .*: .+"):
        check_key(key)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10))
def test_every_name_encodes_to_a_key_and_back(name):
    assert is_key(encode_name(name))
    assert decode_name(encode_name(name)) == name


@pytest.mark.parametrize("name", ["", "  ", "a\nb", " a", "x" * 121, "a\x1b[31m"])
def test_names_that_would_garble_a_terminal_or_a_file_are_refused(name):
    with pytest.raises(InvalidKeyError):
        check_name(name, "agent id")


@pytest.mark.parametrize("word", ["coder", "reviewer#2", "file:///mnt/x", "审查员", "a@b"])
def test_a_word_that_no_shell_would_change_is_shown_as_it_is(word):
    assert shell_word(word) == word


@given(st.text(max_size=20))
def test_a_shell_reads_one_word_and_nothing_else(word):
    assert shlex.split(shell_word(word), comments=True) == [word]


def test_urls_are_shown_without_credentials():
    masked = mask_url("s3://key:secret@host/bucket/p?token=abc")
    assert masked == "s3://***@host/bucket/p?token=***"


def test_a_url_without_a_host_is_shown_with_all_its_slashes():
    assert mask_url("sqlite:///srv/place.db?key=a#b") == "sqlite:///srv/place.db?key=***#b"


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("o_excl", "o_excl"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://anna:secret@host/0", "redis://anna@host/0"),
        ("redis://:secret@host/0", "redis://host/0"),
        ("rediss+sentinel://a:b@h1:1,h2:2/main/0?socket_timeout=2",
         "rediss+sentinel://a@h1:1,h2:2/main/0?socket_timeout=2"),
        ("unix://a:secret@/run/redis.sock?db=1", "unix://a@/run/redis.sock?db=1"),
        ("unix:///run/redis.sock?db=1&password=secret", "unix:///run/redis.sock?db=1"),
        ("etcd://h/p?ns=x&token=secret&ssl_password=secret#secret", "etcd://h/p?ns=x"),
        ("etcd://h/p?%70assword=secret", "etcd://h/p"),
    ],
)  # fmt: skip
def test_a_url_that_is_kept_has_no_password(url, kept):
    assert without_password(url) == kept


@pytest.mark.parametrize("url", ["redis://u:sec/ret@h/0", "redis://u:sec?ret@h/0",
                                 "redis://u:sec#ret@h/0", "redis://u:secret@[h/0"])  # fmt: skip
def test_a_url_that_may_hide_a_password_is_refused_without_showing_it(url):
    with pytest.raises(InvalidKeyError, match=r"redis://….*%2F") as caught:
        without_password(url)
    assert "ret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "other", "same"),
    [
        ("redis://h/0", "redis://anna:secret@h/0", True),
        ("redis://bert:other@H/0", "redis://anna:secret@h/0", True),
        ("etcd://h?a=1&b=2", "etcd://h?b=2&token=x&a=1", True),
        ("redis://h/0", "redis://h/1", False),
        ("redis://h/0", "rediss://h/0", False),
        ("unix:///r.sock?db=0", "unix:///r.sock?db=1", False),
        ("o_excl", "store", False),
    ],
)
def test_who_asks_does_not_make_another_service(url, other, same):
    assert same_service(url, other) is same


@given(st.from_regex(_PLAIN, fullmatch=True))
def test_the_short_way_accepts_nothing_that_the_long_way_refuses(key):
    assert is_key(key)
