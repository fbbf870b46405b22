#!/usr/bin/env python3
"""Writes the documents' figures about speed from benchmarks/results/*.json, the benchmarks' stored results. --check: fails if anything would change.

docs/performance-runs.md is written as a whole, docs/performance.md between its marks (the text around them is written by hand), and
docs/performance.svg is drawn. Every figure comes from the results; the sentences in this script contain none.
"""
import argparse
import itertools
import json
import pathlib
import re
import shutil
import sys

import speed_picture
from machine_names import machine_names

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
RUNS = ROOT / "docs" / "performance-runs.md"
PICTURE = PAGE.with_suffix(".svg")
SIDES = {"shiftron": "Shiftron", "fp32-eager": "PyTorch, eager", "fp32-compile": "PyTorch, compiled",
         "autocast-eager": "PyTorch, autocast, eager", "autocast-compile": "PyTorch, autocast, compiled",
         "bf16-eager": "PyTorch, bf16 weights with fp32 masters, eager", "bf16-compile": "PyTorch, bf16 weights with fp32 masters, compiled",
         "fp32-layers": "PyTorch, compiled layer by layer", "autocast-layers": "PyTorch, autocast, compiled layer by layer", "bf16-layers": "PyTorch, bf16 weights with fp32 masters, compiled layer by layer",
         "bf16-graphs": "PyTorch, bf16 weights with fp32 masters, compiled, with CUDA graphs"}
WAYS = {"eager": "eager", "compile": "compiled", "layers": "compiled layer by layer", "graphs": "CUDA graphs"}
# Replaces the machinery_bytes that older results lack: those of a tiny model on 2 cores of an AMD EPYC (family 25), PyTorch 2.15,
# 2026-11-28, in fp32; without and with a compiler.
MACHINERY = {"shiftron": 0.012e9, "eager": 0.178e9, "compile": 0.273e9, "layers": 0.270e9}
MODELS = ["toy", "30m", "124m", "1.5b", "2.9b", "6.7b", "13b", "19b"]
WORTH_A_LINE = 0.01  # of a step, lost in one part of it
WEIGHT_REASON = ("the floor rearranges the weight beforehand where that pays; the step has to do it in every call. In float32 it does so for "
                 "narrow weights only, and otherwise calls sgemm on the weight as it is")
EVERY_PARAMETER = "each parameter, small ones too, is handled by itself, and all threads wait at its end"
TWO_PASSES = "two passes over every row; the second needs the sum of the first"
EXPONENTIAL = "limited by the exponential, not by memory"
SIGMOID = "limited by the exponential and the division of the sigmoid, not by memory"
SHORT_ROWS = "short rows, each in a different page of memory"
# Why a part of the step is above its floor, from what its kernel does.
REASONS = {
    "products forward": WEIGHT_REASON,
    "products backward to input": WEIGHT_REASON,
    "products backward to weight": "in float32 the step chooses between sgemm and matmul by a rule on shapes, the floor by timing. In bfloat16, "
                                   "if the processor multiplies bfloat16 vectors, the step's own tiles first interleave the rows of both operands in pairs",
    "attention": "the backward pass recomputes the scores, blocks on the diagonal are computed whole, small tiles multiply more slowly than large "
                 "matrices, and the floor has no exponentials",
    "swiglu_forward": SIGMOID,
    "swiglu_backward": SIGMOID,
    "cross_entropy_statistics": "two passes over every row of logits, the second limited by the exponential",
    "cross_entropy_backward": EXPONENTIAL,
    "shift_rope_forward": SHORT_ROWS,
    "shift_rope_backward": SHORT_ROWS,
    "rms_norm_forward": TWO_PASSES,
    "add_rms_norm_forward": TWO_PASSES,
    "rms_norm_backward": f"{TWO_PASSES}. The gradient of the scale is read and written with every row",
    "embedding_backward": "rows of the table are visited in the order of the tokens",
    "adamw": f"{EVERY_PARAMETER}. It reads and writes many arrays at once; a copy reads one and writes one",
    "sum_of_squares": EVERY_PARAMETER,
    "outside of kernels": "reading and preparing the batch, and what the host does between kernels",
}


