"""Looking after a store: backups, moves between stores, pruning, recovery and the rotation of keys."""
