#!/usr/bin/env python3
"""Saves and restores one state here and in PyTorch, on the same disk, and compares the seconds.

    build/interchange/bin/python benchmarks/checkpoint_vs_pytorch.py 124m     (configs/NAME.conf with KV shift; -- --KEY VALUE)

Sides: `checkpoint_files --live`; torch.distributed.checkpoint in a single process; safetensors.torch with files synced
afterwards. All are live processes with the same tensors (masters and two moments, fp32) that take turns, every round in another order;
saved files are dropped from the page cache before a cold restore, and stay in it for a warm one. The ratio is their time over
Shiftron's, by rounds. Shiftron's save hashes what it writes and reads it back, its restore compares the hashes; the others
do neither.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

from live_process import LiveProcess
from record import ROOT, Fault, OtherWork, at_least, command_text, keep, model_file, split_words, wait_until_quiet

WORDS = ["save", "restore cold", "restore warm"]
FORMATS = ["dcp", "safetensors"]


def start(options, arguments, folder):
    environment = dict(os.environ)
    ours = LiveProcess("shiftron", [arguments.checkpoint_files, *options, "--directory", folder, "--live"], environment)
    shapes = folder / "shapes.json"
    shapes.write_text(json.dumps(ours.ready["shapes"]), encoding="utf-8")
    environment["OMP_NUM_THREADS"] = str(ours.ready["threads"])
    sides = [ours]
    for name in FORMATS:
        sides.append(LiveProcess(name, [sys.executable, ROOT / "benchmarks" / "pytorch_checkpoint.py", "--format", name, "--shapes", shapes,
                                        "--directory", folder, "--threads", ours.ready["threads"]], environment))
        if sides[-1].ready["bytes"] != ours.ready["bytes"]:
            raise Fault(f"{name} holds {sides[-1].ready['bytes']} bytes, shiftron {ours.ready['bytes']}")
    return sides


def compare(options, arguments, folder):
    sides = start(options, arguments, folder)
    seconds = {side.name: {words: [] for words in WORDS} for side in sides}
    for side in sides:  # warm-up
        for words in WORDS:
            side.ask(words)
    meter = OtherWork([side.process.pid for side in sides])
    for round_ in range(arguments.rounds):
        for words in WORDS:
            for side in sides[round_ % len(sides):] + sides[:round_ % len(sides)]:
                seconds[side.name][words].append(side.ask(words)["seconds"])
    own, size = seconds["shiftron"], sides[0].ready["bytes"]
    result = {"bytes": size, "threads": sides[0].ready["threads"], "rounds": arguments.rounds, "other_cores": meter.cores(), "sides": {}}
    for name, times in seconds.items():
        result["sides"][name] = {
            words: {"seconds": statistics.median(values), "bytes_per_second": size / statistics.median(values),
                    "ratio": statistics.median(other / mine for other, mine in zip(values, own[words])),
                    "ratio_range": [min(other / mine for other, mine in zip(values, own[words])),
                                    max(other / mine for other, mine in zip(values, own[words]))]}
            for words, values in times.items()}
    version = sides[1].ready["version"]
    for side in sides:
        side.end()
    return result, version


def show(name, result):
    print(f"{name}, {result['bytes'] / 1e9:.2f} GB, {result['threads']} threads; other processes used {result['other_cores']} cores")
    for side, figures in result["sides"].items():
        for words, values in figures.items():
            print(f"  {side:12} {words:13} {values['seconds']:7.3f} s {values['bytes_per_second'] / 1e9:6.2f} GB/s, "
                  f"{values['ratio']:.2f} times as long as Shiftron [{values['ratio_range'][0]:.2f}, {values['ratio_range'][1]:.2f}]")


def main():
    words, own = split_words(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="name of configs/NAME.conf")
    parser.add_argument("--rounds", type=at_least(1), default=6)
    parser.add_argument("--directory", type=pathlib.Path, default=ROOT / "build", help="a folder on the disk to measure")
    parser.add_argument("--wait", type=float, default=300, help="seconds to wait for a quiet machine")
    parser.add_argument("--busy", action="store_true", help="do not wait, keep nothing")
    parser.add_argument("--checkpoint-files", default=ROOT / "build" / "release" / "benchmarks" / "checkpoint_files", metavar="PROGRAM")
    arguments = parser.parse_args(words)
    options = ["--config", model_file(arguments.model), "--config", ROOT / "configs" / "kv-shift.conf", *own]
    if not arguments.busy:
        wait_until_quiet(arguments.wait)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        result, version = compare(options, arguments, pathlib.Path(folder))
    show(arguments.model, result)
    if arguments.busy:
        return
    command = ["build/interchange/bin/python", "benchmarks/checkpoint_vs_pytorch.py", arguments.model, "--rounds", str(arguments.rounds)]
    keep(f"checkpoint-vs-pytorch-{arguments.model}", "checkpoint_vs_pytorch", command_text(command + (["--", *own] if own else [])),
         result["other_cores"], {"model": arguments.model, "result": result}, {"PyTorch": version})


if __name__ == "__main__":
    try:
        main()
    except Fault as fault:
        sys.exit(f"checkpoint_vs_pytorch: {fault}")
