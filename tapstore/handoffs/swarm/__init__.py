"""Hand-offs in a folder of the original layout, shared with agents that run the original scripts.

`finding` finds a swarm, `opening` opens the mailbox of one of its roles.  Below: `roles` (who takes
part), `folder` (where things lie in one worktree), `files` and `letters` (reading and publishing),
`sequence` (numbers), `copies` (one copy for each recipient), `delivery`, `inbox` and `batches`
(accepting, completing), `lists` and `upkeep`.

The original layout knows no leases: what an agent that died had accepted stays in process until
that role asks for work again, and gets it again.
"""