class Results:
    """The stored results, by kind. Machines are listed in the order of their first measurements."""

    def __init__(self, folder):
        kept = [json.loads(path.read_text(encoding="utf-8")) | {"name": path.stem} for path in folder.glob("*.json")]
        self.all, self.machines = [], []
        for result in sorted(kept, key=lambda one: (one["date"], one["name"])):
            # Another build of the kernel is not another machine.
            machine = result["machine"] | {"system": re.match(r"\S+ \d+\.\d+", result["machine"]["system"])[0]}
            if machine not in self.machines:
                self.machines.append(machine)
            result["place"] = self.machines.index(machine)
            named = re.search(r"configs/([\w.]+)\.conf", result["command"])
            result.setdefault("model", named.group(1) if named else result["name"])
            self.all.append(result)
        self.names = machine_names(self.machines)
        for result in self.all:
            result["machine_name"] = self.names[result["place"]]

    def of(self, kind):
        order = {model: place for place, model in enumerate(MODELS)}
        return sorted((result for result in self.all if result["kind"] == kind),
                      key=lambda result: (result["place"], order.get(result["model"], len(MODELS)), result.get("precision", ""),
                                          result["name"]))


def cell(text):
    """A result's text as a table cell: it cannot end the cell and is not HTML."""
    return re.sub(r"([|<])", r"\\\1", " ".join(text.split()))


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(map(cell, row)) + " |"
    yield ""


def percent(value, digits=0):
    return f"{100 * value:.{digits}f} %"


def interval(pair, text):
    return "–" if not pair else f"{text(pair[0])} to {text(pair[1])}"


def dates(results):
    found = sorted({result["date"] for result in results})
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def provenance(results):
    """The source of each figure of a section: machine, date, other load, versions, command."""
    def libraries(result):
        return ", ".join(f"{name} {version}" for name, version in result["versions"].items() if name != "shiftron")

    for versions, group in itertools.groupby(results, libraries):
        yield f"Measured with {versions}:"
        yield ""
        for result in group:
            commit = result["versions"]["shiftron"].replace(" and changes", " with uncommitted changes")
            yield (f"* {result['model']}, {result['machine_name']}, {result['date']}, commit {commit}; other processes used "
                   f"{result['other_cores']:.2f} cores")
            yield f"  `{result['command']}`"
        yield ""


def processor(machine):
    gpu = f"{machine['gpu'].replace(', ', ', driver ')}; " if "gpu" in machine else ""
    return f"{gpu}{machine['processor']} (family {machine['family']}, model {machine['model']})"


def machine_lines(results):
    yield "## Machines"
    yield ""
    rows = []
    for name, machine in zip(results.names, results.machines):
        measured = dates([result for result in results.all if result["machine_name"] == name])
        rows.append([name, processor(machine), str(machine["cores"]), ", ".join(machine["instructions"]), f"{machine['memory_gib']:.0f} GiB",
                     machine["system"], measured])
    yield from table(["machine", "processor", "cores", "instruction sets", "memory", "system", "measured"], rows)


def comparison_lines(results):
    kept = results.of("vs_pytorch")
    if not kept:
        return
    yield "## Training steps vs PyTorch"
    yield ""
    yield ("All sides train the same model from the same weights on the same tokens, with AdamW and gradient clipping. Each side is a live "
           "process. They take turns in short blocks of steps, and a waiting side sleeps on its pipe. The ratio is Shiftron's speed divided by that "
           "of the row, from pairs of blocks, with a 95 % confidence interval. The loss column is the largest relative difference from Shiftron's "
           "loss in any of the first steps.")
    yield ""
    for result in kept:
        data = result["result"]
        shift = "without shift" if result.get("vanilla") else "with KV shift"
        label = f", {result['label']}" if result.get("label") else ""
        yield f"### {result['model']} {shift}, {result['precision']}{label}, {data['threads']} threads, {result['machine_name']}"
        yield ""
        rows = []
        for name, side in data["sides"].items():
            own = name == "shiftron"
            rows.append([SIDES.get(name, name), f"{side['tokens_per_second']:.0f}", f"{side['fastest']:.0f}",
                         f"{memory_of(side) / 1e9:.2f} GB", "" if own else f"{side['speed_of_shiftron_over_it']:.2f}",
                         "" if own else interval(side["interval_95"], "{:.2f}".format),
                         "" if own else f"{side['loss_difference']:.0e}"])
        on_gpu = "device_bytes" in data["sides"]["shiftron"]
        yield from table(["", "tokens/s (median)", "fastest step" if data["steps_per_block"] == 1 else "fastest block", "memory of tensors on the GPU" if on_gpu else
                          "peak memory above start-up", "ratio", "95 %", "loss"], rows)
    yield from provenance(kept)


def memory_of(side):
    return side.get("device_bytes", side["own_bytes"] - side.get("machinery_bytes", 0))


def has_machinery(result):
    """Whether memory figures exclude what a side needs for a tiny model; on GPUs they always do, as they count tensors."""
    return all("machinery_bytes" in side or "device_bytes" in side for side in result["result"]["sides"].values())


