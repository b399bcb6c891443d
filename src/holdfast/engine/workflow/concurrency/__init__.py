"""Several things at once in one workflow: branches, races, tasks of asyncio and threads.

`async_execution` executes async workflows, `task_scopes` gives their tasks stable names, `idle` finds out when all of
them wait, `branches` and `races` are `gather`, `map`, `first` and `timeout`, and `thread_bridge` lets sync code in a
thread make durable calls of an async workflow.
"""
