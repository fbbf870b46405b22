"""Folders for the temporary files of a job of launch/local, which are removed however the job ends.

A job has one folder in TMPDIR and one in /dev/shm. All its processes hold a shared lock (flock) on both. A folder that can be
locked exclusively belongs to a job that was killed, and the next job of the same user removes it. Unlike process ids, locks also
work between containers that share a folder. The name contains a part of the kernel's boot id, so that a folder on a network file
system is only removed by its own host, because flock may not reach other hosts.
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
    return f"shiftron-{boot}-"  # short: Open MPI appends to the path, and a Unix socket's path has at most 107 bytes


def open_folder(path):
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def is_linked(path, number):
    """Whether `path` is still the folder that is open as `number`."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(number))
    except OSError:
        return False


def make(parent):
    """Creates a folder in `parent`; returns its path and an open, locked descriptor. Raises OSError."""
    while True:
        path = tempfile.mkdtemp(prefix=prefix(), dir=parent)
        with contextlib.suppress(FileNotFoundError):  # another job's sweep may remove it before it is locked: try again
            number = open_folder(path)
            with contextlib.suppress(OSError):  # a file system without locks, on which sweep() removes nothing
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
    """`temporary`: for small files; `shared`: for the ranks' shared memory, None if /dev/shm is unusable;
    `locks`: descriptors that every process of the job keeps open."""

    def __init__(self, parent):
        self.temporary, lock = make(parent)
        self.shared, self.locks = None, [lock]
        with contextlib.suppress(OSError):
            self.shared, lock = make(SHARED_MEMORY)
            self.locks.append(lock)

    def environment(self):
        """Variables that make Open MPI use these folders; without /dev/shm its shared memory goes into `temporary`."""
        directories = {"OMPI_MCA_orte_tmpdir_base": self.temporary}
        if self.shared:
            directories["OMPI_MCA_btl_vader_backing_directory"] = self.shared
        return directories

    def remove(self):
        for path in filter(None, (self.temporary, self.shared)):
            shutil.rmtree(path, ignore_errors=True)