def machinery_lines(kept):
    """A sentence on what the shares of memory would be if only the model and its training counted."""
    if not kept:
        return
    shares = {}
    for result in kept:
        name, best = fastest_other(result)
        own = result["result"]["sides"]["shiftron"]
        answer, without = shares.setdefault(result["model"], ([], []))
        answer.append(memory_of(own) / memory_of(best))
        without.append((memory_of(own) - MACHINERY["shiftron"]) / (memory_of(best) - MACHINERY[name.split("-")[1]]))
    theirs = [size for name, size in MACHINERY.items() if name != "shiftron"]
    changes = "; ".join(f"{model} {min(answer):.2f} to {max(answer):.2f}, about {min(without):.2f} to {max(without):.2f} without it"
                        for model, (answer, without) in shares.items())
    yield (f"On CPUs, PyTorch's memory above start-up includes {min(theirs) / 1e9:.1f} to {max(theirs) / 1e9:.1f} GB for PyTorch itself, "
           f"most of it when it compiles; even a model of kilobytes takes that much. (Shiftron takes {MACHINERY['shiftron'] / 1e9:.2f} GB.) This makes Shiftron's "
           f"shares of memory for small models look better than they are: {changes}.")
    yield ""


def milliseconds(seconds):
    return f"{1e3 * seconds:.0f} ms"


def fastest_other(result):
    """(name, side) of the PyTorch variant of a comparison with the lowest ratio, by pairs of blocks."""
    others = [(name, side) for name, side in result["result"]["sides"].items() if name != "shiftron"]
    return min(others, key=lambda other: other[1]["speed_of_shiftron_over_it"])


def bars(results):
    """The picture's bars: label, machine, times as fast, its interval."""
    kept = []
    for result in results.of("vs_pytorch"):
        side = fastest_other(result)[1]
        label = ", ".join(part for part in (f"{result['model']} {result['precision']}", "without shift" if result.get("vanilla") else "",
                                            result.get("label", "")) if part)
        kept.append((label, result["machine_name"], side["speed_of_shiftron_over_it"], side["interval_95"]))
    return kept


def summary_lines(results):
    kept = results.of("vs_pytorch")
    if not kept:
        return
    yield "## Training steps vs PyTorch: summary"
    yield ""
    yield ("One row per case, against the fastest PyTorch variant measured in that case: the one with the lowest ratio in the tables below. The last "
           "two columns are Shiftron's peak memory above start-up (on a GPU: memory of tensors) divided by that of this variant, and by that of the "
           "variant that needs least.")
    yield ""
    yield from machinery_lines([result for result in kept if not has_machinery(result)])
    rows = []
    for result in kept:
        sides = result["result"]["sides"]
        own = sides["shiftron"]
        name, best = fastest_other(result)
        least = min(memory_of(side) for side in sides.values() if side is not own)
        rows.append([result["model"], "no" if result.get("vanilla") else "yes", result["precision"], result.get("label", ""), result["machine_name"],
                     f"{own['tokens_per_second']:.0f}", SIDES.get(name, name), f"{best['speed_of_shiftron_over_it']:.2f}",
                     interval(best["interval_95"], "{:.2f}".format), f"{memory_of(own) / memory_of(best):.2f}",
                     f"{memory_of(own) / least:.2f}"])
    yield from table(["model", "KV shift", "precision", "", "machine", "tokens/s", "fastest PyTorch", "times as fast", "95 %", "memory / that variant's",
                      "memory / least"], rows)


def floor_row(data):
    """A row for a precision's figures; older results have no measured step."""
    kinds = " + ".join(f"{1e3 * data[key]:.0f}" for key in ("step_seconds", "attention_seconds", "other_seconds"))
    measured = "measured_step_seconds" in data
    return [f"{data['gflops']:.0f}", f"{kinds} ms", f"{data['floor_tokens_per_second']:.0f}",
            milliseconds(data["floor_seconds"]), milliseconds(data["measured_step_seconds"]) if measured else "–",
            percent(data["share_of_floor"]) if measured else "–", interval(data.get("share_range"), percent),
            percent(data["peak_share_of_floor"]) if "peak_share_of_floor" in data else "–"]


def part_rows(data):
    """The parts of a step that are above their floor by a share of the step that is worth a line, the largest loss first."""
    step = sum(part["measured_seconds"] for part in data["parts"])
    for part in sorted(data["parts"], key=lambda one: one["floor_seconds"] - one["measured_seconds"]):
        loss = (part["measured_seconds"] - part["floor_seconds"]) / step
        if loss < WORTH_A_LINE:
            return
        yield [part["part"], milliseconds(part["measured_seconds"]), milliseconds(part["floor_seconds"]), percent(loss, 1)]


