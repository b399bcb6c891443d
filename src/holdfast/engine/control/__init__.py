"""What people and programs do to a run: answer, message, cancel, retry, roll back, fork, edit, erase, audit.

Each module is one subject, and its functions take a `HeldRun`. `finish` writes how a run ends. What belongs to the
execution of children is reached through `Upcalls`.
"""
