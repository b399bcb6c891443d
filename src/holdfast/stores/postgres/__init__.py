"""The PostgreSQL store: for workers on any number of machines.

`store` implements the protocol. `connections`, `pool` and `stuck_calls` keep calls alive across lost connections;
`append`, `single_write` and `batch` are the ways a write reaches the server; `notify` wakes waiting workers;
`user_transaction` and `guarded_connection` lend a transaction to user code. The SQL is in `sql/`.
"""
