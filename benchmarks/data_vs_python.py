#!/usr/bin/env python3
"""Builds a dataset here, tokenizes the same text with the Python packages sentencepiece and tokenizers, and compares bytes of text per second.

    launch/install-deps --interchange; benchmarks/data_vs_python.py      (on the quick start's corpus; --input FILE… for another text)

One tokenizer is trained: of kind bpe, whose export the package tokenizers reads, or of kind byte-bpe, which sentencepiece cannot read.
Whole commands take turns, each from its start to tokens on the disk: `shiftron data build`, which also shuffles and hashes, and
benchmarks/python_tokens.py. All use the same number of threads; then one. Fails if the token counts differ.
"""
import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

from exported_step import exported_step
from record import ROOT, Fault, OtherWork, at_least, command_text, keep, must, require_program, wait_until_quiet

PROGRAM = ROOT / "build" / "release" / "shiftron"
PYTHON = ROOT / "build" / "interchange" / "bin" / "python"


def timed(command):
    """Returns (output, wall seconds, processor seconds) of a command."""
    usage, began = os.times(), time.monotonic()
    printed = must(*command)
    seconds, after = time.monotonic() - began, os.times()
    return printed, seconds, after.children_user + after.children_system - usage.children_user - usage.children_system


def sides(files, threads, inputs, folder):
    """Name → command. `files`: the tokenizer of each side."""
    python = [PYTHON, ROOT / "benchmarks" / "python_tokens.py"]
    return {side: [PROGRAM, "data", "build", "--input", *inputs, "--tokenizer", file, "--threads", threads, "--output", folder / "out", "--json"]
            if side == "shiftron" else [*python, side, file, threads, folder / "out", *inputs] for side, file in files.items()}


def trained(kind, vocab, inputs, folder):
    """The tokenizer of each side."""
    model = folder / ("tokenizer.json" if kind == "byte-bpe" else "tokenizer.model")
    must(PROGRAM, "tokenizer", "train", "--kind", kind, "--input", *inputs, "--vocab", vocab, "--output", model)
    if kind == "byte-bpe":
        return {"shiftron": model, "tokenizers": model}
    exported_step(PROGRAM, [ROOT / "configs" / "toy.conf"], vocab, model, inputs, folder)
    return {"shiftron": model, "sentencepiece": model, "tokenizers": folder / "export" / "tokenizer.json"}


def measure(commands, folder, rounds):
    seconds, processor_seconds, tokens, versions = {name: [] for name in commands}, {name: [] for name in commands}, {}, {}
    meter = OtherWork()
    for _ in range(rounds):
        for name, command in commands.items():
            shutil.rmtree(folder / "out") if (folder / "out").is_dir() else (folder / "out").unlink(missing_ok=True)
            printed, wall, busy = timed(command)
            answer = json.loads(printed)
            seconds[name].append(wall)
            processor_seconds[name].append(busy)
            versions |= answer.get("versions", {})
            if name == "shiftron":  # it ends each document with a token
                answer = {key: sum(built[key] for built in answer["datasets"]) for key in ("tokens", "documents", "text_bytes")}
                answer["tokens"] -= answer["documents"]
            tokens[name], text_bytes = answer["tokens"], answer["text_bytes"]
    if len(set(tokens.values())) > 1:
        raise Fault(f"the token counts differ: {tokens}")
    best = {name: text_bytes / min(values) for name, values in seconds.items()}
    return {"seconds": seconds, "processor_seconds": processor_seconds, "text_bytes": text_bytes, "tokens": tokens["shiftron"], "best": best,
            "ratio": best["shiftron"] / max(value for name, value in best.items() if name != "shiftron"), "other_cores": meter.cores()}, versions


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=pathlib.Path, nargs="+", help="JSONL with the key text; default: the quick start's corpus")
    parser.add_argument("--kind", choices=["bpe", "byte-bpe"], default="bpe", help="of the tokenizer")
    parser.add_argument("--text", default="", metavar="NAME", help="what the text is, for the table: Chinese, C headers")
    parser.add_argument("--vocab", type=int, choices=range(300, 65537), metavar="300 to 65536", default=32000)
    parser.add_argument("--threads", type=at_least(1), default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=at_least(1), default=10)
    parser.add_argument("--directory", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--wait", type=float, default=300, help="seconds to wait for a quiet machine")
    parser.add_argument("--busy", action="store_true", help="do not wait, keep nothing")
    return parser.parse_args()


def compare(arguments, folder):
    require_program(PROGRAM)
    if not PYTHON.exists():
        raise Fault(f"no Python at {command_text([PYTHON])}\n  next: launch/install-deps --interchange")
    if not arguments.input:
        must(ROOT / "launch" / "corpus", folder / "corpus")
    inputs = arguments.input or sorted((folder / "corpus" / "train").glob("*.jsonl"))
    print(f"training a tokenizer of {arguments.vocab} tokens", file=sys.stderr, flush=True)
    files = trained(arguments.kind, arguments.vocab, inputs, folder)
    if not arguments.busy:
        wait_until_quiet(arguments.wait)
    results, versions = {}, {}
    for threads in dict.fromkeys((arguments.threads, 1)):
        results[str(threads)], found = measure(sides(files, threads, inputs, folder), folder, arguments.rounds)
        versions |= found
        for name, rate in results[str(threads)]["best"].items():
            print(f"{threads} threads, {name:14} {rate / 1e6:6.2f} MB/s of text")
        print(f"  best over the faster package's best: {results[str(threads)]['ratio']:.2f}", flush=True)
    return results, versions


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        results, versions = compare(arguments, pathlib.Path(folder))
    if arguments.busy:
        return
    cores = max(result["other_cores"] for result in results.values())
    command = command_text(["benchmarks/data_vs_python.py", *sys.argv[1:]])
    model = ", ".join(filter(None, (arguments.kind, f"{arguments.vocab} tokens", arguments.text)))
    parts = ["data-vs-python", *([] if arguments.kind == "bpe" else [arguments.kind]), *arguments.text.split()]
    keep("-".join(parts), "data_vs_python", command, cores, {"model": model, "vocab": arguments.vocab, "result": results}, versions)


if __name__ == "__main__":
    try:
        main()
    except Fault as fault:
        sys.exit(f"data_vs_python: {fault}")