def floor_lines(results):
    kept = results.of("step_floor")
    if not kept:
        return
    yield "## How close a step is to its floor"
    yield ""
    yield ("The floor is the least time a step could take with the library's calls on this machine: every matrix product called in oneDNN "
           "directly, on buffers that are in no cache, in the fastest way the library offers; the products of attention (causal half) at their "
           "mean rate; and the bytes of all other kernels at copy speed. Where the trainer's own products are faster than the library's, the step "
           "is below the floor and the share is above 100 %. The last column takes a floor whose products all run at the peak of the processor's "
           "best instruction.")
    yield ""
    yield ("Floor and step are measured in one process: each round calls every product and takes one step, so drift of the machine affects both. The "
           "share is floor / step, its range is over the rounds. `step_floor` without `--json` lists every product and all parts of the step.")
    yield ""
    rows, losses = [], []
    for result in kept:
        for precision in ("fp32", "bf16"):
            data = result["result"][precision]
            rows.append([result["model"], result["machine_name"], str(result["result"]["threads"]), precision] +
                        (floor_row(data) if data else ["none here"] + 7 * [""]))
            losses += [[result["model"], result["machine_name"], precision, *row] for row in part_rows(data)] if data and "parts" in data else []
    yield from table(["model", "machine", "threads", "precision", "GFLOP/s of products", "products + attention + rest", "tokens/s at the floor",
                      "floor", "step", "share", "rounds", "share at the processor's peak"], rows)
    if losses:
        yield f"Parts of the step that lose at least {percent(WORTH_A_LINE)} of it to their floor, the largest loss first (means over the rounds):"
        yield ""
        yield from table(["model", "machine", "precision", "part", "step", "floor", "loss"], losses)
        yield "Why they are slower than the floor:"
        yield ""
        named = {loss[3] for loss in losses}
        for reason, parts in itertools.groupby((part for part in REASONS if part in named), REASONS.get):
            yield f"* {', '.join(parts)}: {reason}."
        yield ""
    yield from provenance(kept)


def shift_lines(results):
    kept = [result for result in results.of("train_steps") if "overhead" in result["result"]]
    if not kept:
        return
    yield "## What the KV shift costs"
    yield ""
    yield ("Two trainers in one process, one with and one without KV shift, take steps in turn. The overhead is the median over pairs of steps, with "
           "its 95 % interval from order statistics.")
    yield ""
    rows = []
    for result in kept:
        data = result["result"]
        rows.append([result["model"], result["machine_name"], str(data["threads"]), data["precision"], str(data["pairs"]),
                     f"{1e3 * data['seconds_without']:.0f} ms", f"{1e3 * data['seconds_with']:.0f} ms",
                     percent(data["overhead"], 2), interval(data["interval_95"], lambda value: percent(value, 2))])
    yield from table(["model", "machine", "threads", "precision", "pairs", "step without", "step with", "overhead", "95 %"], rows)
    yield from provenance(kept)


def parallel_lines(results):
    kept = results.of("parallel_efficiency")
    if not kept:
        return
    yield "## Two ranks of one thread"
    yield ""
    yield ("Two ranks with one thread each vs one rank with two threads: whole runs of `shiftron train` in turn, the median over all steps after the "
           "first. The ratio is that of the speeds, by rounds.")
    yield ""
    rows = []
    for result in kept:
        for layout, data in result["result"]["layouts"].items():
            rows.append([result["model"], result["precision"], result["machine_name"], layout, f"{data['tokens_per_second']:.0f}",
                         data["against"], f"{data['other_tokens_per_second']:.0f}", f"{data['ratio']:.3f}",
                         f"{min(data['rounds']):.3f} to {max(data['rounds']):.3f}"])
    yield from table(["model", "precision", "machine", "two ranks", "tokens/s", "vs", "tokens/s", "ratio", "rounds"], rows)
    yield from provenance(kept)


def generation_lines(results):
    kept = results.of("generate_tokens")
    if not kept:
        return
    yield "## Generation"
    yield ""
    yield ("One sequence, token by token, with random weights. The bound is the speed at which the same process reads memory, divided by the "
           "bytes of weights and cache that each token must read. The share compares each round with its own bound.")
    yield ""
    rows = []
    for result in kept:
        data = result["result"]
        rows.append([result["model"], data["precision"], result["machine_name"], str(data["threads"]), str(data["cache"]),
                     f"{data['tokens_per_second']:.0f}", f"{data['bound_tokens_per_second']:.0f}",
                     f"{data['read_bytes_per_second'] / 1e9:.0f} GB/s", f"{data['share_of_bound']:.2f}",
                     interval(data["share_range"], "{:.2f}".format)])
    yield from table(["model", "precision", "machine", "threads", "tokens in cache", "tokens/s", "bound", "memory read at", "share", "rounds"], rows)
    yield from provenance(kept)


