"""Protocols between agents, declared in YAML: read, and checked before anything runs.

Nothing here runs a protocol; see docs/reference/protocols.md.
"""
