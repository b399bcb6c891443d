"""On what kind of disk a store lies, since a store in files is for one machine.

The locks of a process, its boot and its monotonic clock say nothing to another machine. So two machines that share a
folder over a network would take each other's runs, and SQLite's write-ahead log does not work there at all.
"""

from __future__ import annotations

import logging
import os

from holdfast.errors import StoreError

TABLE = "/proc/self/mountinfo"  # of Linux; elsewhere nobody can tell

# File systems that several machines have at once.
NETWORKED = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "coda", "ncpfs", "davfs"),
        *("ceph", "lustre", "beegfs", "gpfs", "glusterfs", "gfs2", "ocfs2", "orangefs", "pvfs2", "moosefs"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.mfs", "fuse.lizardfs", "fuse.juicefs"),
        *("fuse.s3fs", "fuse.goofys", "fuse.gcsfuse", "fuse.rclone", "fuse.blobfuse", "fuse.davfs2", "fuse.smbnetfs"),
    }
)
# Folders of a host that a virtual machine or a container sees. Programs on the host do not see its locks.
OF_THE_HOST = frozenset(
    {"9p", "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "drvfs", "fuse.vmhgfs-fuse", "fuse.grpcfuse", "fuse.osxfs"}
)


def check_disk(place: str, path: str) -> None:
    """Raise `StoreError` if the path lies on a disk that other machines share; warn if only the host does."""
    try:
        with open(TABLE, encoding="utf-8", errors="surrogateescape") as file:
            kind = kind_of(os.path.realpath(path), file.read())
    except OSError:  # another system, or a sandbox that hides it
        return
    if kind in NETWORKED:
        raise StoreError(
            place,
            f"it lies on a network file system ({kind}), where locks and leases of several machines do not hold; "
            "choose a path on a local disk, or use PostgreSQL",
        )
    if kind in OF_THE_HOST:
        logging.getLogger("holdfast").warning(
            "store %s: it lies in a folder of the host (%s); use it from inside of this machine only, or choose a "
            "path on a disk of its own",
            place,
            kind,
        )


def kind_of(path: str, table: str) -> str | None:
    """The kind of file system that a path lies on, by a table as in /proc/self/mountinfo; None if it does not say."""
    found, longest = None, -1
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = _unescaped(fields[4])
        within = path == point or path.startswith(point.rstrip("/") + "/")
        if within and len(point) >= longest:  # of two at the same place, the later one hides the other
            found, longest = after.split(" ")[0], len(point)
    return found


def _unescaped(text: str) -> str:
    """Spaces and the like stand in the table as three octal digits."""
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text