CHECKPOINT_ROWS = {"written": "written, hashed and synced", "saved": "saved: also read back and named", "restored cold": "restored, cold",
                   "restored warm": "restored, warm", "raw write": "plain write and fsync", "raw read cold": "plain pread, cold",
                   "raw read warm": "plain pread, warm", "read back": "the read-back of a save, warm", "converted": "converted to tp = 2, from warm files",
                   "exported": "exported in bfloat16, from warm files (of what is written)"}


def checkpoint_lines(results):
    kept = results.of("checkpoint_files")
    if not kept:
        return
    yield "## Checkpoints"
    yield ""
    yield ("One rank saves and restores masters and two moments, filled with random bits, as a training run does. \"Plain\" calls move the same "
           "bytes between the same memory and the same disk: block by block, with one thread, without a hash. Both take turns in every round, and "
           "the share is the time of the plain calls divided by ours. Cold: nothing of the file is in the page cache; warm: all of it.")
    yield ""
    rows = []
    for result in kept:
        data = result["result"]
        for name, label in CHECKPOINT_ROWS.items():
            figure = data["figures"][name]
            rows.append([result["model"], data["precision"], result["machine_name"], str(data["threads"]), label, f"{figure['seconds']:.2f} s",
                         f"{figure['bytes_per_second'] / 1e9:.2f} GB/s", f"{figure['share_of_raw']:.2f}" if "share_of_raw" in figure else "",
                         interval(figure.get("share_range"), "{:.2f}".format) if "share_of_raw" in figure else ""])
    yield from table(["model", "precision", "machine", "threads", "", "time", "rate", "share of plain calls", "rounds"], rows)
    yield from provenance(kept)


def checkpoint_comparison_lines(results):
    kept = results.of("checkpoint_vs_pytorch")
    if not kept:
        return
    yield "## Checkpoints vs PyTorch"
    yield ""
    yield ("The same fp32 tensors on the same disk, in live processes that take turns. Every save ends when its files are synced, every restore "
           "when the bytes are in existing tensors. The ratio is the time of the row divided by Shiftron's, by rounds. Shiftron hashes what it "
           "writes, reads it back, and compares the hashes on restore; the others do neither.")
    yield ""
    rows = []
    names = {"shiftron": "Shiftron", "dcp": "torch.distributed.checkpoint, one process", "safetensors": "safetensors.torch"}
    for result in kept:
        for side, figures in result["result"]["sides"].items():
            for words, figure in figures.items():
                own = side == "shiftron"
                rows.append([result["model"], result["machine_name"], names.get(side, side), words, f"{figure['seconds']:.2f} s",
                             f"{figure['bytes_per_second'] / 1e9:.2f} GB/s", "" if own else f"{figure['ratio']:.2f}",
                             "" if own else interval(figure["ratio_range"], "{:.2f}".format)])
    yield from table(["model", "machine", "", "", "time", "rate", "times as long", "rounds"], rows)
    yield from provenance(kept)


HARNESS_SHAPES = {"mmlu": "MMLU, five examples", "hellaswag": "HellaSwag"}


def harness_lines(results):
    kept = results.of("evaluate_vs_harness")
    if not kept:
        return
    yield "## Benchmark tasks vs lm-evaluation-harness"
    yield ""
    yield ("Items per second from text to log-likelihoods, in live processes that take turns. The harness runs through transformers at its "
           "fastest batch size and precision, Shiftron in its faster precision. Each figure is the best of its rounds; the harness's first pass "
           "over batch sizes counts too. The columns after them: the ratio of both, the ratio in one precision, two ranks with one thread each "
           "over one thread (in the precision that gains more), and whole commands from start to report (harness, Shiftron).")
    yield ""
    rows = []
    for result in kept:
        for shape, data in result["result"].items():
            best, batches = data["best"], data["batch"]
            precisions, threads = data["fastest"], result["threads"]
            theirs = f"harness {precisions['harness']}"
            ours = f"shiftron {precisions['shiftron']}, {threads} thread{'s' * (threads > 1)}"
            whole = data.get("whole_seconds")
            rows.append([result["model"], "no" if result["vanilla"] else "yes", result["label"], result["machine_name"], HARNESS_SHAPES[shape],
                         f"{best[theirs]:.2f} ({precisions['harness']}, batches of {batches[theirs]})",
                         f"{best[ours]:.2f} ({precisions['shiftron']})", f"{data['ratio']:.2f}",
                         *(f"{data['ratio_same_precision'][precision]:.2f}" for precision in ("fp32", "bf16")),
                         f"{max(data['ranks_over_one_thread'].values()):.2f}",
                         f"{whole['harness']:.1f} s, {whole['shiftron']:.1f} s" if whole else ""])
    yield from table(["model", "KV shift", "", "machine", "items", "harness", "Shiftron", "times as fast", "fp32", "bf16", "two ranks over one thread",
                      "whole commands"], rows)
    yield from provenance(kept)


