#!/usr/bin/env python3
"""How much two jobs on one machine slow each other: the time of a step alone, and while a second job runs.

    benchmarks/two_jobs.py --data DIR [--config FILE …] [--program FILE …] [--rounds 5] [--steps 300] [-- --model.hidden 64 …]

Trains new runs in turn: alone, two at once in one session, and two at once in a session each (as from two terminals), where
Linux shares processors between the sessions. For each program (by default the release build): the median over rounds of
the slower job's median step, and its ratio to the same program's step alone in the same round. Fair sharing gives 2.
Measure on an otherwise idle machine. Words after -- are options of `train`.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("SHIFTRON", str(ROOT / "build" / "release" / "shiftron"))
WAYS = {"alone": (1, False), "two at once": (2, False), "two sessions": (2, True)}


def start(program, words, directory, new_session):
    # pylint: disable-next=consider-using-with
    return subprocess.Popen([program, "train", *words, "--output.directory", str(directory)], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, start_new_session=new_session)


def step_seconds(directory):
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return statistics.median([row["step_seconds"] for row in rows if "step_seconds" in row][1:])


def measure(program, words, jobs, new_session):
    """The median step of the slowest of `jobs` simultaneous runs."""
    with tempfile.TemporaryDirectory(prefix="shiftron-two-jobs-") as folder:
        directories = [pathlib.Path(folder) / str(job) for job in range(jobs)]
        for process in [start(program, words, directory, new_session) for directory in directories]:
            if process.wait() != 0:
                raise SystemExit(f"two_jobs: training failed: {program} train {' '.join(words)}")
        return max(map(step_seconds, directories))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--config", nargs="+", default=[str(ROOT / "configs" / "quickstart.conf")])
    parser.add_argument("--program", nargs="+", default=[PROGRAM])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    words = [word for config in arguments.config for word in ("--config", config)]
    words += ["--data.train", arguments.data, "--train.steps", str(arguments.steps), "--train.stop_at", "0", "--optimizer.warmup", "1",
              "--checkpoint.every", "0", "--evaluation.every", "0", "--parallel.tp", "1", "--parallel.pp", "1", *arguments.options]
    seconds = {(program, way): [] for program in arguments.program for way in WAYS}
    for _ in range(arguments.rounds):
        for program, way in seconds:
            seconds[program, way].append(measure(program, words, *WAYS[way]))
    for (program, way), found in seconds.items():
        ratio = statistics.median(one / other for one, other in zip(found, seconds[program, "alone"]))
        each = " ".join(f"{1e3 * one:.1f}" for one in found)
        print(f"{program}  {way:12} {1e3 * statistics.median(found):9.1f} ms  {ratio:6.2f}   (rounds: {each})")


if __name__ == "__main__":
    main()
