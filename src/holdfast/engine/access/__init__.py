"""Access to a run: who may write, and how a write gets to the store.

`held_run` is the object that the rest of the engine works on. `lease` numbers and chains the writes of one claim,
`commit` groups them into transactions, `journal_reader` reads, verifies and decrypts entries, `operations` are the
generators behind every public method with their sync and async drivers, `heartbeat` keeps leases alive, `wakeups`
notices commits, and `engine` is what all handles of one open store share.
"""
