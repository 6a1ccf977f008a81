"""Hand-offs: messages by which agents pass work on, as files that sort into their order.

The format is here: `names` (file names and ids), `message` (header block and body), `references`
(artifacts that a message names), `types` (what kinds there are), `draft` (what an agent asks to be
sent), `gitcommit`.  It is specified in docs/reference/handoffs.md.
"""
