"""Hand-offs between two hosts: sent, taken and completed once, whichever host looks."""

from contextlib import ExitStack

import pytest

from tests.nfs.interpreter import Interpreter

SETUP = """
import tapstore
from tapstore.errors import LeaseLostError

def send(count, to="reviewer"):
    box = tapstore.mailbox(session, role="coder", agent=agent)
    draft = {"type": "note", "to": to, "priority": "50", "message": "m"}
    return [str(box.send(draft).name) for _ in range(count)]

def work(role="reviewer"):
    done = []
    box = tapstore.mailbox(session, role=role, agent=agent)
    while box.next() is not None:
        done += [item.place.rpartition("/")[2] for item in box.done().items]
    return done
"""


@pytest.fixture
def agents(nfs, place):
    """Two processes on each host, on one session; one host's clock is an hour ahead."""
    with ExitStack() as stack:
        found = [
            stack.enter_context(Interpreter(client)) for client in nfs.clients for _ in range(2)
        ]
        found[0].run(f"import tapstore; tapstore.create({place!r}, roles=['coder', 'reviewer'])")
        for number, python in enumerate(found):
            python.run(SETUP)
            python.run(f"session = tapstore.open({place!r}); agent = 'a{number}'")
        yield found


@pytest.mark.parametrize(
    "count", [pytest.param(40, id="quick"), pytest.param(1250, marks=pytest.mark.soak, id="soak")]
)
def test_each_hand_off_is_completed_once_while_two_hosts_send_and_take(agents, count):
    sent = []
    for python in agents:
        python.begin(f"send({count})")
    for python in agents:
        sent += python.answer()
    assert len(set(sent)) == 4 * count
    done = []
    for _ in range(20):
        for python in agents:
            python.begin("work()")
        for python in agents:
            done += python.answer()
        if len(done) >= len(sent):
            break
    assert sorted(done) == sorted(sent)
    left = "[i.key for i in session.store.list('handoffs/') if '/new/' in i.key]"
    assert [python.ask(left) for python in agents] == [[]] * 4


def test_a_hand_off_to_both_roles_is_finished_by_the_other_host(agents):
    (name,) = agents[0].ask("send(1, 'reviewer,coder')")
    assert agents[2].ask("work('reviewer')") == [name]
    # As if the sender had died before the second copy.
    agents[0].run(
        "from tapstore.handoffs.queue.places import Places\n"
        f"coder, name = Places('coder'), {name!r}\n"
        "data = session.store.get(coder.sent(name)).data\n"
        "session.store.delete(coder.waiting(name))\n"
        "session.store.put(f'{coder.outbox}{name}', data)"
    )
    assert agents[3].ask("work('coder')") == [name]
    assert agents[1].ask("work('reviewer')") == []


def test_what_a_host_held_that_is_gone_is_taken_over_and_completed_once(agents):
    lease = (
        "import time\n"
        "box = tapstore.mailbox(session, role='reviewer', agent=agent, lease_seconds=2)"
    )
    (name,) = agents[0].ask("send(1)")
    for python in agents[1:3]:
        python.run(lease)
    assert agents[1].ask("box.next().items[0].attempt") == 1
    assert agents[2].ask("box.next()") is None
    # The host is not gone, but it does not renew: it will be too late.
    agents[2].run(
        "deadline = time.monotonic() + 60\n"
        "while (accepted := box.next()) is None and time.monotonic() < deadline: time.sleep(0.2)"
    )
    assert agents[2].ask("accepted.items[0].attempt") == 2
    agents[2].run("box.done()")
    agents[1].run(
        "try: box.done()\n"
        "except LeaseLostError as exc: said = str(exc)\n"
        "else: said = 'completed twice'"
    )
    assert f"{name} is completed by a2, attempt 2" in agents[1].ask("said")
