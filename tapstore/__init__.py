"""tapstore: shared state for agents that have nothing in common but a place to put files."""
