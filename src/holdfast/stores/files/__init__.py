"""The files store: one folder for each run, readable without Holdfast.

`store` implements the protocol, `root` owns the folder of the store and `folder` that of a run, `journal` and `text`
read and write lines, and `disk` is every system call that changes the disk, so that tests can fail each of them.
"""
