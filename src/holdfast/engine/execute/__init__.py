"""From a claim to an end: runs are created, executed until they end or wait, and their results are read.

`start` creates runs, `execute` calls the workflow and acts on the outcome, `children` executes workflows that workflows
call, `result` waits, and `dedup` and `enqueue_within` are the two special ways to enqueue.
"""
