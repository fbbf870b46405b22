#!/usr/bin/env python3
"""What `cmake --install` leaves runs by itself: the program, and the scripts beside it that start runs.

    tests/launch/check_install.py BUILD
"""
import os
import pathlib
import subprocess
import sys
import tempfile


def main():
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
        assert (shared / "launch" / "draw-loss").exists()


main()
