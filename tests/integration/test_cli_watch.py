"""Events for people, commands and webhooks."""

import itertools
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import tapstore
from tapstore.cli import alarm
from tests.integration.cli_calls import call, ok


@pytest.fixture(autouse=True)
def session(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ok("init", "--id", "s", "-r", "coder", "--agent", "maker")
    claim = ok("claim", "coder", "--agent", "c1").out.strip()
    ok("fail", "no idea", "--claim", claim)
    return tmp_path


@pytest.fixture
def hook():
    """A web server that takes events: what it got, and what it answers with."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.taken.append((self.path, self.headers["Content-Type"], json.loads(body)))
            status = server.answers.pop(0) if server.answers else 200
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"{server.url}/elsewhere")
            self.end_headers()

        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.taken, server.answers = [], []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}/hook"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


PAST = ("watch", "--after", "0", "--timeout", "0")


def test_people_see_who_did_what_and_why():
    lines = call(*PAST).out.splitlines()
    assert [line.split(None, 2)[1:] for line in lines] == [
        ["created", "maker: created the session"],
        ["claimed", "c1: claimed coder"],
        ["failed", "c1: failed coder (no idea)"],
    ]


def test_only_the_types_that_are_asked_for_are_shown():
    called = call(*PAST, "--event", "failed", "--json")
    assert [event["event"] for event in called.jsons] == ["failed"]


def test_an_unknown_type_is_refused_with_the_list():
    called = call("watch", "--event", "exploded")
    assert called.status == 2
    assert "'claimed'" in called.err


def test_watching_begins_now():
    assert call("watch", "--timeout", "0").out == ""


def test_what_happens_while_watching_is_seen(session):
    seen = threading.Event()

    def act():
        for number in itertools.count():
            if seen.wait(0.05):
                return
            # Not by another call: both would redirect the one standard output of this process.
            boss.set_phase(f"p{number}")

    boss = tapstore.open(session)
    thread = threading.Thread(target=act)
    thread.start()
    try:
        assert ok("watch", "--once", "--timeout", "20s", "--json").json["event"] == "phase"
    finally:
        seen.set()
        thread.join()


def test_what_was_not_asked_for_gives_no_more_time(session):
    seen = threading.Event()
    boss = tapstore.open(session)

    def act():
        for number in itertools.count():
            if seen.wait(0.05):
                return
            boss.set_phase(f"p{number}")

    thread = threading.Thread(target=act)
    thread.start()
    try:
        called = call("watch", "--event", "claimed", "--timeout", "500ms")
    finally:
        seen.set()
        thread.join()
    assert called.status == 4
    assert "none of these happened for 0.5 s" in called.err


def test_a_command_gets_each_event_on_its_standard_input(session):
    program = "import sys; open('events', 'a').write(sys.stdin.read())"
    call(*PAST, "--", sys.executable, "-c", program)
    lines = (session / "events").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["created", "claimed", "failed"]


def test_a_command_that_fails_is_complained_about_and_watching_goes_on():
    called = call(*PAST, "--", sys.executable, "-c", "raise SystemExit(3)")
    assert called.err.count("exited with 3 on") == 3


def test_a_warning_is_an_object_with_json():
    called = call(*PAST, "--event", "failed", "--json", "--", sys.executable, "-c", "exit(3)")
    warning, _ = map(json.loads, called.err.splitlines())
    assert warning["warning"].keys() == {"type", "message"}


def test_a_command_that_is_not_there_is_refused_before_anything_happens():
    assert call("watch", "--timeout", "20s", "--", "./missing").status == 127


def test_a_webhook_gets_each_event_as_json(hook):
    call(*PAST, "--webhook", hook.url)
    assert [(path, kind) for path, kind, _ in hook.taken] == [("/hook", "application/json")] * 3
    assert hook.taken[2][2].items() >= {"event": "failed", "slot": "coder", "rev": 3}.items()


EVENT = {"event": "failed", "rev": 3}


def test_a_webhook_that_is_out_of_order_is_tried_again(hook):
    hook.answers = [503, 429]
    pauses: list[float] = []
    assert alarm.post(hook.url, EVENT, complain=pytest.fail, sleep=pauses.append)
    assert (len(hook.taken), pauses) == (3, [1.0, 2.0])


def test_a_webhook_that_stays_out_of_order_is_given_up_and_complained_about(hook):
    hook.answers = [500] * 9
    said: list[str] = []
    assert not alarm.post(hook.url, EVENT, complain=said.append, sleep=lambda _: None)
    assert len(hook.taken) == alarm.ATTEMPTS
    assert "did not take failed of revision 3: HTTP 500" in said[0]


def test_a_webhook_that_refuses_is_not_asked_again(hook):
    hook.answers = [404]
    assert not alarm.post(hook.url, EVENT, complain=lambda _: None, sleep=pytest.fail)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_webhook_that_points_elsewhere_did_not_get_the_event(hook, status):
    hook.answers = [status]
    said: list[str] = []
    assert not alarm.post(hook.url, EVENT, complain=said.append, sleep=lambda _: None)
    assert f"it points to {hook.url}/elsewhere, which is not followed" in said[0]


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://host:port/", "http://host/a b", "http://h/ü"]
)
def test_a_webhook_that_no_event_could_reach_is_refused(url):
    assert call("watch", "--webhook", url, "--timeout", "0").status == 2


def test_a_webhook_that_is_not_there_is_complained_about_without_its_secrets():
    said: list[str] = []
    url = "http://user:secret@127.0.0.1:9/hook?token=secret"
    assert not alarm.post(url, EVENT, complain=said.append, sleep=lambda _: None)
    assert "secret" not in said[0]
