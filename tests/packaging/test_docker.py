"""What docker/ has fits together and starts, as far as can be told without an engine."""

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tapstore.testing.servers.valkey import server as valkey_server
from tests.packaging.building import ROOT
from tests.servers.process import (
    Process,
    ServerMissingError,
    find_program,
    free_ports,
    temporary_folder,
)

DOCKER = ROOT / "docker"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
PROFILES = {"minio", "redis", "nfs", "pair"}
SCRIPTS = sorted(DOCKER.rglob("*.sh"))
DOCKERFILES = sorted(DOCKER.rglob("Dockerfile"))
INSTRUCTIONS = {
    "FROM", "RUN", "COPY", "WORKDIR", "USER", "ENV", "ARG", "ENTRYPOINT", "CMD", "EXPOSE", "VOLUME",
    "HEALTHCHECK", "LABEL",
}  # fmt: skip
WORKER = DOCKER / "worker" / "worker.sh"


def example_variables() -> dict[str, str]:
    lines = (DOCKER / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", dockerfile.read_text(), flags=re.M).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip()]
    return [(line.split()[0], line.split(None, 1)[1]) for line in lines]


def as_list(value: object) -> list[str]:
    return shlex.split(value) if isinstance(value, str) else [str(each) for each in value or ()]


# compose.yaml


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_in_a_profile_that_is_documented(name):
    profiles = set(SERVICES[name]["profiles"])
    assert profiles
    assert profiles <= PROFILES
    readme = (DOCKER / "README.md").read_text()
    assert all(f"| `{profile}` |" in readme for profile in profiles)


def test_each_profile_has_services():
    assert {each for service in SERVICES.values() for each in service["profiles"]} == PROFILES


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_waits_for_comes_up_in_the_same_profile_and_tells(name):
    for other, wanted in SERVICES[name].get("depends_on", {}).items():
        assert set(SERVICES[name]["profiles"]) <= set(SERVICES[other]["profiles"])
        if wanted["condition"] == "service_healthy":
            assert SERVICES[other]["healthcheck"]["test"]
        else:
            assert wanted["condition"] == "service_completed_successfully"
            assert SERVICES[other]["restart"] in ("no", "on-failure")


@pytest.mark.parametrize("name", SERVICES)
def test_the_networks_and_volumes_of_a_service_are_there(name):
    service = SERVICES[name]
    assert set(service["networks"]) <= set(COMPOSE["networks"])
    for volume in service.get("volumes", ()):
        source = volume.split(":")[0]
        if source.startswith("."):
            assert (DOCKER / source).is_file()
        else:
            assert source in COMPOSE["volumes"]


def test_no_volume_or_network_is_left_over():
    used = {
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", ())
    }
    assert set(COMPOSE["volumes"]) <= used
    assert set(COMPOSE["networks"]) == {
        network for service in SERVICES.values() for network in service["networks"]
    }


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_has_one_exact_version(name):
    tag = SERVICES[name]["image"].partition(":")[2]
    assert re.search(r"\d+[.-]\d+[.-]\d+", tag), f"{tag!r} moves"


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_is_built_from_is_there(name):
    if build := SERVICES[name].get("build"):
        assert (DOCKER / build["context"] / build["dockerfile"]).is_file()


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_for_this_machine_alone(name):
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", ()))


def test_a_service_that_stays_up_says_whether_it_is_well():
    for name in ("minio", "redis", "nfs"):
        check = SERVICES[name]["healthcheck"]
        assert check["test"][0] in ("CMD", "CMD-SHELL")
        assert {"interval", "timeout", "retries"} <= set(check)
        if check["test"][0] == "CMD-SHELL":
            command = check["test"][1].replace("$$", "$")
            subprocess.run(["sh", "-nc", command], check=True)


# Secrets


def test_every_variable_that_is_asked_for_is_in_the_example():
    text = (DOCKER / "compose.yaml").read_text().replace("$$", "")
    assert set(re.findall(r"\$\{([A-Z_]+)", text)) == set(example_variables())


def test_no_file_has_a_secret():
    secret = re.compile(r"PASSWORD|SECRET|KEY")
    assert [v for name, v in example_variables().items() if secret.search(name) and v] == []
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            assert not secret.search(name) or re.match(r"\$\{[A-Z_]+:\?", value), name
    for path in (path for path in DOCKER.rglob("*") if path.is_file()):
        assert not re.search(r"AKIA[0-9A-Z]{16}|://[^/\s:@]*:[^/\s@$]+@", path.read_text()), path


def test_the_filled_in_file_is_left_out_of_git_and_of_images():
    assert subprocess.run(["git", "check-ignore", "-q", "docker/.env"], cwd=ROOT).returncode == 0
    assert "**/.env" in (ROOT / ".dockerignore").read_text().splitlines()


# Dockerfiles


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_a_dockerfile_can_be_followed(path):
    context = ROOT if path.parent.name == "worker" else path.parent
    found = instructions(path)
    assert {name for name, _ in found} <= INSTRUCTIONS
    assert found[0][0] == "FROM"
    for name, rest in found:
        words = [word for word in rest.split() if not word.startswith("--")]
        if name == "FROM":
            assert re.search(r":\d+[.]\d+", words[0]), f"{words[0]} moves"
        elif name == "COPY" and "--from" not in rest:
            for source in words[:-1]:
                assert (context / source).exists()
                assert context != ROOT or sent(source), f"{source} is left out by .dockerignore"
        elif name == "ENTRYPOINT":
            (program,) = json.loads(rest)
            script = path.parent / Path(program).name
            assert os.access(script, os.X_OK)
            assert script.read_text().startswith("#!/bin/sh\n")
    assert "HEALTHCHECK" in {name for name, _ in found}


def sent(source: str) -> bool:
    """Whether .dockerignore, which names what is not left out, names this or what is in it."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line[1:] for line in lines if line.startswith("!")]
    return any(each.startswith(source) or source.startswith(f"{each}/") for each in kept)


def test_agents_do_not_run_as_root():
    found = instructions(DOCKER / "worker" / "Dockerfile")
    assert [rest for name, rest in found if name == "USER"] == ["agent"]


# Scripts


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name)
def test_a_script_is_one(script):
    subprocess.run(["sh", "-n", script], check=True)
    assert "\nset -eu\n" in script.read_text()
    assert os.access(script, os.X_OK)


def options_of(*command: str) -> set[str]:
    shown = subprocess.run(
        [sys.executable, "-m", "tapstore", *command, "--help"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return set(re.findall(r"(?<![\w-])-{1,2}[a-z][a-z-]*", shown))


@pytest.mark.parametrize("name", ["coder", "reviewer"])
def test_an_agent_gets_options_that_there_are(name):
    command = as_list(SERVICES[name]["command"])
    own = command[: command.index("--")]
    assert {each.partition("=")[0] for each in own} <= options_of("agent", "run")


def test_the_documents_call_commands_that_there_are():
    text = "".join(path.read_text() for path in (DOCKER / "README.md", WORKER))
    text += "".join(" ".join(json.loads(rest[rest.index("[") :])) + "\n"
                    for path in DOCKERFILES for name, rest in instructions(path)
                    if name == "HEALTHCHECK" and "[" in rest)  # fmt: skip
    text = re.sub(r"--entrypoint tapstore \w+", "tapstore", text)  # that word is a service
    calls = set(re.findall(r"\btapstore ((?:agent )?[a-z]+)\b(?! command)", text))
    assert {"init", "agent run", "status"} <= calls
    for call in calls:
        assert options_of(*call.split()), call


def environment(**variables: object) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, **{name: str(value) for name, value in variables.items()}}


def agent(name: str, **variables: object) -> subprocess.Popen[str]:
    """Start what the container of this service would start, here."""
    given = SERVICES[name]["environment"]
    roles = {key: given[key] for key in ("SESSION_ROLES", "SESSION_PHASE", "TAPSTORE_AGENT")}
    return subprocess.Popen(
        [WORKER, *as_list(SERVICES[name]["command"])], env=environment(**roles, **variables),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_coder_and_reviewer_meet_in_a_bucket(tapstore_moto, tapstore_redis):
    known = {
        **tapstore_moto.environment,
        "TAPSTORE_URL": tapstore_moto.url_of("review-42"),
        "TAPSTORE_LOCKS": tapstore_redis.url,
    }
    both = [agent(name, **known) for name in ("reviewer", "coder")]
    for each in both:
        output, _ = each.communicate(timeout=120)
        assert each.returncode == 0, output
    session = tapstore_moto.open("review-42")
    assert session.phase == "review_completed"
    assert session.artifacts["square.py"].read_text() == "print(2 ** 2)\n"
    assert "OP" in session.artifacts["review.txt"].read_text()


def test_a_worker_without_a_session_says_what_is_missing():
    done = subprocess.run([WORKER], env=environment(), capture_output=True, text=True)
    assert done.returncode != 0
    assert "TAPSTORE_URL" in done.stderr


def test_a_worker_that_cannot_make_the_session_does_not_go_on(tmp_path):
    (tmp_path / "file").touch()
    worker = agent("coder", TAPSTORE_URL=tmp_path / "file" / "session")
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode not in (0, 4), output


def test_the_bucket_is_made_once_and_found_from_then_on(tapstore_moto_server):
    program = [sys.executable, DOCKER / "worker" / "make_bucket.py"]
    known = environment(BUCKET="made-by-compose", **tapstore_moto_server.environment)
    for _ in range(2):
        subprocess.run(program, env=known, check=True, capture_output=True, timeout=60)
    with tapstore_moto_server.client() as client:
        client.head_bucket(Bucket="made-by-compose")


def test_redis_is_started_with_a_password_that_nobody_sees(tmp_path):
    redis = pytest.importorskip("redis")
    with valkey_server() as running:  # for its program
        shutil.copy(Path(f"/proc/{running.pid}/exe").resolve(), tmp_path / "redis-server")
    entry = tmp_path / "docker-entrypoint.sh"  # the image has one
    entry.write_text('#!/bin/sh\nexec "$@"\n')
    entry.chmod(0o755)
    [port] = free_ports(1)
    password = f"{secrets.token_hex(10)} \"'\\x41 $HOME #"
    known = environment(REDIS_PASSWORD=password, REDIS_FOLDER=tmp_path, REDIS_PORT=port)
    known["PATH"] = f"{tmp_path}{os.pathsep}{known['PATH']}"
    process = Process("redis", ["sh", DOCKER / "redis" / "start.sh"], tmp_path, env=known)
    try:
        process.wait_until(lambda: process.listens_on(port), "listening")
        assert password not in Path(f"/proc/{process.pid}/cmdline").read_text()
        assert (tmp_path / "redis.conf").stat().st_mode & 0o077 == 0
        with redis.Redis(port=port, password=password) as client:
            assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
            assert client.config_get("appendonly")["appendonly"] == "yes"
        with redis.Redis(port=port) as client, pytest.raises(redis.AuthenticationError):
            client.ping()
    finally:
        process.kill()


APART = """
mkdir -p /var/lib/nfs/ganesha
for folder in /run /var/lib/nfs/ganesha "$EXPORT_FOLDER"; do mount -t tmpfs tmpfs "$folder"; done
ip link set lo up
exec "$1"
"""


def test_the_nfs_server_comes_up():
    try:
        for program in ("ganesha.nfsd", "rpcbind", "ip", "unshare"):
            find_program(program, "make servers")
        if os.geteuid() != 0:
            raise ServerMissingError("an NFS server needs root")
    except ServerMissingError as missing:
        pytest.skip(str(missing))
    with temporary_folder("docker-nfs") as folder:
        (folder / "export").mkdir()
        # Its port and its folders are fixed, so it gets a network and mounts of its own.
        process = Process(
            "nfs",
            ["unshare", "--mount", "--net", "sh", "-ec", APART, "-", DOCKER / "nfs" / "start.sh"],
            folder,
            env={"EXPORT_FOLDER": str(folder / "export")},
        )
        try:
            process.wait_until(
                lambda: "NFS SERVER INITIALIZED" in process.log.read_text(errors="replace"),
                "serving",
            )
        finally:
            process.kill()
