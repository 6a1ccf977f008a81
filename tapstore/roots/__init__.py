"""Places below which there are many sessions, and the agents that serve them all."""
