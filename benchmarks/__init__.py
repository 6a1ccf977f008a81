"""Benchmarks: how fast tapstore is, next to how people do the same without it; `make bench`."""
