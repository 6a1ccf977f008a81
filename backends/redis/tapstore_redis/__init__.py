"""Leases in Redis or Valkey: the lock service behind `locks="redis://…"`."""
