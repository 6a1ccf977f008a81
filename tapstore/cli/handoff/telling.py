"""What `tapstore handoff deliver` says, called once or as a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tapstore.cli import console
from tapstore.cli.handoff.mail import Mail

if TYPE_CHECKING:
    from tapstore.handoffs.mailbox import Delivery


def warn_about_wake_up(mail: Mail, role: str, error: Exception, pause: float | None = None) -> None:
    """Say that somebody could not be woken, and that the mail waits all the same."""
    when = "" if pause is None else f"; tried again in {pause:g} s"
    mail.invocation.warn(
        "WakeUpWarning", f"{role} was not woken, its mail waits all the same: {error}{when}"
    )


class Teller:
    """Prints what came of deliveries: one line a message, and not the same twice."""

    def __init__(self, mail: Mail) -> None:
        self._mail = mail
        self._waiting: dict[str, Delivery] = {}

    def tell(self, delivery: Delivery) -> tuple[str, ...]:
        """Returns who has got it now."""
        from tapstore.handoffs import report

        if self._waiting.get(delivery.name) != delivery:
            if self._mail.invocation.as_json:
                console.emit(report.delivery_value(delivery))
            else:
                console.say(report.delivery_line(delivery))
        if delivery.waiting:
            self._waiting[delivery.name] = delivery
        else:
            self._waiting.pop(delivery.name, None)
        return delivery.delivered