def tokens_lines(results):
    kept = results.of("data_vs_python")
    if not kept:
        return
    yield "## Tokenizing vs Python packages"
    yield ""
    yield ("The same text and the same tokenizer, from JSONL to tokens on the disk, in whole commands that take turns; all produce the same "
           "number of tokens. `shiftron data build` also shuffles and hashes. The packages write two bytes per token, one after another, and "
           "their time includes the start of Python. Each figure is the best of all rounds.")
    yield ""
    rows = []
    for result in kept:
        for threads, data in result["result"].items():
            for side, seconds in data["seconds"].items():
                ratio = "" if side == "shiftron" else f"{data['best']['shiftron'] / data['best'][side]:.2f}"
                rows.append([result["model"], result["machine_name"], f"{data['text_bytes'] / 1e6:.1f} MB", threads, SIDES.get(side, f"{side}, Python"),
                             f"{min(seconds):.2f} s", f"{data['best'][side] / 1e6:.1f} MB/s", f"{min(data['processor_seconds'][side]):.2f} s",
                             ratio])
    yield from table(["tokenizer", "machine", "text", "threads", "", "time", "rate", "processor time", "times as long"], rows)
    yield from provenance(kept)


def import_lines(results):
    kept = results.of("import_vs_copy")
    if not kept:
        return
    yield "## Token files: import and reading"
    yield ""
    yield ("`shiftron data import`, which checks every token, hashes and syncs, and `cp` with `sync` take turns; medians. Then one thread reads "
           "training samples of the dataset in shuffled order, from the page cache.")
    yield ""
    rows = []
    for result in kept:
        data = result["result"]
        rows.append([result["model"], result["machine_name"], f"{data['rates']['shiftron'] / 1e9:.2f} GB/s", f"{data['rates']['cp'] / 1e9:.2f} GB/s",
                     f"{data['ratio']:.2f}", f"{data['read']['tokens_per_second'] / 1e6:.0f} M tokens/s"])
    yield from table(["file", "machine", "import", "cp", "share", "samples"], rows)
    yield from provenance(kept)


def kernel_lines(results):
    kept = results.of("kernels_benchmark")
    if not kept:
        return
    yield "## Kernels"
    yield ""
    for result in kept:
        rows = []
        for one in result["result"]["benchmarks"]:
            rates = [f"{one[unit] / 1e9:.1f}" if unit in one else "" for unit in ("GB/s", "GFLOP/s")]
            rows.append([one["name"].removesuffix("/real_time"), result["machine_name"], f"{one['real_time']:.3f} {one['time_unit']}", *rates])
        yield from table(["kernel", "machine", "time", "GB/s", "GFLOP/s"], rows)
    yield from provenance(kept)


def profile_lines(results):
    kept = [result for result in results.of("train_steps") if "kernels" in result["result"]]
    if not kept:
        return
    yield "## Where the time of a GPU step goes"
    yield ""
    yield ("Measured by device events around every call of an operation. The events add about 2 µs per call, so calls of a few microseconds look "
           "slower than they are. The last column is the share of the peak of products or of copying, whichever is higher. It exceeds 100 % when "
           "data is read from the cache.")
    yield ""
    for result in kept:
        data = result["result"]
        whole = sum(kernel["seconds"] for kernel in data["kernels"].values())
        yield (f"### {result['model']}, {result['machine_name']}: a step of {1e3 * data['step_seconds']:.1f} ms, kernels "
               f"{1e3 * whole:.1f} ms; peaks {data['peak_operations'] / 1e12:.0f} TFLOP/s, {data['peak_bytes'] / 1e12:.2f} TB/s")
        yield ""
        rows = []
        for name, kernel in sorted(data["kernels"].items(), key=lambda one: -one[1]["seconds"]):
            if kernel["seconds"] < WORTH_A_LINE * whole:
                break
            operations, moved = (kernel[what] / kernel["seconds"] for what in ("operations", "bytes"))
            rows.append([name, f"{kernel['calls']:.0f}", f"{1e3 * kernel['seconds']:.2f} ms", percent(kernel["seconds"] / whole, 1),
                         f"{moved / 1e12:.2f}", f"{operations / 1e12:.0f}",
                         percent(max(operations / data["peak_operations"], moved / data["peak_bytes"]))])
        yield from table(["operation", "calls", "time", "share", "TB/s", "TFLOP/s", "of the peak"], rows)
    yield from provenance(kept)


