"""Leases on stores, the plain lock file of the original protocol, and what keeps them alive."""
