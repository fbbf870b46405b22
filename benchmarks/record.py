#!/usr/bin/env python3
"""Stores the JSON that a benchmark prints, with machine, date, load, command and versions, in benchmarks/results/NAME.json.

    benchmarks/record.py NAME COMMAND…     for example: benchmarks/record.py step-floor-toy \\
                                               build/release/benchmarks/step_floor --config configs/toy.conf --json

Waits until nothing else runs here, at most --wait SECONDS: figures from a busy machine are not kept. --busy prints figures without waiting and
keeps nothing.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
QUIET_CORES = 0.25  # that other processes may use, on average
LIBRARIES = {"oneDNN": "libdnnl-dev", "compiler": "g++", "MPI": "libopenmpi-dev", "HDF5": "libhdf5-dev"}


class Fault(Exception):
    pass


def split_words(words):
    """Returns (a benchmark's own arguments, those after --, which go to the program)."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1:]


def at_least(least):
    """For argparse: a whole number that is at least `least`."""
    def number(text):
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return int(text)
    return number


def largest(differences):
    """The largest number, or NaN if there is one, which max() may ignore."""
    return max(differences, key=lambda one: (math.isnan(one), one))


def require_program(path):
    if not shutil.which(path):
        raise Fault(f"no program at {command_text([path])}\n  next: cmake --preset release && cmake --build --preset release")


def must(*command):
    """Returns what the command prints; raises Fault if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Fault(f"{command_text(command[:3])} returned {done.returncode}: {(done.stdout + done.stderr).strip()[-2000:]}")
    return done.stdout


def model_file(name):
    path = ROOT / "configs" / f"{name}.conf"
    if not path.exists():
        raise Fault(f"no model {name}: configs/{name}.conf does not exist\n  next: ls configs")
    return path


def machine():
    fields = {}
    for line in subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout.splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    flags = fields.get("Flags", "").split()
    wanted = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    memory = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1))
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True,
                         check=False).stdout.strip() if shutil.which("nvidia-smi") else ""
    return ({"gpu": gpu} if gpu else {}) | {"processor": fields.get("Model name", "unknown"), "family": fields.get("CPU family"), "model": fields.get("Model"),
            "cores": len(os.sched_getaffinity(0)), "instructions": [flag for flag in wanted if flag in flags],
            "memory_gib": round(memory / 2**20, 1), "system": f"{os.uname().sysname} {os.uname().release}"}


def cuda_versions():
    """Versions of the CUDA build, as it prints them itself."""
    answer = subprocess.run([ROOT / "build" / "cuda" / "shiftron", "--version"], capture_output=True, text=True, check=False).stdout
    named = re.search(r"cuda \((.*)\)", answer)
    return dict(part.rsplit(" ", 1) for part in named.group(1).split(", ")) if named else {}


def versions(command):
    found = {}
    if "cuda" in command:  # the versions that a GPU step uses
        found = cuda_versions()
    else:
        for name, package in LIBRARIES.items():
            asked = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False)
            found[name] = asked.stdout or "unknown"
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "src"], capture_output=True, text=True, check=False).stdout.strip()
    return {"shiftron": (commit or "unknown") + (" and changes" if changed else "")} | found


def busy_seconds():
    """Busy time of all cores since the machine started: user, nice, system, interrupts, and time taken by the host."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def own_seconds(pids=()):
    """Processor time of this process, of its ended children, and of its living children `pids`."""
    total = sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


class OtherWork:
    """Cores that other processes used between start and stop."""

    def __init__(self, pids=()):
        self.pids, self.start = pids, (time.monotonic(), busy_seconds(), own_seconds(pids))

    def cores(self):
        wall, busy, own = (now - then for now, then in zip((time.monotonic(), busy_seconds(), own_seconds(self.pids)), self.start))
        return round(max(0.0, busy - own) / wall, 3)


def wait_until_quiet(seconds):
    deadline = time.monotonic() + seconds
    while True:
        meter = OtherWork()
        time.sleep(1)
        cores = meter.cores()
        if cores <= QUIET_CORES:
            return
        if time.monotonic() > deadline:
            raise Fault(f"other processes use {cores:.1f} cores; try again later, or use --busy to see figures that are not kept")


def command_text(words):
    """The command as typed in the repository's folder, without this machine's paths."""
    return shlex.join(str(word).replace(f"{ROOT}/", "") for word in words)


def keep(name, kind, command, other_cores, data, extra_versions=None):
    if other_cores > QUIET_CORES:
        raise Fault(f"other processes used {other_cores:.2f} cores meanwhile: the result is not kept")
    RESULTS.mkdir(exist_ok=True)
    result = {"kind": kind, "machine": machine(), "date": datetime.date.today().isoformat(), "command": command,
              "versions": versions(command) | (extra_versions or {}), "load_average": [round(load, 2) for load in os.getloadavg()],
              "other_cores": other_cores} | data
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"kept {path.relative_to(ROOT)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    parser.add_argument("--wait", type=float, default=300)
    parser.add_argument("--busy", action="store_true", help="print the result; do not wait, keep nothing")
    arguments = parser.parse_args()
    if not arguments.command:
        raise Fault("a command is missing; benchmarks/record.py --help shows an example")
    os.chdir(ROOT)
    require_program(arguments.command[0])
    if not arguments.busy:
        wait_until_quiet(arguments.wait)
    meter = OtherWork()
    done = subprocess.run(arguments.command, capture_output=True, text=True, check=False)
    cores = meter.cores()
    if done.returncode != 0:
        raise Fault(f"{command_text(arguments.command)} returned {done.returncode}: {done.stderr.strip()}")
    try:
        data = json.loads(done.stdout)
    except ValueError:
        raise Fault(f"{command_text(arguments.command)} printed no JSON; most programs need --json") from None
    print(done.stdout.strip() if arguments.busy else f"other processes used {cores} cores meanwhile")
    if arguments.busy:
        return
    keep(arguments.name, pathlib.Path(arguments.command[0]).name, command_text(arguments.command), cores, {"result": data})


if __name__ == "__main__":
    try:
        main()
    except Fault as fault:
        sys.exit(f"record: {fault}")
