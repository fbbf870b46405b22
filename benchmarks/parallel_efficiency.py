#!/usr/bin/env python3
"""Compares two ranks of one thread with one rank of two threads, and with each other: the same `shiftron train` in turn. Shows what
a split costs, and what zero 1 and pipeline schedules gain or lose.

    benchmarks/parallel_efficiency.py 124m --data quickstart/data/train [--precision bf16] [--rounds 3] [-- --KEY VALUE …]

tp 2 and dp 2 run on --sequences sequences per step, pp 2 on --microbatches of one each; both are compared with a single rank with the
same batch, zero 1 with dp 2, schedules with pp 2 with 1f1b. Keeps benchmarks/results/parallel-efficiency-MODEL-PRECISION.json.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from record import QUIET_CORES, ROOT, Fault, OtherWork, at_least, command_text, keep, model_file, split_words, wait_until_quiet


def step_seconds(ranks, options, folder):
    """Values of every step except the first, of a run in a new directory."""
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
    many = ["--train.global_batch", arguments.microbatches, "--train.micro_batch", 1]
    half = ["--train.global_batch", arguments.sequences, "--train.micro_batch", arguments.sequences // 2]
    stages = [*many, "--parallel.pp", 2, *split]
    chunks = ["--parallel.pipeline", "interleaved", "--parallel.chunks", 2]
    alone, data, pipeline = "one rank", "dp 2", "pp 2"
    # The options of two ranks; what they are compared with, and that one's ranks and options.
    layouts = {"tp 2": ([*few, *split, "--parallel.tp", 2], alone, 1, [*few, *single]),
               data: ([*half, *split], alone, 1, [*few, *single]),
               pipeline: (stages, alone, 1, [*many, *single]),
               "dp 2, zero 1": ([*half, *split, "--parallel.zero", 1], data, 2, [*half, *split]),
               "pp 2, interleaved": ([*stages, *chunks], pipeline, 2, stages),
               "pp 2, zb-h1": ([*stages, "--parallel.pipeline", "zb-h1"], pipeline, 2, stages)}
    if unknown := set(arguments.layout or []) - set(layouts):
        raise Fault(f"no layout {', '.join(map(repr, sorted(unknown)))}; layouts: {', '.join(map(repr, layouts))}")
    result, loads = {}, []
    for name, (two, against, ranks, other) in layouts.items():
        if arguments.layout and name not in arguments.layout:
            continue
        rates, other_rates = [], []
        tokens = two[1] * arguments.sequence_length
        while len(rates) < arguments.rounds:
            if not arguments.busy:
                wait_until_quiet(300)
            meter = OtherWork()
            pair = [tokens / statistics.median(step_seconds(count, [*options, *own], folder))
                    for count, own in ((2, two), (ranks, other))]
            loads.append(meter.cores())
            if loads[-1] > QUIET_CORES and not arguments.busy:
                print(f"discarded a round: other processes used {loads.pop()} cores", file=sys.stderr)
                continue
            rates.append(pair[0])
            other_rates.append(pair[1])
            print(f"{name}: {pair[0]:.0f} tokens/s, {against} {pair[1]:.0f}, ratio {pair[0] / pair[1]:.3f}", flush=True)
        rounds = [one / another for one, another in zip(rates, other_rates)]
        result[name] = {"tokens_per_second": statistics.median(rates), "against": against,
                        "other_tokens_per_second": statistics.median(other_rates), "ratio": statistics.median(rounds),
                        "rounds": rounds}
    return result, statistics.fmean(loads)


def main():
    words, own = split_words(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="name of configs/NAME.conf")
    parser.add_argument("--data", required=True, help="a dataset, such as the quick start's quickstart/data/train")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--layout", action="append", help="only this one, such as 'tp 2' or 'pp 2, zb-h1'; repeatable")
    parser.add_argument("--sequences", type=at_least(2), default=4)
    parser.add_argument("--microbatches", type=at_least(1), default=16)
    parser.add_argument("--sequence-length", type=at_least(1), default=1024)
    parser.add_argument("--steps", type=at_least(2), default=4, help="the first one is not counted")
    parser.add_argument("--rounds", type=at_least(1), default=3)
    parser.add_argument("--busy", action="store_true", help="do not wait, keep nothing")
    arguments = parser.parse_args(words)
    options = ["--config", model_file(arguments.model), "--config", ROOT / "configs" / "kv-shift.conf",
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
