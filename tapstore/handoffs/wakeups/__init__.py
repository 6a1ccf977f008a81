"""Wakes whoever has mail.  A wake-up may be lost: nothing rests on one, mail waits all the same.

`schedule` says when, `notifiers` how, `waker` does it in a thread of its own, so that neither a
slow nor a failing way to wake holds up a delivery.
"""