def by_case(kept):
    """The results of each machine and precision."""
    def case(result):
        return result["place"], result["precision"]

    return [list(group) for _, group in itertools.groupby(sorted(kept, key=case), case)]


def names_of(kept):
    return ", ".join(dict.fromkeys(result["model"] for result in kept))


def span(values, text):
    least, most = text(min(values)), text(max(values))
    return least if least == most else f"{least.removesuffix(' %')} to {most}"


def page_table(head, rows, section):
    """rows: [(results, cells)]. Machine and date are columns if they differ, and otherwise stand under the table."""
    if not rows:
        yield "Not measured."
        return
    places = [(kept[0]["machine_name"], dates(kept)) for kept, _ in rows]
    if len(set(places)) > 1:
        yield from table(["machine", *head, "date"], [[name, *cells, date] for (name, date), (_, cells) in zip(places, rows)])
        place = "First"
    else:
        yield from table(head, [cells for _, cells in rows])
        place = f"{places[0][0]}, {places[0][1]}; first"
    yield f"{place} row: `{rows[0][0][0]['command']}` ([all runs](performance-runs.md#{section}))."


def page_machines(results):
    rows = []
    for name, machine in zip(results.names, results.machines):
        rows.append([name, processor(machine).replace("(R)", "").replace(" Processor", ""), str(machine["cores"]), machine["instructions"][-1],
                     dates([result for result in results.all if result["machine_name"] == name])])
    yield from table(["machine", "processor", "cores", "best instructions", "measured"], rows)


def page_cpu(results):
    rows = []
    for case in by_case(result for result in results.of("vs_pytorch") if "device_bytes" not in result["result"]["sides"]["shiftron"]):
        best = [fastest_other(result)[1] for result in case]
        shares = [memory_of(result["result"]["sides"]["shiftron"]) / memory_of(side) for result, side in zip(case, best)]
        rows.append((case, [case[0]["precision"], names_of(case), span([side["speed_of_shiftron_over_it"] for side in best], "{:.2f}".format),
                            f"{min(side['interval_95'][0] for side in best):.2f}", span(shares, "{:.2f}".format)]))
    yield from page_table(["precision", "models", "times as fast", "lowest 95 % bound", "memory / PyTorch's"], rows, "training-steps-vs-pytorch")


def page_gpu(results):
    rows = []
    for result in results.of("vs_pytorch"):
        own, (name, best) = result["result"]["sides"]["shiftron"], fastest_other(result)
        layers = re.search(r"--model\.layers (\d+)", result["command"])
        if "device_bytes" in own:
            rows.append(([result], [result["model"], layers[1] if layers else "all", f"{own['tokens_per_second']:,.0f}",
                                    f"{best['tokens_per_second']:,.0f} ({WAYS[name.split('-')[1]]})", f"{best['speed_of_shiftron_over_it']:.2f}",
                                    interval(best["interval_95"], "{:.3f}".format), f"{memory_of(own) / 1e9:.1f} / {memory_of(best) / 1e9:.1f} GB"]))
    yield from page_table(["model", "layers", "tokens/s", "fastest PyTorch", "times as fast", "95 %", "memory / PyTorch's"], rows,
                          "training-steps-vs-pytorch")


def page_floor(results):
    rows = []
    for _, group in itertools.groupby(results.of("step_floor"), lambda result: result["place"]):
        kept = list(group)
        shares = {precision: [share for result in kept if (share := (result["result"][precision] or {}).get("share_of_floor"))]
                  for precision in ("fp32", "bf16")}
        rows.append((kept, [names_of(kept), *(span(share, percent) if share else "–" for share in shares.values())]))
    yield from page_table(["models", "fp32", "bf16"], rows, "how-close-a-step-is-to-its-floor")


def page_shift(results):
    def two_digits(value):
        return percent(value, 2)

    rows = []
    kept = (result | {"precision": result["result"]["precision"]} for result in results.of("train_steps") if "overhead" in result["result"])
    for case in by_case(kept):
        limits = [limit for result in case for limit in result["result"]["interval_95"]]
        rows.append((case, [case[0]["precision"], names_of(case), span([result["result"]["overhead"] for result in case], two_digits),
                            span(limits, two_digits)]))
    yield from page_table(["precision", "models", "overhead", "widest 95 % bounds"], rows, "what-the-kv-shift-costs")


def page_ranks(results):
    rows = [([result], [result["model"], result["precision"], layout, f"{data['ratio']:.3f}", span(data["rounds"], "{:.3f}".format)])
            for result in results.of("parallel_efficiency") for layout, data in result["result"]["layouts"].items() if data["against"] == "one rank"]
    yield from page_table(["model", "precision", "ranks", "ratio", "rounds"], rows, "two-ranks-of-one-thread")


