#!/usr/bin/env python3
"""launch/local: signals, exit codes and kills, with the program signal_job.cpp, built here. Argument: a folder to build in."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LOCAL = ROOT / "launch" / "local"
FAULTS = []


def check(name, condition, *facts):
    print("passed" if condition else "FAILED", name, *facts, flush=True)
    if not condition:
        FAULTS.append(name)


def job(program, ranks, *arguments, signals=(), start=None):
    """(exit code, output, seconds) of launch/local. `signals` are sent half a second apart once the job runs, or
    `start` seconds after its launch."""
    began = time.monotonic()
    process = subprocess.Popen([LOCAL, str(ranks), *arguments], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                               env=dict(os.environ, SHIFTRON=str(program)))
    output = ""
    if start is None:
        output = process.stdout.readline()
    else:
        time.sleep(start)
    for number in signals:
        process.send_signal(number)
        time.sleep(0.5)
    output += process.communicate(timeout=120)[0]
    return process.returncode, output, time.monotonic() - began


def check_events(folder):
    """The code is taken from the run's events where no rank left one."""
    loader = importlib.machinery.SourceFileLoader("local", str(LOCAL))
    local = importlib.util.module_from_spec(importlib.util.spec_from_loader("local", loader))
    loader.exec_module(local)
    run = folder / "run"
    run.mkdir(exist_ok=True)
    events = [{"event": "exit", "code": 75}, {"event": "start"}, {"event": "exit", "code": 71}, {"event": "checkpoint"}]
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + "{torn")
    check("the last exit line of the events", local.code_of_run(run, time.time() - 60) == 71)
    check("events older than the job do not count", local.code_of_run(run, time.time() + 60) is None)
    check("no events", local.code_of_run(folder / "absent", 0) is None)
    check("the run's directory among the arguments", local.run_directory(["train", "--output.directory", "a"]) == "a")


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "signal_job"
    subprocess.run(["mpicxx", "-std=c++20", "-o", program, pathlib.Path(__file__).parent / "signal_job.cpp"], check=True)

    for name, number in (("INT", signal.SIGINT), ("TERM", signal.SIGTERM), ("HUP", signal.SIGHUP)):
        code, output, seconds = job(program, 4, "save", signals=[number])
        check(f"{name} lets all four ranks save, then 75", code == 75 and output.count("saved") == 4, code, f"{seconds:.1f} s")
    code, output, _ = job(program, 1, "save", signals=[signal.SIGINT])
    check("one rank too", code == 75 and output.count("saved") == 1, code)
    code, output, seconds = job(program, 3, "late", signals=[signal.SIGTERM], start=0.3)
    check("a signal before the ranks listen waits for them", code == 75 and output.count("saved") == 3, code, f"{seconds:.1f} s")
    for wanted in (0, 1, 72, 75, 76):
        code, _, seconds = job(program, 3, "code", str(wanted))
        check(f"exit code {wanted}", code == wanted, code, f"{seconds:.1f} s")
    code, _, seconds = job(program, 3, "killed")
    check("the death of a rank ends its peers", code == 137 and seconds < 30, code, f"{seconds:.1f} s")
    code, _, seconds = job(program, 3, "abort")
    check("MPI_Abort's code", code == 72, code, f"{seconds:.1f} s")
    code, _, seconds = job(program, 2, "stubborn", signals=[signal.SIGINT, signal.SIGINT])
    check("a second Ctrl-C kills", code == 137 and seconds < 10, code, f"{seconds:.1f} s")
    code, _, seconds = job(program, 2, "deaf", signals=[signal.SIGTERM])
    check("a program that does not catch USR1 is ended by it", code == 138, code, f"{seconds:.1f} s")
    check_events(folder)
    left = subprocess.run(["pgrep", "-f", str(program)], capture_output=True, text=True, check=False).stdout.split()
    check("no process is left", not [one for one in left if alive(one)], left)
    print(f"{len(FAULTS)} failed")
    return bool(FAULTS)


def alive(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
