#!/usr/bin/env python3
"""What one number of looks before a waiting thread sleeps (GOMP_SPINCOUNT) costs another, alone and for two jobs at once.

    benchmarks/two_jobs.py --data DIR [--config FILE …] [--counts 300000,1000] [--rounds 5] [-- --model.hidden 64 …]

Trains a new run of some steps by each number in turn: alone, then two at once. For each number: the median step of a job,
alone and with another one, and the medians over rounds of both divided by the first number's step alone in the same
round. Measure on a machine that does nothing else. Words after -- are options of `train`.
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


def start(words, count, directory):
    # pylint: disable-next=consider-using-with
    return subprocess.Popen([PROGRAM, "train", *words, "--output.directory", str(directory)], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, env=os.environ | {"GOMP_SPINCOUNT": count})


def step_seconds(directory):
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return statistics.median([row["step_seconds"] for row in rows if "step_seconds" in row][1:])


def measure(words, count, jobs):
    """Of `jobs` runs at once the slowest one's median step."""
    with tempfile.TemporaryDirectory(prefix="shiftron-two-jobs-") as folder:
        directories = [pathlib.Path(folder) / str(job) for job in range(jobs)]
        for process in [start(words, count, directory) for directory in directories]:
            if process.wait() != 0:
                raise SystemExit(f"two_jobs: training failed: {PROGRAM} train {' '.join(words)}")
        return max(map(step_seconds, directories))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--config", nargs="+", default=[str(ROOT / "configs" / "quickstart.conf")])
    parser.add_argument("--counts", default="300000,1000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    words = [word for config in arguments.config for word in ("--config", config)]
    words += ["--data.train", arguments.data, "--train.steps", str(arguments.steps), "--train.stop_at", "0", "--optimizer.warmup", "1",
              "--checkpoint.every", "0", "--evaluation.every", "0", "--parallel.tp", "1", "--parallel.pp", "1", *arguments.options]
    counts = arguments.counts.split(",")
    seconds = {(count, jobs): [] for count in counts for jobs in (1, 2)}
    for _ in range(arguments.rounds):
        for count, jobs in seconds:
            seconds[count, jobs].append(measure(words, count, jobs))
    base = seconds[counts[0], 1]
    for (count, jobs), found in seconds.items():
        ratio = statistics.median(one / other for one, other in zip(found, base))
        print(f"GOMP_SPINCOUNT={count:<8} {'alone' if jobs == 1 else 'two at once':12} {1e3 * statistics.median(found):9.1f} ms  {ratio:6.3f}")


if __name__ == "__main__":
    main()
