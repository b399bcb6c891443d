"""The SQLite store: the default on one machine.

`store` implements the protocol on top of `file`, which owns the connections, the writer's lock and the transactions.
`rows` maps records to columns, `damage` and `identity` find damaged and replaced files, `user_transaction` and
`guarded_connection` lend a transaction to user code. The SQL is in `sql/`. No other backend imports this one.
"""
