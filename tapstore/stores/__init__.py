"""Stores: named bytes in memory, in a folder, on any fsspec filesystem, and wrappers around them.

Import the module you need; `registry.open_store` picks one by URL.
"""
