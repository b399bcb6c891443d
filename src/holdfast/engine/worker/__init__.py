"""Workers: they take due runs from queues, and begin what schedules say.

`worker` is the loop, `intake` decides what to take, `inbox_watch` notices answers and cancels for runs that execute
here, and `queues`, `schedules` and `cron` are what they are named for.
"""
