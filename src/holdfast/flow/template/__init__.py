"""Templates of flows: a small Jinja sandbox with limits on size and time."""
