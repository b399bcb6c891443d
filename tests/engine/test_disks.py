"""On which disks a store in files may lie, and what it says when a disk is full."""

import logging
import os
from pathlib import Path

import pytest

import holdfast
from holdfast.stores import mounts
from holdfast.stores.mounts import NETWORKED, OF_THE_HOST, kind_of

TABLE = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:21 / /proc rw,nosuid shared:5 - proc proc rw
24 22 0:40 / /home rw,relatime shared:9 master:1 - nfs4 server:/home rw,vers=4.2,addr=10.0.0.7
25 24 0:41 / /home/ann/local rw - ext4 /dev/vdb rw
26 22 0:42 / /mnt/my\040share rw - cifs //server/share rw,vers=3.1.1
27 22 0:43 / /mnt/remote rw - fuse.sshfs ann@server:/srv rw
28 22 0:44 / /host rw - 9p hostshare rw,trans=virtio
29 22 0:45 / /data rw - ext4 /dev/vdc rw
30 22 0:46 / /data rw - nfs server:/data rw
31 22 0:47 /sub /bound rw - ext4 /dev/vda rw
not a line of the table
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/runs", "ext4"),
        ("/", "ext4"),
        ("/home", "nfs4"),
        ("/home/ann/runs.db", "nfs4"),
        ("/home/ann/local/runs.db", "ext4"),
        ("/homes/ann", "ext4"),
        ("/mnt/my share/runs", "cifs"),
        ("/mnt/remote/x", "fuse.sshfs"),
        ("/data/x", "nfs"),  # the later mount hides the earlier one
        ("/bound/x", "ext4"),
    ],
)
def test_the_kind_of_a_disk_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert kind_of(path, TABLE) == kind


def test_a_table_that_says_nothing() -> None:
    assert kind_of("/x", "") is None


def test_the_table_of_this_machine_names_the_disk_of_this_test(tmp_path: Path) -> None:
    """The device that the system tells of a folder is the one of the line that counts."""
    if not os.path.exists(mounts.TABLE):
        pytest.skip("this system has no such table")
    table = Path(mounts.TABLE).read_text()
    device = os.stat(tmp_path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = {line.partition(" - ")[2].split(" ")[0] for line in table.splitlines() if line.split(" ")[2] == number}
    if not kinds:
        pytest.skip("the device of this file system is not the one in the table, as with btrfs")
    assert kind_of(str(tmp_path.resolve()), table) in kinds
    assert kinds.isdisjoint(NETWORKED)  # else no test of a store would have come this far


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of which the table of mounts says that it is on a disk of some kind: write that into the file beside."""
    monkeypatch.setattr(mounts, "TABLE", str(tmp_path / "table"))
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def say(folder: Path, kind: str) -> None:
    lines = ["22 1 254:0 / / rw - ext4 /dev/vda rw", f"23 22 0:40 / {folder} rw - {kind} somewhere rw"]
    (folder.parent / "table").write_text("\n".join(lines))


@pytest.mark.parametrize("url", ["sqlite:///{}/runs.db", "files:///{}/runs"], ids=["sqlite", "files"])
@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_a_network_file_system_is_refused_and_nothing_is_made_there(mounted: Path, url: str, kind: str) -> None:
    say(mounted, kind)
    (mounted.parent / "link").symlink_to(mounted)
    for folder in (mounted, mounted.parent / "link"):
        with pytest.raises(
            holdfast.errors.StoreError, match=rf"network file system \({kind}\).*local disk, or use PostgreSQL"
        ):
            holdfast.open(url.format(folder))
    assert list(mounted.iterdir()) == []


@pytest.mark.parametrize("url", ["sqlite:///{}/runs.db", "files:///{}/runs"], ids=["sqlite", "files"])
def test_a_folder_of_the_host_is_warned_about(mounted: Path, url: str, caplog: pytest.LogCaptureFixture) -> None:
    for kind in sorted(OF_THE_HOST):
        say(mounted, kind)
        caplog.clear()
        with caplog.at_level(logging.WARNING), holdfast.open(url.format(mounted)) as hf:
            hf.run("run").save(1)
        assert [f"a folder of the host ({kind})" in message for message in caplog.messages] == [True]


def test_a_local_disk_and_a_system_without_a_table_are_fine(mounted: Path, caplog: pytest.LogCaptureFixture) -> None:
    with holdfast.open(f"sqlite:///{mounted}/runs.db") as hf:
        hf.run("run").save(1)
    say(mounted, "xfs")
    with holdfast.open(f"files:///{mounted}/runs") as hf:
        hf.run("run").save(1)
    assert caplog.messages == []
