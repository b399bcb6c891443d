"""A holder that forks. See test_forks.py. Arguments: what the child does, the store's URL.

The holder says "held" when it holds the run, and the child says one line per thing that it tried. Then the holder
goes on by a line per line that it is told.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import holdfast
from holdfast import Holdfast, Run
from holdfast.errors import HoldfastError

LEASE = 3600  # nothing comes to an end by waiting
STOP = threading.Event()


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def attempt(name: str, action: Callable[[], object]) -> None:
    try:
        action()
    except HoldfastError as error:
        say(name, type(error).__name__)
    else:
        say(name, "done")


def use(hf: Holdfast, run: Run, url: str) -> None:
    """The child tries everything, with what it inherited and then with a store of its own."""
    attempt("save", lambda: run.save({"by": "child"}))
    attempt("once", lambda: run.once("k", print, target="t"))
    attempt("mark", lambda: run.mark("k", "tool"))
    attempt("read", run.checkpoint)
    attempt("list", hf.runs)
    attempt("other", lambda: hf.run("other"))
    attempt("release", run.release)
    attempt("status", lambda: run.status)
    attempt("close", hf.close)
    with holdfast.open(url) as own:
        attempt("own-other", lambda: own.run("made by the child").save({}))
        attempt("own-claim", lambda: own.get("thread").claim())


def leave(hf: Holdfast, run: Run, url: str) -> None:
    """The child leaves by the end of the with statement, as a careless one does."""
    with contextlib.suppress(HoldfastError), hf:
        pass


def take_over(hf: Holdfast, run: Run, url: str) -> None:
    """The child opens the store itself, and goes on when its parent has left."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    own = holdfast.open(url)
    say("opened", own.run("of the child").save({"n": 0}))
    signal.sigwait({signal.SIGUSR1})
    say("saved", own.run("of the child").save({"n": 1}))
    time.sleep(600)


def live_on(hf: Holdfast, run: Run, url: str) -> None:
    say("born", os.getpid())
    time.sleep(600)


def busy(hf: Holdfast) -> list[threading.Thread]:
    """Threads that keep all locks of the process in use."""

    def write(name: str) -> None:
        run = hf.run(name)
        while not STOP.is_set():
            run.save({"by": "thread"})
            run.questions()

    threads = [threading.Thread(target=write, args=(f"busy-{n}",), daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    return threads


def main() -> None:
    what, url = sys.argv[1:]
    hf = holdfast.open(url, lease=LEASE)
    run = hf.run("thread")
    run.claim()
    run.save({"by": "parent"})
    if what == "in-a-write":
        # The child is born while the parent writes; the parent is killed before it is done with that.
        lock = hf.client.store._writing() if url.startswith("sqlite") else hf.client.store._run(run.uid, exclusive=True)
        with lock:
            child = os.fork()
            if not child:
                signal.alarm(120)
                say("born", os.getpid())
                time.sleep(600)
            say("held", child)
            time.sleep(600)
    threads = busy(hf) if what == "use-while-busy" else []
    child = os.fork()
    if not child:
        signal.alarm(120)  # whatever happens to the test, it does not stay for ever
        {"use": use, "use-while-busy": use, "leave": leave, "live-on": live_on, "take-over": take_over}[what](
            hf, run, url
        )
        os._exit(0)
    say("held", child)
    if what == "take-over":
        sys.stdin.readline()
        hf.close()
        say("closed", 0)
        time.sleep(600)
    STOP.set()
    for thread in threads:
        thread.join()
    for n, line in enumerate(sys.stdin):
        attempt(f"{line.strip()}-{n}", lambda n=n: run.save({"by": "parent", "n": n}))


main()
