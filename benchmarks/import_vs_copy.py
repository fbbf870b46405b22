#!/usr/bin/env python3
"""Imports a file of tokens and copies it with cp, and compares bytes per second; then reads training samples from the dataset.

    benchmarks/import_vs_copy.py [--gib N]      (needs three times as much free disk space)

Both commands take turns. The page cache holds the file; each ends when its output is on the disk: cp is followed by sync of the copy.
"""
import argparse
import json
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import time

from record import ROOT, Fault, OtherWork, at_least, command_text, keep, must, require_program, wait_until_quiet

PROGRAM = ROOT / "build" / "release" / "shiftron"
READER = ROOT / "build" / "release" / "benchmarks" / "read_windows"
VOCAB, END, LENGTH = 50304, 50256, 2048


def write_tokens(path, gib):
    """Random tokens of two bytes, with an end of document after 700 of them on average."""
    random.seed(1)
    piece = [random.randrange(VOCAB) if random.random() > 1 / 700 else END for _ in range(1 << 20)]
    data = b"".join(token.to_bytes(2, "little") for token in piece[:-1] + [END])
    with open(path, "wb") as file:
        for _ in range(gib * 512):
            file.write(data)


def measure(tokens, folder, rounds):
    commands = {"shiftron": [PROGRAM, "data", "import", tokens, "--format", "raw", "--dtype", "u16", "--vocab", VOCAB, "--end-of-document", END,
                             "--output", folder / "data"],
                "cp": ["bash", "-c", f"cp '{tokens}' '{folder}/copy' && sync '{folder}/copy'"]}
    seconds = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            shutil.rmtree(folder / "data", ignore_errors=True)
            (folder / "copy").unlink(missing_ok=True)
            began = time.monotonic()
            must(*command)
            seconds[name].append(time.monotonic() - began)
    must(*commands["shiftron"])
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=at_least(1), default=2, help="size of the file")
    parser.add_argument("--rounds", type=at_least(1), default=6)
    parser.add_argument("--directory", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--wait", type=float, default=300, help="seconds to wait for a quiet machine")
    parser.add_argument("--busy", action="store_true", help="do not wait, keep nothing")
    arguments = parser.parse_args()
    require_program(PROGRAM)
    require_program(READER)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        folder = pathlib.Path(name)
        write_tokens(folder / "tokens.bin", arguments.gib)
        must("sync", folder / "tokens.bin")
        if not arguments.busy:
            wait_until_quiet(arguments.wait)
        meter = OtherWork()
        seconds = measure(folder / "tokens.bin", folder, arguments.rounds)
        read = json.loads(must(READER, "--data.train", folder / "data", "--train.sequence_length", LENGTH, "--json"))
        cores = meter.cores()
    size = arguments.gib << 30
    rates = {name: size / statistics.median(values) for name, values in seconds.items()}
    ratio = rates["shiftron"] / rates["cp"]
    print(f"import {rates['shiftron'] / 1e9:.2f} GB/s, cp {rates['cp'] / 1e9:.2f} GB/s (medians): {ratio:.2f}")
    print(f"samples of {LENGTH} tokens, one thread: {read['tokens_per_second'] / 1e6:.0f} M tokens/s")
    if not arguments.busy:
        keep("import-vs-copy", "import_vs_copy", command_text(["benchmarks/import_vs_copy.py", *sys.argv[1:]]), cores,
             {"model": f"{arguments.gib} GiB of two-byte tokens",
              "result": {"seconds": seconds, "bytes": size, "rates": rates, "ratio": ratio, "read": read, "sequence_length": LENGTH}})


if __name__ == "__main__":
    try:
        main()
    except Fault as fault:
        sys.exit(f"import_vs_copy: {fault}")
