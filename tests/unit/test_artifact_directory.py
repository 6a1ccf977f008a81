import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapstore.artifacts import manifest
from tapstore.artifacts.condemned import condemn
from tapstore.artifacts.fetch import fetch_to, read_bytes, read_manifest
from tapstore.artifacts.manifest import Entry, object_key
from tapstore.artifacts.model import Artifact
from tapstore.artifacts.paths import OBJECTS
from tapstore.artifacts.place import REUSE_SECONDS
from tapstore.artifacts.publish import stage
from tapstore.errors import (
    AlreadyExistsError,
    ArtifactNotFoundError,
    ChecksumError,
    ConflictError,
    FormatError,
    InvalidKeyError,
    StoreError,
)
from tapstore.keys import is_key
from tapstore.stores.local import LocalStore
from tapstore.types import OVERWRITE
from tests.unit.artifact_places import make_place, sha256

ONE = sha256(b"one")[7:]


@pytest.fixture(params=["memory", "local"])
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


@pytest.fixture
def tree(tmp_path):
    return grow(
        tmp_path / "tree", {"a.txt": b"one", "sub/b.txt": b"two", "sub/deep/c": b"", "d": b"one"}
    )


def grow(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def files_below(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def publish(place, source, **options):
    options = {"name": "tree", "phase": "p", "suffix": "c1", "producer": "coder-01"} | options
    return stage(place.store, source, **options)


def objects(place):
    return [key for key in place.everything() if key.startswith(OBJECTS)]


# There and back


def test_a_directory_comes_back_as_it_was(place, tree, tmp_path):
    fetch_to(place.store, publish(place, tree), tmp_path / "copy")
    assert files_below(tmp_path / "copy") == files_below(tree)


def test_executable_files_come_back_executable(place, tree, tmp_path):
    os.chmod(tree / "a.txt", 0o700)
    fetch_to(place.store, publish(place, tree), tmp_path / "copy")
    modes = [os.access(tmp_path / "copy" / name, os.X_OK) for name in ("a.txt", "sub/b.txt")]
    assert modes == [True, False]


def test_an_empty_directory_comes_back_empty(place, tmp_path):
    (tmp_path / "tree").mkdir()
    fetch_to(place.store, publish(place, tmp_path / "tree"), tmp_path / "copy")
    assert os.listdir(tmp_path / "copy") == []


def test_the_checksum_is_that_of_the_manifest(place, tree):
    artifact = publish(place, tree)
    assert artifact.checksum == sha256(place.get(artifact))


def test_the_same_tree_has_the_same_checksum_in_another_session(tree, tmp_path):
    copy = grow(tmp_path / "elsewhere", dict(reversed(files_below(tree).items())))
    checksums = {
        publish(make_place(kind, tmp_path), folder).checksum
        for kind in ("memory", "local")
        for folder in (tree, copy)
    }
    assert len(checksums) == 1


def test_the_manifest_is_the_documented_json(place, tmp_path):
    os.chmod(grow(tmp_path / "t", {"b": b"one", "a/é": b""}) / "b", 0o700)
    document = json.loads(read_bytes(place.store, publish(place, tmp_path / "t")))
    assert document == {
        "format": "tapstore-manifest",
        "version": 1,
        "entries": [
            {"path": "a/é", "size": 0, "sha256": sha256(b"")[7:], "executable": False},
            {"path": "b", "size": 3, "sha256": ONE, "executable": True},
        ],
    }


def test_the_artifact_says_that_it_is_a_manifest(place, tree):
    artifact = publish(place, tree)
    assert (artifact.manifest, artifact.media_type) == (True, manifest.MEDIA_TYPE)


def test_a_file_is_not_a_directory(place):
    with pytest.raises(FormatError, match="not a directory"):
        read_manifest(place.store, publish(place, b"{}"))


def test_progress_counts_all_files(place, tree, tmp_path):
    up, down = [], []
    artifact = publish(place, tree, on_progress=lambda *p: up.append(p))
    fetch_to(place.store, artifact, tmp_path / "copy", on_progress=lambda *p: down.append(p))
    assert up[-1] == down[-1] == (9, 9)


# What is stored


def test_equal_files_are_stored_once(place, tree):
    publish(place, tree)
    assert len(objects(place)) == 3


def test_files_of_a_registered_directory_are_not_stored_again(place, tree):
    first = publish(place, tree)
    place.grow_old(REUSE_SECONDS + 1)
    (tree / "new").write_bytes(b"new")
    before = objects(place)
    publish(place, tree, suffix="c2", registered=[first])
    assert set(objects(place)) - set(before) == {object_key(sha256(b"new")[7:])}


def test_old_files_that_nobody_registered_are_not_relied_upon(place, tree):
    publish(place, tree)
    place.grow_old(REUSE_SECONDS + 1)
    publish(place, tree, suffix="c2")
    assert object_key(ONE, 1) in objects(place)


def test_a_damaged_directory_does_not_hinder_the_next_version(place, tree, tmp_path):
    first = publish(place, tree)
    place.store.put(first.path, b"damaged", OVERWRITE)
    second = publish(place, tree, suffix="c2", registered=[first])
    fetch_to(place.store, second, tmp_path / "copy")
    assert files_below(tmp_path / "copy") == files_below(tree)


def test_a_damaged_file_is_passed_over_when_it_is_published_again(place, tree, tmp_path):
    publish(place, tree)
    place.store.put(object_key(ONE), b"0ne", OVERWRITE)
    fetch_to(place.store, publish(place, tree, suffix="c2"), tmp_path / "copy")
    assert files_below(tmp_path / "copy") == files_below(tree)


def test_a_large_file_is_taken_whole_from_its_next_name_when_the_first_is_damaged(place, tmp_path):
    tree = grow(tmp_path / "tree", {"large": b"x" * 3_000_000})
    publish(place, tree)
    key = object_key(sha256(b"x" * 3_000_000)[7:])
    place.store.put(key, b"x" * 2_999_999 + b"y", OVERWRITE)
    fetch_to(place.store, publish(place, tree, suffix="c2"), tmp_path / "copy")
    assert files_below(tmp_path / "copy") == files_below(tree)


def test_a_file_is_found_under_its_next_name_when_the_first_was_collected(place, tree, tmp_path):
    condemn(place.store, object_key(ONE), now=0)
    artifact = publish(place, tree)
    assert object_key(ONE) not in objects(place)
    fetch_to(place.store, artifact, tmp_path / "copy")
    assert files_below(tmp_path / "copy") == files_below(tree)


def test_a_directory_that_changes_while_it_is_published_is_refused(place, tree):
    class Changing(type(place.store)):
        def upload(self, key, source, mode):
            if key == object_key(sha256(b"two")[7:]):
                (tree / "sub/b.txt").write_bytes(b"TWO")
            return super().upload(key, source, mode)

    place.store.__class__ = Changing
    with pytest.raises(ConflictError, match=r"sub/b\.txt' changed while"):
        publish(place, tree)
    assert place.everything() == [object_key(ONE)]


def test_a_file_that_becomes_a_link_while_it_is_published_is_not_followed(place, tree, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")

    class Changing(type(place.store)):
        def upload(self, key, source, mode):
            (tree / "sub/b.txt").unlink(missing_ok=True)
            (tree / "sub/b.txt").symlink_to(tmp_path / "secret")
            return super().upload(key, source, mode)

    place.store.__class__ = Changing
    with pytest.raises(StoreError, match=r"sub/b\.txt"):
        publish(place, tree)
    assert place.everything() == [object_key(ONE)]


# What is refused at publishing


def test_a_link_in_the_directory_is_refused_before_anything_is_stored(place, tree):
    (tree / "sub/link").symlink_to("/etc/passwd")
    with pytest.raises(InvalidKeyError, match=r"sub/link' is a symbolic link"):
        publish(place, tree)
    assert place.everything() == []


def test_a_linked_folder_is_refused(place, tree):
    (tree / "sub/link").symlink_to(tree)
    with pytest.raises(InvalidKeyError, match=r"sub/link' is a symbolic link"):
        publish(place, tree)


def test_a_pipe_in_the_directory_is_refused(place, tree):
    os.mkfifo(tree / "pipe")
    with pytest.raises(InvalidKeyError, match="neither a file nor a directory"):
        publish(place, tree)


@pytest.mark.parametrize("name", ["a:b", "aux.txt", "end.", os.fsdecode(b"\xff")])
def test_names_that_other_systems_cannot_have_are_refused(place, tree, name):
    (tree / name).write_bytes(b"")
    with pytest.raises(InvalidKeyError, match="every system"):
        publish(place, tree)
    assert place.everything() == []


def test_names_that_differ_by_case_only_are_refused(place, tree):
    (tree / "A.TXT").write_bytes(b"")
    with pytest.raises(InvalidKeyError, match="differ by case only"):
        publish(place, tree)
    assert place.everything() == []


# What is refused at fetching


def hostile(place, document):
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    place.store.put("artifacts/p/tree", data)
    return Artifact(
        name="tree", phase="p", path="artifacts/p/tree", checksum=sha256(data), manifest=True,
        producer="mallory",
    )  # fmt: skip


def entries(*paths):
    return {
        "format": "tapstore-manifest",
        "version": 1,
        "entries": [{"path": path, "size": 3, "sha256": ONE} for path in paths],
    }


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (entries("../x"), "'..'"),
        (entries("a/../../x"), "'..'"),
        (entries("/tmp/x"), "absolute"),
        (entries("a\\..\\..\\x"), "not portable"),
        (entries("C:x"), "not portable"),
        (entries("a\0"), "not portable"),
        (entries("nul"), "reserved name"),
        (entries(""), "empty"),
        (entries("a", "a"), "twice"),
        (entries("A/x", "a/y"), "case only"),
        (entries("X", "x"), "case only"),
        (entries("a", "a/b"), "needs it to be a folder"),
        (entries("b", "a"), "not sorted"),
        ({"format": "other"}, "its format is 'other'"),
        ({"format": "tapstore-manifest", "version": 2}, "upgrade"),
        ({"format": "tapstore-manifest", "version": 1, "entries": [{"path": "a"}]}, "size"),
        ({**entries(), "entries": [{"path": "a", "size": -1, "sha256": ONE}]}, "size"),
        ({**entries(), "entries": [{"path": "a", "size": 1, "sha256": "../x"}]}, "sha256"),
        (b"[" * 100_000, "not a tapstore-manifest"),
        (b"\xff", "not a tapstore-manifest"),
        (b"", "not a tapstore-manifest"),
    ],
)
def test_a_hostile_manifest_is_refused_before_anything_is_written(
    place, tmp_path, document, reason
):
    place.store.put(object_key(ONE), b"one")
    (tmp_path / "out").mkdir()
    with pytest.raises(FormatError, match=reason) as caught:
        fetch_to(place.store, hostile(place, document), tmp_path / "out/copy")
    assert "mallory" in str(caught.value)
    assert os.listdir(tmp_path / "out") == []


def test_a_manifest_of_too_many_files_is_refused(place, monkeypatch):
    monkeypatch.setattr(manifest, "MAX_ENTRIES", 2)
    with pytest.raises(FormatError, match="more than 2"):
        read_manifest(place.store, hostile(place, entries("a", "b", "c")))


def test_a_manifest_that_is_too_large_is_not_read_to_its_end(place, monkeypatch):
    monkeypatch.setattr(manifest, "MAX_BYTES", 1000)
    with pytest.raises(FormatError, match="larger than 1000"):
        read_manifest(place.store, hostile(place, b" " * 5_000_000))


def test_a_directory_too_large_for_a_manifest_is_refused_with_advice(place, tree, monkeypatch):
    monkeypatch.setattr(manifest, "MAX_BYTES", 100)
    with pytest.raises(InvalidKeyError, match="archive"):
        publish(place, tree)


def test_a_manifest_elsewhere_is_not_a_directory(place):
    artifact = Artifact(name="t", path="https://evil.example/manifest", manifest=True)
    with pytest.raises(FormatError, match="not a directory"):
        read_manifest(place.store, artifact)


@pytest.mark.parametrize("there", ["file", "link", "full"])
def test_a_tree_replaces_nothing(place, tree, tmp_path, there):
    target = tmp_path / "copy"
    outside = tmp_path / "outside"
    outside.mkdir()
    if there == "file":
        target.write_bytes(b"precious")
    elif there == "link":
        target.symlink_to(outside)
    else:
        grow(target, {"precious": b""})
    with pytest.raises(AlreadyExistsError, match="name a new one"):
        fetch_to(place.store, publish(place, tree), target)
    assert os.listdir(outside) == []
    assert {path.name for path in tmp_path.iterdir()} <= {"tree", "copy", "outside", "session"}


def test_a_tree_fills_an_empty_folder(place, tree, tmp_path):
    (tmp_path / "copy").mkdir()
    fetch_to(place.store, publish(place, tree), tmp_path / "copy")
    assert files_below(tmp_path / "copy") == files_below(tree)


def test_a_damaged_file_leaves_no_tree_and_is_told_by_its_name(place, tree, tmp_path):
    artifact = publish(place, tree)
    place.store.put(object_key(sha256(b"two")[7:]), b"TWO", OVERWRITE)
    (tmp_path / "out").mkdir()
    with pytest.raises(ChecksumError, match=r"file 'sub/b.txt' of artifact 'tree'.*coder-01"):
        fetch_to(place.store, artifact, tmp_path / "out/copy")
    assert os.listdir(tmp_path / "out") == []


def test_a_missing_file_leaves_no_tree_and_is_told_by_its_name(place, tree, tmp_path):
    artifact = publish(place, tree)
    place.store.delete(object_key(ONE))
    (tmp_path / "out").mkdir()
    with pytest.raises(ArtifactNotFoundError, match=r"file 'a.txt' of artifact 'tree'.*coder-01"):
        fetch_to(place.store, artifact, tmp_path / "out/copy")
    assert os.listdir(tmp_path / "out") == []


def test_a_tree_is_refused_outside_the_folder_that_was_asked_for(place, tree):
    with pytest.raises(InvalidKeyError, match="refused to write"):
        fetch_to(place.store, publish(place, tree), "../copy", inside=tree)


def test_a_folder_of_objects_that_links_out_of_the_session_is_not_followed(tmp_path, tree):
    place = make_place("local", tmp_path)
    artifact = publish(place, tree)
    os.rename(tmp_path / "session" / OBJECTS, tmp_path / "moved")
    (tmp_path / "session" / OBJECTS).symlink_to(tmp_path / "moved")

    class Fresh:
        store = LocalStore(tmp_path / "session")

    with pytest.raises(InvalidKeyError, match=r"file 'a.txt' of artifact 'tree'.*symbolic link"):
        fetch_to(Fresh.store, artifact, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


# The format


paths_lists = st.lists(st.text(st.sampled_from("aAb/."), min_size=1, max_size=6), max_size=6)


@given(paths_lists)
def test_what_is_built_is_parsed_to_the_same_and_what_parses_can_be_recreated(paths):
    try:
        built = manifest.build(Entry(path=path, size=1, sha256=ONE) for path in paths)
    except InvalidKeyError:
        return
    assert manifest.parse(manifest.render(built), "it") == built
    names = [entry.path for entry in built.entries]
    assert all(map(is_key, names))
    assert len({name.casefold() for name in names}) == len(names)


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["format", "version", "entries", "path"]), inner),
    max_leaves=8,
).map(msgspec.json.encode))  # fmt: skip
def test_whatever_the_bytes_only_a_format_error_comes_out(data):
    with pytest.raises(FormatError):
        manifest.parse(data, "it")


def test_the_example_in_the_specification_is_a_manifest():
    document = Path(__file__).parents[2] / "docs/spec/artifacts.md"
    example = document.read_text("utf-8").partition("```json")[2].partition("```")[0]
    parsed = manifest.parse(example.encode(), "the example")
    assert json.loads(manifest.render(parsed)) == json.loads(example)