def page_generation(results):
    rows = []
    for result in results.of("generate_tokens"):
        data = result["result"]
        rows.append(([result], [result["model"], data["precision"], f"{data['tokens_per_second']:.0f}", f"{data['bound_tokens_per_second']:.0f}",
                                f"{data['share_of_bound']:.2f}"]))
    yield from page_table(["model", "precision", "tokens/s", "bound", "share"], rows, "generation")


def page_checkpoints(results):
    rows = []
    for result in results.of("checkpoint_vs_pytorch"):
        sides = result["result"]["sides"]
        for words, figure in sides["shiftron"].items():
            rows.append(([result], [result["model"], words, f"{figure['seconds']:.2f} s",
                                    *(f"{sides[side][words]['ratio']:.2f} times as long" for side in ("dcp", "safetensors"))]))
    yield from page_table(["model", "", "Shiftron", "torch.distributed.checkpoint", "safetensors.torch"], rows, "checkpoints-vs-pytorch")


def page_data(results):
    rows = [([result], [result["model"], threads, *(f"{data['best'][side] / 1e6:.1f} MB/s" if side in data["best"] else "–"
                                                    for side in ("shiftron", "sentencepiece", "tokenizers"))])
            for result in results.of("data_vs_python") for threads, data in result["result"].items()]
    yield from page_table(["tokenizer", "threads", "Shiftron", "sentencepiece", "tokenizers"], rows, "tokenizing-vs-python-packages")


def page_evaluation(results):
    rows = []
    for result in results.of("evaluate_vs_harness"):
        for shape, data in result["result"].items():
            theirs, ours, threads = (data["fastest"]["harness"], data["fastest"]["shiftron"], result["threads"])
            whole = data["whole_seconds"]
            rows.append(([result], [result["model"], HARNESS_SHAPES[shape], f"{data['best'][f'harness {theirs}']:.2f}",
                                    f"{data['best'][f'shiftron {ours}, ' + str(threads) + ' thread' + 's' * (threads > 1)]:.2f}",
                                    f"{data['ratio']:.2f}", f"{whole['harness']:.1f} s / {whole['shiftron']:.1f} s"]))
    yield from page_table(["model", "items", "harness, items/s", "Shiftron", "times as fast", "whole command: harness / Shiftron"], rows,
                          "benchmark-tasks-vs-lm-evaluation-harness")


BLOCKS = {"machines": page_machines, "cpu": page_cpu, "gpu": page_gpu, "floor": page_floor, "shift": page_shift, "ranks": page_ranks,
          "generation": page_generation, "checkpoints": page_checkpoints, "data": page_data, "evaluation": page_evaluation}


def page(text, results):
    """Returns docs/performance.md with new tables between its marks."""
    for name, lines in BLOCKS.items():
        begin, end = f"<!--{name}-->\n", f"\n<!--/{name}-->"
        if text.count(begin) != 1 or text.count(end) != 1:
            sys.exit(f"report: docs/performance.md needs {begin.strip()} and {end.strip()}, each once")
        text = text[:text.index(begin) + len(begin)] + "\n".join(lines(results)).strip() + text[text.index(end):]
    return text


def runs(results):
    lines = ["# Performance: all runs", "",
             "Every measurement of [Performance](performance.md). `benchmarks/report.py` writes this page from `benchmarks/results/`, one file "
             "per measurement; do not edit either by hand. To repeat a measurement, run its command from the top of the repository on an otherwise "
             "idle machine.", ""]
    for section in (machine_lines, summary_lines, comparison_lines, floor_lines, shift_lines, parallel_lines, generation_lines,
                    checkpoint_lines, checkpoint_comparison_lines, tokens_lines, import_lines, harness_lines, kernel_lines, profile_lines):
        lines += section(results)
    return "\n".join(lines).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    results = Results(ROOT / "benchmarks" / "results")
    texts = {PAGE: page(PAGE.read_text(encoding="utf-8"), results), RUNS: runs(results)}
    if arguments.check:
        for path, text in texts.items():
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                sys.exit(f"report: {path.relative_to(ROOT)} is not what the results say\n  next: benchmarks/report.py")
        if not PICTURE.exists() or speed_picture.script(bars(results)) not in PICTURE.read_text(encoding="utf-8"):
            sys.exit("report: docs/performance.svg is not what the results say\n  next: benchmarks/report.py")
        return
    if not shutil.which("gnuplot"):
        sys.exit("report: gnuplot is missing\n  next: launch/install-deps")
    for path, content in (texts | {PICTURE: speed_picture.drawn(bars(results))}).items():
        path.write_text(content, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
