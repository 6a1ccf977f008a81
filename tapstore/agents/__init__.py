"""Agents: any command or callable, at work in a session or in all sessions below a root."""

from tapstore.agents.command import CommandHandler
from tapstore.agents.handoffs import HandoffHandler, HandoffSpec, HandoffWorker
from tapstore.agents.handoffwork import HandoffWork
from tapstore.agents.outcome import Ending, Outcome, WorkFailedError, WorkReleasedError
from tapstore.agents.signals import stopping_on_signals
from tapstore.agents.worker import AgentSpec, Handler, Worker
from tapstore.tasks.work import Need, Work, WorkFilter

__all__ = [
    "AgentSpec",
    "CommandHandler",
    "Ending",
    "Handler",
    "HandoffHandler",
    "HandoffSpec",
    "HandoffWork",
    "HandoffWorker",
    "Need",
    "Outcome",
    "Work",
    "WorkFailedError",
    "WorkFilter",
    "WorkReleasedError",
    "Worker",
    "stopping_on_signals",
]
