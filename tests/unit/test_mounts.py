"""What is said of mounts, from descriptions that real kernels gave."""

import pytest

import tapstore
from tapstore.errors import UnsupportedOperationError
from tapstore.stores import mounts
from tapstore.stores.mounts import Mount, Severity

LOCAL = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n"
NFS4 = (
    "24 20 0:21 / /run/nfs rw,relatime - nfs4 192.0.2.1:/export rw,vers=4.2,rsize=1048576,"
    "wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys,"
    "clientaddr=192.0.2.11,local_lock=none,addr=192.0.2.1\n"
)
NFS3 = (
    "22 20 0:20 / /run/nfs rw,relatime - nfs 192.0.2.1:/export rw,vers=3,rsize=1048576,"
    "wsize=1048576,namlen=255,hard,nolock,proto=tcp,port=2049,timeo=600,retrans=2,sec=sys,"
    "mountaddr=192.0.2.1,mountvers=3,mountport=20048,mountproto=tcp,local_lock=all,"
    "addr=192.0.2.1\n"
)


def nfs(options):
    """The kernel's description of a 4.2 mount with more options."""
    text = LOCAL + NFS4.replace("hard,", f"{options},hard,")
    return mounts.find(text, "/run/nfs/session")


def mount(kind, source="none", options="rw"):
    return mounts.find(f"22 1 0:30 / /mnt rw - {kind} {source} {options}\n", "/mnt/session")


def codes(*arguments, least=Severity.WARNING, **options):
    """Codes of the findings that are at least so severe."""
    order = list(Severity)
    return {
        finding.code
        for finding in mounts.judge(*arguments, **options)
        if order.index(finding.severity) <= order.index(least)
    }


# Reading


def test_a_path_is_on_the_innermost_mount():
    assert mounts.find(LOCAL + NFS4, "/run/nfs/a/b").type == "nfs4"
    assert mounts.find(LOCAL + NFS4, "/run/nfs").type == "nfs4"
    assert mounts.find(LOCAL + NFS4, "/run/nfs2").type == "ext4"


def test_of_two_mounts_at_one_point_the_last_one_counts():
    assert mounts.find(NFS4 + NFS3, "/run/nfs/a").type == "nfs"


def test_names_with_spaces_are_read():
    found = mounts.find(r"22 1 0:5 / /mnt/my\040disk rw - cifs //host/a\134b rw", "/mnt/my disk/x")
    assert (found.point, found.source) == ("/mnt/my disk", r"//host/a\b")


def test_lines_that_nobody_understands_are_left_out():
    assert list(mounts.parse("\nnonsense\n22 1 0:5 /\n")) == []


def test_of_nfs_server_and_version_are_known():
    found = mounts.find(NFS3, "/run/nfs")
    assert (found.server, found.version) == ("192.0.2.1", "3")


@pytest.mark.parametrize("server", ["nas.example", "[2001:db8::1]"])
def test_a_server_may_have_any_address(server):
    assert Mount("/mnt", "nfs4", f"{server}:/a:/b", {}).server == server


def test_a_local_disk_has_neither_server_nor_findings():
    found = mounts.find(LOCAL, "/home")
    assert (found.server, found.version, mounts.judge(found)) == ("", "", ())


# NFS


def test_the_defaults_of_version_4_bring_no_warning():
    assert codes(mounts.find(NFS4, "/run/nfs")) == set()


def test_no_caching_at_all_is_fine():
    assert codes(nfs("noac"), least=Severity.NOTE) == set()


def test_remembered_absences_are_noted_unless_they_are_switched_off():
    assert codes(nfs("x"), least=Severity.NOTE) == {"nfs-absence-cached"}
    assert codes(nfs("lookupcache=pos"), least=Severity.NOTE) == set()


def test_locks_that_end_at_the_host_are_a_warning():
    assert codes(mounts.find(NFS3, "/run/nfs")) == {"nfs-locks-local"}
    text = NFS4.replace("local_lock=none", "local_lock=flock")
    assert codes(mounts.find(text, "/run/nfs")) == {"nfs-locks-local"}


@pytest.mark.parametrize("option", ["soft", "softerr"])
def test_a_soft_mount_is_an_error(option):
    assert codes(nfs(option), least=Severity.ERROR) == {"nfs-soft"}


def test_opening_without_asking_is_an_error():
    assert codes(nfs("nocto"), least=Severity.ERROR) == {"nfs-nocto"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("acregmin=3600,acregmax=3600,acdirmin=3600,acdirmax=3600", {"nfs-cache-long"}),
        ("acdirmax=61", {"nfs-cache-long"}),
        ("acregmin=1,acregmax=1,acdirmin=1,acdirmax=1", set()),
        ("acregmax=60", set()),
    ],
)
def test_caching_for_longer_than_the_default_is_a_warning(options, expected):
    assert codes(nfs(options)) == expected


