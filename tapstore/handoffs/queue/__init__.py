"""Hand-offs in a session, on any store: every state is a name that is created once.

`places` says where things lie, `settings` what a session sets, `sequence` draws ids, `outbox`
sends and delivers, `attempts` says who has what, `inbox` accepts and completes, `batches` takes
several as one, `records` reads, `pruning` removes, `opening` puts them together.
"""
