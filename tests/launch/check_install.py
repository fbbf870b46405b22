#!/usr/bin/env python3
"""What `cmake --install` installs runs by itself: the program and the scripts that start runs, also if a library is in its own folder.

    tests/launch/check_install.py BUILD
"""
import os
import pathlib
import subprocess
import sys
import tempfile


ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ELSEWHERE = """cmake_minimum_required(VERSION 3.25)
project(elsewhere LANGUAGES C)
add_executable(shiftron main.c)
target_link_libraries(shiftron PRIVATE ${LIBRARY})
include(cmake/install.cmake)
"""


def check_library_elsewhere():
    """Of a program of one library, by the project's own rules of installation."""
    with tempfile.TemporaryDirectory() as scratch:
        sources, library = pathlib.Path(scratch, "sources"), pathlib.Path(scratch, "folder", "libown.so")
        for folder in (sources, library.parent):
            folder.mkdir()
        for name in ("cmake", "configs", "launch"):
            (sources / name).symlink_to(ROOT / name)
        (sources / "CMakeLists.txt").write_text(ELSEWHERE)
        (sources / "main.c").write_text("int own(void); int main(void) { return own(); }")
        subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", library], input="int own(void) { return 23; }", text=True, check=True)
        subprocess.run(["cmake", "-S", sources, "-B", f"{scratch}/build", f"-DLIBRARY={library}"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", f"{scratch}/build"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--install", f"{scratch}/build", "--prefix", f"{scratch}/installed"], check=True, stdout=subprocess.DEVNULL)
        ran = subprocess.run([f"{scratch}/installed/bin/shiftron"], capture_output=True, text=True, check=False)
        assert ran.returncode == 23, ran


def main():
    check_library_elsewhere()
    with tempfile.TemporaryDirectory() as prefix:
        subprocess.run(["cmake", "--install", sys.argv[1], "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
        program, shared = pathlib.Path(prefix, "bin", "shiftron"), pathlib.Path(prefix, "share", "shiftron")
        data = pathlib.Path(prefix, "data")
        data.mkdir()
        (data / "dataset.json").write_text("{}")  # a plan asks no more of it than to be there
        environment = {name: value for name, value in os.environ.items() if name != "SHIFTRON"}
        version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
        assert version.startswith("shiftron "), version
        ran = subprocess.run([shared / "launch" / "slurm", shared / "configs" / "toy.conf", "--nodes", "1", "--tasks-per-node", "1", "--time", "10",
                              "--dry-run", "--data.train", data, "--output.directory", f"{prefix}/run"], env=environment,
                             capture_output=True, text=True, check=False)
        assert ran.returncode == 0 and str(program) in ran.stdout, ran.stdout + ran.stderr
        ran = subprocess.run([shared / "launch" / "local", "1", "train", "--config", shared / "configs" / "toy.conf", "--dry-run",
                              "--data.train", data, "--output.directory", f"{prefix}/run"], env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0 and "parameters" in ran.stdout, ran.stdout + ran.stderr
        metrics = pathlib.Path(prefix, "first", "metrics.jsonl")
        metrics.parent.mkdir()
        metrics.write_text('{"step": 1, "tokens": 8, "loss": 2}\n')
        (metrics.parent / "config.conf").write_text("[train]\nseed = 1\n")
        hidden = pathlib.Path(prefix, "share", "shiftron", "launch", "paired.py")
        for words, answer in (([program, "compare", metrics.parent, "--", metrics.parent, "--metric", "loss"], "mean 2.0000"),
                              ([shared / "launch" / "draw-loss", f"{prefix}/loss", metrics.parent], "loss.svg")):
            ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
            assert ran.returncode == 0 and answer in ran.stdout, ran.stdout + ran.stderr
        hidden.write_text("raise SystemExit(23)")  # the installed scripts are taken, not those of the sources
        ran = subprocess.run([program, "compare", metrics.parent, "--", metrics.parent], env=environment, check=False)
        assert ran.returncode == 23, ran


main()
