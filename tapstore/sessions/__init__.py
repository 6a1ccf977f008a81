"""A session on a store: its state and log, claims, the Tapfile as a view, and who is alive."""