def test_version_2_is_an_error():
    text = NFS3.replace("vers=3", "vers=2")
    assert "nfs-version-2" in codes(mounts.find(text, "/run/nfs"), least=Severity.ERROR)


def test_udp_is_a_warning():
    text = NFS3.replace(",proto=tcp", ",proto=udp")
    assert "nfs-udp" in codes(mounts.find(text, "/run/nfs"))


# Others


@pytest.mark.parametrize("kind", ["tmpfs", "ramfs"])
def test_what_is_in_memory_is_gone_after_a_reboot(kind):
    assert codes(mount(kind)) == {"in-memory"}


def test_the_layer_of_a_container_is_gone_with_it():
    assert codes(mount("overlay")) == {"container-layer"}


@pytest.mark.parametrize("kind", ["cifs", "exfat", "vfat", "9p", "fuse.sshfs", "overlay", "ext4"])
def test_what_has_no_hard_links_is_an_error(kind):
    assert codes(mount(kind), no_links="not permitted", least=Severity.ERROR) == {"no-hard-links"}


@pytest.mark.parametrize(
    ("source", "url"),
    [
        ("me@host:/srv/team", "sftp://host/srv/team/"),
        ("me@[fe80::1]:/srv/", "sftp://[fe80::1]/srv/"),
        ("host:/", "sftp://host/"),
        ("host:", "sftp://"),
    ],
)
def test_what_sshfs_keeps_for_a_while_is_a_warning_with_the_url_to_take(source, url):
    (finding,) = mounts.judge(mount(mounts.SSHFS, source))
    assert (finding.code, finding.severity) == ("sshfs-caches", Severity.WARNING)
    assert finding.remedy.endswith(f" {url}…")


@pytest.mark.parametrize("kind", ["cifs", "9p", "virtiofs"])
def test_what_others_answer_for_is_to_be_tried_out(kind):
    assert codes(mount(kind), least=Severity.NOTE) == {"unproven"}


@pytest.mark.parametrize(
    ("kind", "url"),
    [("fuse.s3fs", "s3://"), ("fuse.gcsfuse", "gs://"), ("fuse.blobfuse2", "az://")],
)
def test_a_bucket_behind_fuse_is_refused_with_its_own_url(kind, url):
    (finding,) = mounts.judge(mount(kind), no_links="not implemented")
    assert (finding.code, finding.severity) == ("bucket-mount", Severity.ERROR)
    assert url in finding.remedy


@pytest.mark.parametrize("option", ["soft", "softerr", "nocto", "vers=2"])
def test_no_session_is_made_nor_artifacts_kept_where_the_mount_can_lose_work(
    tmp_path, monkeypatch, option
):
    bad = nfs(f"rw,{option}")
    monkeypatch.setattr(
        mounts, "mount_of", lambda folder: bad if "bad" in str(folder) else mount("ext4")
    )
    with pytest.raises(UnsupportedOperationError, match="mount with"):
        tapstore.create(tmp_path / "bad" / "session")
    with pytest.raises(UnsupportedOperationError, match="mount with"):
        tapstore.create(tmp_path / "good", artifacts=tmp_path / "bad")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    tapstore.create(tmp_path / "good").close()


def test_a_session_that_is_there_can_be_opened_through_such_a_mount(tmp_path, monkeypatch):
    tapstore.create(tmp_path / "session").close()
    monkeypatch.setattr(mounts, "mount_of", lambda _: nfs("ro,soft"))
    with tapstore.open(tmp_path / "session") as session:
        assert session.tapfile.participants == ()


def test_a_read_only_mount_is_an_error():
    assert codes(mount("ext4", options="ro"), least=Severity.ERROR) == {"read-only"}


# Looking


def test_a_real_folder_is_looked_at_and_left_as_it_was(tmp_path):
    found, findings = mounts.look(tmp_path)
    assert found is not None
    assert str(tmp_path.resolve()).startswith(found.point)
    assert "no-hard-links" not in {finding.code for finding in findings}
    assert list(tmp_path.iterdir()) == []


def test_a_real_tmpfs_is_recognized(tmpfs_path):
    found, findings = mounts.look(tmpfs_path)
    assert found.type == "tmpfs"
    assert "in-memory" in {finding.code for finding in findings}


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        mounts.look(tmp_path / "missing")


def test_a_place_without_hard_links_is_noticed(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    _, findings = mounts.look(tmp_path)
    assert "no-hard-links" in {finding.code for finding in findings}
    assert list(tmp_path.iterdir()) == []
