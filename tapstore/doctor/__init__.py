"""Tries out what a place and a lock service really do, and says what that means.

What it says of conditions is what making a session finds out, by the same functions: `examination`
asks the store for its capabilities and `sessions.place` whether they are enough.
"""
