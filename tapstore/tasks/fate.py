"""How a claim ended, by the log: permanent, so everybody who asks gets the same answer."""

from __future__ import annotations

from tapstore.sessions.state import SessionState
from tapstore.tapfile.operations import Complete, Fail, Release, Reset

LIVE = "live"
COMPLETED, FAILED, RELEASED, RESET = "completed", "failed", "released", "reset"
LOST = "lost"
"""Fenced off by a takeover, or not of this session at all."""

_ENDINGS = {
    Complete.__struct_config__.tag: COMPLETED,
    Fail.__struct_config__.tag: FAILED,
    Release.__struct_config__.tag: RELEASED,
    Reset.__struct_config__.tag: RESET,
}


def fate(state: SessionState, claim: str, *, fence: int) -> str:
    """What became of the claim that revision `fence` granted: one of the words above.

    Reads the state anew, and the log from `fence` on if the claim has ended.
    """
    return fate_and_reason(state, claim, fence=fence)[0]


def fate_and_reason(state: SessionState, claim: str, *, fence: int) -> tuple[str, str]:
    """The same, and the reason that who ended it gave; empty if none."""
    snapshot = state.peek()
    if snapshot.rev < fence or snapshot.tapfile.claimed_by(claim) is not None:
        # Below the fence: we are behind (NFS caches what is not there), and know nothing.
        return LIVE, ""
    for head in state.log.records(after=fence):
        # As plain data: operations of later versions must not stop us.
        for operation in head.record.entry.get("operations", ()):
            if operation.get("claim") == claim and operation.get("op") in _ENDINGS:
                return _ENDINGS[operation["op"]], operation.get("reason", "")
        if head.n >= snapshot.rev:
            break
    return LOST, ""
