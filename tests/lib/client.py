"""A process that makes and ends runs, and writes down what was acknowledged: tests/postgres/faults/test_promises.py.

Arguments: the store's URL, a name for its runs, how many it makes, and the file for what was acknowledged. Each line of
that is written after a call has returned: ``made ID`` and ``ended ID``; ``failed ERROR`` is a call that raised. It says
``ready`` when it begins, and ``made`` when it has made them all. Then each line that it is told has it work until there
is nothing to do, after which it says ``idle``.
"""

import os
import sys
import threading
from contextlib import ExitStack

import holdfast
from holdfast import HoldfastError, workflow
from holdfast.errors import StoreError

HANDLES = [1, 1, 1, 2]  # threads on each: a write that is alone is one statement, and others are committed together
ENDED = 5  # one in so many is ended by who makes it; the others are left to workers


@workflow
def nothing(n: int) -> int:
    return n


@workflow
async def nothing_async(n: int) -> int:
    return n


def make(hf: holdfast.Holdfast, name: str, numbers: range, file: int) -> None:
    for n in numbers:
        id = f"{name}-{n}"
        try:
            if n % ENDED:
                hf.enqueue(nothing_async, n, id=id)
                told = f"made {id}"
            else:
                assert hf.start(nothing, n, id=id).result(timeout=60) == n
                told = f"made {id}\nended {id}"
        except HoldfastError as error:
            told = f"failed {type(error).__name__}"
        except Exception as error:  # it is told to the test, which expects none
            told = f"raised {error!r}"
        os.write(file, told.encode() + b"\n")


def main() -> None:
    url, name, runs, path = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    with ExitStack() as stack:
        handles = [stack.enter_context(holdfast.open(url)) for _ in HANDLES]
        print("ready", flush=True)
        users = [hf for hf, threads in zip(handles, HANDLES, strict=True) for _ in range(threads)]
        threads = [
            threading.Thread(target=make, args=(hf, name, range(n, runs, len(users)), file))
            for n, hf in enumerate(users)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print("made", flush=True)
        for _ in sys.stdin:
            for hf in handles:
                try:
                    hf.work(until_idle=True, concurrency=50)
                except StoreError as error:
                    os.write(file, f"failed {type(error).__name__}\n".encode())
            print("idle", flush=True)


if __name__ == "__main__":
    main()
