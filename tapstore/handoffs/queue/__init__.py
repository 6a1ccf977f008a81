"""Hand-offs in a session, on any store: every state is a name that is created once.

`places` says where things lie, `settings` what a session sets, `sequence` draws ids, `outbox`
sends and delivers.  `attempts` says who has what, `belongings` what one agent has, `inbox` accepts
and completes, `batches` takes several as one, `endings` says how a message ends.  `lists` and
`pruning` look and remove, `opening` puts all together.
"""
