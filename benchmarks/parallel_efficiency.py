#!/usr/bin/env python3
"""Two ranks of one thread against one rank of two threads: the same `shiftron train` in turn, and what the split costs.

    benchmarks/parallel_efficiency.py 124m --data quickstart/data/train [--precision bf16] [--rounds 3] [-- --KEY VALUE …]

tp 2 and dp 2 run on --sequences sequences a step, pp 2 on four times as many with micro_batch 1, each against a single rank
with the same batch. Keeps benchmarks/results/parallel-efficiency-MODEL-PRECISION.json.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from record import QUIET_CORES, ROOT, Fault, OtherWork, command_text, keep, wait_until_quiet


def step_seconds(ranks, options, folder):
    """Of every step but the first, of a run in a new directory."""
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        command = [ROOT / "launch" / "local", ranks, "train", *options, "--output.directory", f"{directory}/run"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Fault(f"{command_text(command)} returned {done.returncode}: {done.stderr.strip()[-2000:]}")
        lines = [json.loads(line) for line in (pathlib.Path(directory) / "run" / "metrics.jsonl").read_text().splitlines()]
    return [line["step_seconds"] for line in lines[1:]]


def compare(arguments, options, folder):
    single = ["--device.threads", 2]
    split = ["--device.threads", 1]
    few = ["--train.global_batch", arguments.sequences, "--train.micro_batch", arguments.sequences]
    many = ["--train.global_batch", 4 * arguments.sequences, "--train.micro_batch", 1]
    half = ["--train.global_batch", arguments.sequences, "--train.micro_batch", arguments.sequences // 2]
    layouts = {"tp 2": ([*few, "--parallel.tp", 2], few), "dp 2": (half, few), "pp 2": ([*many, "--parallel.pp", 2], many)}
    result, loads = {}, []
    for name, (two, one) in layouts.items():
        if arguments.layout and name not in arguments.layout:
            continue
        rates, single_rates = [], []
        tokens = one[1] * arguments.sequence_length
        while len(rates) < arguments.rounds:
            if not arguments.busy:
                wait_until_quiet(300)
            meter = OtherWork()
            pair = [tokens / statistics.median(step_seconds(2, [*options, *split, *two], folder)),
                    tokens / statistics.median(step_seconds(1, [*options, *single, *one], folder))]
            loads.append(meter.cores())
            if loads[-1] > QUIET_CORES and not arguments.busy:
                print(f"left out a round: other processes used {loads.pop()} cores", file=sys.stderr)
                continue
            rates.append(pair[0])
            single_rates.append(pair[1])
            print(f"{name}: {pair[0]:.0f} tokens/s, one rank {pair[1]:.0f}, efficiency {pair[0] / pair[1]:.3f}", flush=True)
        rounds = [rate / other for rate, other in zip(rates, single_rates)]
        result[name] = {"tokens_per_second": statistics.median(rates), "single_tokens_per_second": statistics.median(single_rates),
                        "efficiency": statistics.median(rounds), "rounds": rounds}
    return result, statistics.fmean(loads)


def main():
    words, own = sys.argv[1:], []
    if "--" in words:
        words, own = words[:words.index("--")], words[words.index("--") + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="name of configs/NAME.conf")
    parser.add_argument("--data", required=True, help="a dataset, as the quick start leaves it in quickstart/data/train")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--layout", action="append", help="only these: 'tp 2', 'dp 2', 'pp 2'; may repeat")
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--sequence-length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", action="store_true", help="do not wait, keep nothing")
    arguments = parser.parse_args(words)
    options = ["--config", ROOT / "configs" / f"{arguments.model}.conf", "--config", ROOT / "configs" / "kv-shift.conf",
               "--data.train", arguments.data, "--train.precision", arguments.precision, "--train.steps", arguments.steps,
               "--train.sequence_length", arguments.sequence_length, "--optimizer.schedule", "constant", "--checkpoint.every", 0, *own]
    with tempfile.TemporaryDirectory() as folder:
        result, cores = compare(arguments, options, folder)
    if arguments.busy:
        return
    command = ["benchmarks/parallel_efficiency.py", *words, *(["--", *own] if own else [])]
    keep(f"parallel-efficiency-{arguments.model}-{arguments.precision}", "parallel_efficiency", command_text(command), cores,
         {"model": arguments.model, "precision": arguments.precision, "result": {"layouts": result}})


if __name__ == "__main__":
    try:
        main()
    except Fault as fault:
        sys.exit(f"parallel_efficiency: {fault}")
