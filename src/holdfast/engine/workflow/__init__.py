"""A workflow's code while it executes.

`declare` has the decorators, `scope` gives each durable call its key, `execution` decides whether a call is replayed or
executed, `step` and `effect_step` execute one, `waiting` asks, sleeps and receives, `replay` and `replay_gate` compare
the code with what was recorded, and `failures` stores errors. Branches and tasks are in `concurrency`.
"""
