#!/usr/bin/env python3
"""The commit that a build prints is that of its sources, and says if they have changed since.

    tests/check_commit.py ROOT
"""
import os
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(sys.argv[1], "cmake", "commit.cmake")


def git(folder, *words):
    return subprocess.run(["git", "-C", folder, "-c", "user.name=n", "-c", "user.email=e", *words], check=True, capture_output=True, text=True).stdout.strip()


def named(sources, header):
    subprocess.run(["cmake", "-D", f"SOURCES={sources}", "-D", f"HEADER={header}", "-P", SCRIPT], check=True)
    return header.read_text().split('"')[1]


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder, header = pathlib.Path(scratch, "sources"), pathlib.Path(scratch, "commit.h")
        (folder / "src").mkdir(parents=True)
        assert named(folder, header) == "unknown"  # without git
        (folder / "src" / "a.cpp").write_text("a")
        (folder / "notes").write_text("n")
        git(folder, "init", "-q")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "first")
        commit = git(folder, "rev-parse", "--short=12", "HEAD")
        assert named(folder, header) == commit
        written = header.stat().st_mtime_ns
        (folder / "notes").write_text("of no build")
        assert named(folder, header) == commit and header.stat().st_mtime_ns == written  # nothing is compiled again
        index = (folder / ".git" / "index").read_bytes()
        os.utime(folder / "src" / "a.cpp", (1, 1))  # git would note that it is the same
        assert named(folder, header) == commit and (folder / ".git" / "index").read_bytes() == index
        (folder / "src" / "b.cpp").write_text("compiled too")
        assert named(folder, header) == commit + " and changes"
        (folder / "src" / "b.cpp").unlink()
        (folder / "src" / "a.cpp").write_text("b")
        assert named(folder, header) == commit + " and changes"
        git(folder, "commit", "-qam", "second")
        assert named(folder, header) == git(folder, "rev-parse", "--short=12", "HEAD")
        (folder / "inner" / "src").mkdir(parents=True)
        assert named(folder / "inner", header) == "unknown"  # inside the repository of another project


main()
