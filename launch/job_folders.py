"""Folders for the temporary files of a job of launch/local, and their removal after any end of that job.

A job has one folder in TMPDIR and one in /dev/shm. All its processes hold a shared lock (flock) on both, so a folder that can
be locked exclusively belongs to a job that was killed: the next job of the same user removes it. Locks work where process ids
do not, between containers that share a folder. The name holds a part of the kernel's boot id: a folder on a network file
system is left to its own host, since flock may not reach other hosts.
"""
import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile

SHARED_MEMORY = "/dev/shm"


def prefix():
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        boot = "0"
    return f"shiftron-{boot}-"  # short: Open MPI adds to the path, and the path of a Unix socket has at most 107 bytes


def open_folder(path):
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def is_linked(path, number):
    """Whether `path` still is the folder that is open as `number`."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(number))
    except OSError:
        return False


def make(parent):
    """Path and open, locked descriptor of a new folder in `parent`. Raises OSError."""
    while True:
        path = tempfile.mkdtemp(prefix=prefix(), dir=parent)
        with contextlib.suppress(FileNotFoundError):  # another job's sweep may come before the lock: then again
            number = open_folder(path)
            with contextlib.suppress(OSError):  # a file system without locks, where a sweep removes nothing either
                fcntl.flock(number, fcntl.LOCK_SH)
            if is_linked(path, number):
                return path, number
            os.close(number)


def sweep(parent):
    """Removes this user's folders in `parent` that no process locks."""
    try:
        entries = list(os.scandir(parent))
    except OSError:
        return
    for entry in entries:
        if not entry.name.startswith(prefix()):
            continue
        with contextlib.suppress(OSError):  # gone, locked, or on a file system without locks
            number = open_folder(entry.path)
            try:
                if os.fstat(number).st_uid == os.geteuid():
                    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(number)


class JobFolders:
    """`temporary`: for small files; `shared`: for the ranks' shared memory, None where /dev/shm cannot be used;
    `locks`: the descriptors that every process of the job keeps open."""

    def __init__(self, parent):
        self.temporary, lock = make(parent)
        self.shared, self.locks = None, [lock]
        with contextlib.suppress(OSError):
            self.shared, lock = make(SHARED_MEMORY)
            self.locks.append(lock)

    def environment(self):
        """Variables that have Open MPI write into these folders; without /dev/shm it puts shared memory into the first."""
        directories = {"OMPI_MCA_orte_tmpdir_base": self.temporary}
        if self.shared:
            directories["OMPI_MCA_btl_vader_backing_directory"] = self.shared
        return directories

    def remove(self):
        for path in filter(None, (self.temporary, self.shared)):
            shutil.rmtree(path, ignore_errors=True)
