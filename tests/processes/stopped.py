"""A process that writes to a store and can be stopped in the middle. See test_stopped_writers.py.

Arguments: the store's URL, and where it is to be stopped: ``step`` (it stops itself inside a transactional step),
``commits`` (it commits without pause, so that others can stop it inside a commit), or ``own`` (it stops itself inside
a transaction of a connection of its own).
"""

import os
import signal
import sqlite3
import sys

import holdfast
from holdfast import step, workflow

url, where = sys.argv[1:]


def stop() -> None:
    os.write(1, b"stopping\n")
    os.kill(os.getpid(), signal.SIGSTOP)


@step(transactional=True)
def stand_still(db: sqlite3.Connection) -> int:
    db.execute("CREATE TABLE mine (n INTEGER)")
    stop()
    return 1


@workflow
def standing() -> int:
    return stand_still()


with holdfast.open(url) as hf:
    if where == "step":
        hf.start(standing, id="thread").result()
    elif where == "own":
        with hf.run("thread").claim():
            own = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
            own.execute("BEGIN IMMEDIATE")
            stop()
            own.execute("COMMIT")
    else:
        with hf.run("thread").claim() as run:
            os.write(1, b"writing\n")
            n = 0
            while True:
                run.save({"n": (n := n + 1)})
os.write(1, b"done\n")
