"""The engine: it executes workflows on a store, and does to runs what people and programs ask for.

Its packages may import only those before them: `access` (who may write, and how a write gets to the store), `workflow`
(a workflow's code while it executes), `control` (what people and programs do to a run), `execute` (from a claim to an
end), `worker` (queues, schedules, heartbeats), `run` (the handles that users hold), `admin` (backup, move, prune), and
`app` (`holdfast.open`).
"""
