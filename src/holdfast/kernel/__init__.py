"""The pure core: what a run is, and every decision about it. No I/O.

`model` has the records and writes, `journal` the hash chain of entries, `fold` turns entries into what a run knows,
`inbox` turns inbox items into entries, `rules` and `admission` hold the decisions that all stores share, and `clock` is
the source of time and randomness. May import `errors`, `secret` and `codec`.
"""
