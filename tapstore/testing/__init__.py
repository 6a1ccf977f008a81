"""What tapstore is tested with, shipped for those who write backends and agents of their own.

`stores` has the conformance suite that every store and wrapper passes, `faults` a store that
fails on command.  Nothing in tapstore itself imports this package.
"""
