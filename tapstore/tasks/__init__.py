"""Work that is asked for: task files in the inbox of a role, and what an agent can do next."""
