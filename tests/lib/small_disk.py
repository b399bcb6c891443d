"""Opens stores on a disk that is full, or nearly. A process of its own, since the disk is seen by it alone.

Arguments: an empty folder for the disk, and what the URLs of the stores begin with. It says what came of each on a
line: how many pages were free, and the name of the error, if one was raised.
"""

import shutil
import sys
from pathlib import Path

from pgdisk import fill, mount

import holdfast

PAGE = 4096


def main(folder: str, scheme: str) -> None:
    try:
        mount(folder, "4")
    except OSError as error:
        print(f"no disk: {error}", flush=True)
        return
    ballast = Path(folder, "ballast")
    for pages in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377):
        place = Path(folder, f"{pages}")
        place.mkdir()
        url = f"{scheme}:///{place}/store"
        fill(ballast)
        with ballast.open("r+b") as file:
            file.truncate(ballast.stat().st_size - pages * PAGE)
        found = "opened"
        try:
            with holdfast.open(url) as hf:
                hf.run("run").save("x")
        except holdfast.HoldfastError as error:
            found = f"{type(error).__name__}: {error}"
        print(f"{pages} {found}", flush=True)
        ballast.unlink()
        with holdfast.open(url) as hf:
            hf.run("run").save("there is room again")
            assert hf.get("run").checkpoint().state == "there is room again"
        shutil.rmtree(place)
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
