#!/usr/bin/env python3
"""Trains one model from the same weights on the same tokens here and in PyTorch, and compares speed, loss and memory.

    build/python/bin/python benchmarks/vs_pytorch.py toy 30m           (configs/NAME.conf with KV shift; -- --KEY VALUE for all)

Every side is a live process that waits on its pipe while another one runs; they take turns in short blocks (A B C A B C …),
so that a machine that slows down slows all of them; rounds during which other programs ran are discarded. The ratio is that of the blocks
of one round; its 95 % interval is the t interval of its logarithm over the rounds. Losses of the first steps are compared (after them, batches
repeat, the model memorises them, and every difference grows); fp32 fails if they differ by more than 1e-4.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
except ImportError as missing:
    sys.exit(f"vs_pytorch: {missing}\n  next: launch/install-deps --benchmarks, then build/python/bin/python benchmarks/vs_pytorch.py …")

from live_process import LiveProcess
from record import (QUIET_CORES, ROOT, Fault, OtherWork, at_least, command_text, keep, largest, model_file, require_program,
                    split_words, wait_until_quiet)

VARIANTS = {"fp32": ["fp32-eager", "fp32-compile", "fp32-layers"],
            "bf16": ["autocast-eager", "autocast-compile", "autocast-layers", "bf16-eager", "bf16-compile", "bf16-layers", "bf16-graphs"]}
LOSS_TOLERANCE = {"fp32": 1e-4, "bf16": 1e-3}  # relative; fp32 differs only in the order of sums
TRAIN_STEPS = ROOT / "build" / "release" / "benchmarks" / "train_steps"
BATCHES = 4  # in the file, read cyclically
COMPARED_STEPS = 20  # their losses are compared
TINY_MODEL = {"model.layers": 1, "model.hidden": 32, "model.heads": 2, "model.kv_heads": 1, "model.ffn": 32, "model.vocab": 64,
                "train.sequence_length": 16, "train.micro_batch": 1, "train.global_batch": 1}
STUDENT_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 15: 2.131,
             20: 2.086, 30: 2.042, 60: 2.0}


def interval_95(logarithms):
    """exp of mean and mean ± t s / √n."""
    mean, n = statistics.fmean(logarithms), len(logarithms)
    if n < 2:
        return math.exp(mean), None
    t = STUDENT_T[max(degrees for degrees in STUDENT_T if degrees <= n - 1)]
    half = t * statistics.stdev(logarithms) / math.sqrt(n)
    return math.exp(mean), [math.exp(mean - half), math.exp(mean + half)]


class Side(LiveProcess):
    """Results of one process: losses of its steps, seconds per step of each block, bytes that it holds on a GPU."""

    def __init__(self, name, command, environment):
        self.losses, self.blocks = [], []
        super().__init__(name, command, environment)
        self.device_bytes = sum(self.ready.get("memory_bytes", {}).values())

    def take(self, answer):
        self.losses += answer["losses"]
        self.device_bytes = answer.get("device_bytes", self.device_bytes)
        return answer["seconds"]

    def run(self, steps):
        self.blocks.append(self.take(self.ask(f"run {steps}")))


def write_inputs(path, description, random):
    configuration = description["configuration"]
    train = configuration["train"]
    with h5py.File(path, "w") as file:
        for parameter in description["parameters"]:
            name, shape = parameter["name"], parameter["shape"]
            if name.endswith("norm.weight"):
                value = np.ones(shape)
            elif ".shift_" in name:
                share = random.random((shape[0], 1))
                value = np.concatenate([1 - share, share], 1)
            else:
                value = random.standard_normal(shape, dtype=np.float32)
                value *= configuration["model"]["init_std"]
            file[f"initial/{name}"] = value.astype("<f4")
        tokens = random.integers(0, configuration["model"]["vocab"], (BATCHES, train["global_batch"], train["sequence_length"] + 1))
        file["ids"], file["targets"] = tokens[..., :-1].astype("<i4"), tokens[..., 1:].astype("<i4")
        starts = np.zeros(file["ids"].shape, "u1")
        starts[..., 0] = 1
        file["document_starts"] = starts


def largest_difference(losses, reference):
    return largest(abs(one / other - 1) for one, other in zip(losses[:COMPARED_STEPS], reference))


def start(options, precision, arguments, environment, folder):
    """Writes inputs to the folder and starts the sides; returns (description, sides), ours first."""
    program = [arguments.train_steps, *options, "--train.precision", precision]
    require_program(arguments.train_steps)
    described = subprocess.run([*map(str, program), "--describe"], capture_output=True, text=True, check=False)
    if described.returncode != 0:
        raise Fault(described.stderr.strip())
    description = json.loads(described.stdout)
    shift = description["configuration"]["shift"]
    if max(shift[stream] for stream in ("query", "key", "value")) > 1 or shift["form"] != "free":
        raise Fault("the PyTorch side only supports one previous token and free taps")
    (folder / "description.json").write_text(described.stdout, encoding="utf-8")
    write_inputs(folder / "inputs.h5", description, np.random.default_rng(1))
    inputs = ["--inputs", folder / "inputs.h5"]
    worker = [sys.executable, ROOT / "benchmarks" / "pytorch_steps.py", "--description", folder / "description.json", *inputs]
    environment = environment | {"OMP_NUM_THREADS": str(description["threads"])}
    ours = Side("shiftron", [*program, *inputs], environment)
    on_gpu = description["configuration"]["device"]["kind"] == "cuda"
    wanted = arguments.variant or [variant for variant in VARIANTS[precision] if on_gpu or not variant.endswith("-graphs")]
    theirs = [Side(variant, [*worker, "--variant", variant], environment) for variant in wanted]
    return description, [ours, *theirs]


def machinery_bytes(options, precision, arguments, environment, folder):
    """Returns {side: bytes above its start-up after steps of a tiny model}: the memory of compilers and libraries."""
    tiny = [word for key, value in TINY_MODEL.items() for word in (f"--{key}", str(value))]
    _, sides = start([*options, *tiny], precision, arguments, environment, folder)
    found = {}
    for side in sides:
        side.send("run 2")
    for side in sides:
        side.answer()
        found[side.name] = side.resident_bytes() - side.ready["start_bytes"]
        side.end()
    return found


def compare(options, precision, arguments, environment, folder):
    description, sides = start(options, precision, arguments, environment, folder)
    ours, *theirs = sides
    train = description["configuration"]["train"]
    on_gpu = description["configuration"]["device"]["kind"] == "cuda"
    machinery = {} if on_gpu else machinery_bytes(options, precision, arguments, environment, folder)
    for side in sides:  # all at once: compiling takes minutes
        side.send(f"run {arguments.warm_up}")
    for side in sides:
        side.take(side.answer())
    other_cores, disturbed = [], 0
    while len(other_cores) < arguments.blocks and disturbed < 20 * arguments.blocks:
        if not arguments.busy:
            wait_until_quiet(arguments.wait)
        meter = OtherWork([side.process.pid for side in sides])
        for side in sides:
            side.run(arguments.steps)
        cores = meter.cores()
        if cores > QUIET_CORES and not arguments.busy:
            disturbed += 1
            print(f"discarded a round: other processes used {cores} cores", file=sys.stderr)
            for side in sides:
                side.blocks.pop()
        else:
            other_cores.append(cores)
    if len(other_cores) < arguments.blocks:
        raise Fault(f"other processes disturbed {disturbed} rounds of blocks; try again later")
    tokens = train["global_batch"] * train["sequence_length"]
    result = {"threads": description["threads"], "tokens_per_step": tokens, "blocks": arguments.blocks,
              "steps_per_block": arguments.steps, "disturbed_blocks": disturbed,
              "other_cores": round(statistics.fmean(other_cores), 3), "sides": {}}
    for side in sides:
        ratio, interval = interval_95([math.log(other / own) for own, other in zip(ours.blocks, side.blocks)])
        result["sides"][side.name] = {
            "tokens_per_second": tokens / statistics.median(side.blocks), "fastest": tokens / min(side.blocks),
            "peak_bytes": side.peak_bytes(), "own_bytes": side.peak_bytes() - side.ready["start_bytes"], "speed_of_shiftron_over_it": ratio, "interval_95": interval,
            "loss_difference": largest_difference(ours.losses, side.losses)}
        if on_gpu:
            result["sides"][side.name]["device_bytes"] = side.device_bytes
        else:
            result["sides"][side.name]["machinery_bytes"] = machinery[side.name]
    version = theirs[0].ready["version"]
    for side in sides:
        side.end()
    return result, version


def show(name, precision, result):
    print(f"{name} {precision}, {result['threads']} threads; other processes used {result['other_cores']} cores")
    for side, values in result["sides"].items():
        interval = "" if not values["interval_95"] else " [{:.3f}, {:.3f}]".format(*values["interval_95"])
        print(f"  {side:17} {values['tokens_per_second']:7.0f} tokens/s, fastest {values['fastest']:7.0f}, "
              f"{values.get('device_bytes', values['own_bytes']) / 1e9:.2f} GB {'on the GPU' if 'device_bytes' in values else 'above start-up'}, ratio {values['speed_of_shiftron_over_it']:.3f}{interval}, "
              f"loss {values['loss_difference']:.1e}", flush=True)


def parse_arguments():
    words, own = split_words(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="names of configs/NAME.conf")
    parser.add_argument("--precision", choices=VARIANTS, default="fp32")
    parser.add_argument("--vanilla", action="store_true", help="the model without KV shift")
    parser.add_argument("--label", default="", help="names a run with options after --; part of the result's name")
    parser.add_argument("--variant", action="append", help="only this PyTorch variant; repeatable")
    parser.add_argument("--blocks", type=at_least(1), default=5)
    parser.add_argument("--steps", type=at_least(1), default=2, help="steps in a block")
    parser.add_argument("--warm-up", type=at_least(1), default=2, help="steps before the first block")
    parser.add_argument("--wait", type=float, default=300, help="seconds to wait for a quiet machine")
    parser.add_argument("--busy", action="store_true", help="do not wait, keep nothing")
    parser.add_argument("--train-steps", default=TRAIN_STEPS, metavar="PROGRAM")
    arguments = parser.parse_args(words)
    for variant in arguments.variant or []:
        if variant not in VARIANTS[arguments.precision]:
            parser.error(f"--variant {variant}: the variants of {arguments.precision} are {', '.join(VARIANTS[arguments.precision])}")
    return arguments, own


def main():
    arguments, options = parse_arguments()
    failed = []
    for name in arguments.models:
        form = "vanilla" if arguments.vanilla else "kv-shift"
        model = ["--config", model_file(name), "--config", ROOT / "configs" / f"{form}.conf", *options]
        with tempfile.TemporaryDirectory() as folder:
            result, version = compare(model, arguments.precision, arguments, dict(os.environ), pathlib.Path(folder))
        show(name, arguments.precision, result)
        worst = largest(side["loss_difference"] for side in result["sides"].values())
        if not worst <= LOSS_TOLERANCE[arguments.precision]:  # NaN too
            failed.append(f"{name}: losses differ by {worst:.1e}, more than {LOSS_TOLERANCE[arguments.precision]:.0e}")
        elif not arguments.busy:
            words = ["build/python/bin/python", "benchmarks/vs_pytorch.py", name, "--precision", arguments.precision,
                     "--blocks", arguments.blocks, "--steps", arguments.steps, "--warm-up", arguments.warm_up]
            words += ["--vanilla"] if arguments.vanilla else []
            words += [word for variant in arguments.variant or [] for word in ("--variant", variant)]
            words += ["--train-steps", arguments.train_steps] if arguments.train_steps != TRAIN_STEPS else []
            words += ["--label", arguments.label] if arguments.label else []
            command = command_text(words + (["--", *options] if options else []))
            keep(f"vs-pytorch-{name}-{arguments.precision}" + ("-vanilla" if arguments.vanilla else "") +
                 (f"-{arguments.label.replace(' ', '-')}" if arguments.label else ""), "vs_pytorch", command,
                 result["other_cores"], {"model": name, "precision": arguments.precision, "vanilla": arguments.vanilla, "label": arguments.label, "result": result},
                 {"PyTorch": version})
    if failed:
        raise Fault("; ".join(failed))


if __name__ == "__main__":
    try:
        main()
    except Fault as fault:
        sys.exit(f"vs_pytorch: {fault}")
