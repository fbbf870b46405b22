#!/usr/bin/env python3
"""Writes docs/performance.md and its picture from benchmarks/results/*.json, which the benchmarks keep. --check: fails if they would change.

Every figure of the document comes out of those files; the sentences here hold none.
"""
import argparse
import json
import pathlib
import re
import shutil
import string
import sys

import speed_picture

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "performance.md"
PICTURE = DOCUMENT.with_suffix(".svg")
SIDES = {"shiftron": "Shiftron", "fp32-eager": "PyTorch, eager", "fp32-compile": "PyTorch, compiled",
         "autocast-eager": "PyTorch, autocast, eager", "autocast-compile": "PyTorch, autocast, compiled",
         "bf16-eager": "PyTorch, bf16 weights with fp32 masters, eager", "bf16-compile": "PyTorch, bf16 weights with fp32 masters, compiled",
         "fp32-layers": "PyTorch, compiled by layers", "autocast-layers": "PyTorch, autocast, compiled by layers", "bf16-layers": "PyTorch, bf16 weights with fp32 masters, compiled by layers",
         "bf16-graphs": "PyTorch, bf16 weights with fp32 masters, compiled, replayed as CUDA graphs"}
# In place of the machinery_bytes that older results lack: those of a model of kilobytes on 2 cores of an AMD EPYC (family 25), PyTorch 2.15,
# 2026-11-28, in fp32; without and with a compiler.
MACHINERY = {"shiftron": 0.012e9, "eager": 0.178e9, "compile": 0.273e9, "layers": 0.270e9}
MODELS = ["toy", "30m", "124m", "1.5b", "2.9b", "6.7b", "13b", "19b"]
WORTH_A_LINE = 0.01  # of a step, lost in one part of it
WEIGHT_REASON = ("the floor has the weight laid out anew beforehand where that pays; the step does it in every call, in float32 where the "
                 "weight is narrow, else it takes sgemm on the weight as it lies")
EVERY_PARAMETER = "each parameter by itself, small ones too, and the end of each waits for all threads"
# Why a part of the step is above its floor, from what its kernel does.
REASONS = {
    "products forward": WEIGHT_REASON,
    "products backward to input": WEIGHT_REASON,
    "products backward to weight": "in float32 the step chooses between sgemm and matmul by a rule of shapes, the floor by the clock; in bfloat16, "
                                   "where the processor multiplies such vectors, the step's own tiles first bring the rows of both operands together in pairs",
    "attention": "backward makes the scores again, blocks on the diagonal are computed whole, small tiles multiply more slowly than large "
                 "matrices, and the floor has no exponentials",
    "swiglu_forward": "bound by the exponential and the division of the sigmoid, not by memory",
    "swiglu_backward": "bound by the exponential and the division of the sigmoid, not by memory",
    "cross_entropy_statistics": "two passes over every row of logits, the second bound by the exponential",
    "cross_entropy_backward": "bound by the exponential, not by memory",
    "shift_rope_forward": "short rows, each in another page of memory",
    "shift_rope_backward": "short rows, each in another page of memory",
    "rms_norm_forward": "two passes over every row, the second behind the sum of the first",
    "add_rms_norm_forward": "two passes over every row, the second behind the sum of the first",
    "rms_norm_backward": "two passes over every row, the second behind the sum of the first; the gradient of the scale is read and written "
                         "with every row",
    "embedding_backward": "rows of the table in the order of the tokens",
    "adamw": f"{EVERY_PARAMETER}; many arrays are read and written at once, where a copy reads one and writes another",
    "sum_of_squares": EVERY_PARAMETER,
    "outside of kernels": "reading and preparing the batch, and what the host does between kernels",
}


class Results:
    """What was kept, by kind; machines get letters by the date of what was first measured there, which further results leave alone."""

    def __init__(self, folder):
        kept = [json.loads(path.read_text(encoding="utf-8")) | {"name": path.stem} for path in folder.glob("*.json")]
        self.all, self.machines = [], []
        for result in sorted(kept, key=lambda one: (one["date"], one["name"])):
            # A kernel's build does not make another machine.
            machine = result["machine"] | {"system": re.match(r"\S+ \d+\.\d+", result["machine"]["system"])[0]}
            if machine not in self.machines:
                self.machines.append(machine)
            result["letter"] = string.ascii_uppercase[self.machines.index(machine)]
            named = re.search(r"configs/([\w.]+)\.conf", result["command"])
            result.setdefault("model", named.group(1) if named else result["name"])
            self.all.append(result)

    def of(self, kind):
        order = {model: place for place, model in enumerate(MODELS)}
        return sorted((result for result in self.all if result["kind"] == kind),
                      key=lambda result: (result["letter"], order.get(result["model"], len(MODELS)), result.get("precision", ""),
                                          result["name"]))


def cell(text):
    """A result's text within a table: it ends no cell and is no HTML."""
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


def provenance(results):
    """Where each figure of a section is from: machine, date, what else ran, versions, command."""
    yield "Measured:"
    yield ""
    for result in results:
        versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
        yield (f"* {result['model']}: machine {result['letter']}, {result['date']}, other processes used "
               f"{result['other_cores']:.2f} cores meanwhile; {versions}")
        yield f"  `{result['command']}`"
    yield ""


def machine_lines(results):
    yield "## Machines"
    yield ""
    rows = []
    for place, machine in enumerate(results.machines):
        gpu = f"{machine['gpu'].replace(', ', ', driver ')}; " if "gpu" in machine else ""
        rows.append([string.ascii_uppercase[place],
                     f"{gpu}{machine['processor']} (family {machine['family']}, model {machine['model']})", str(machine["cores"]),
                     ", ".join(machine["instructions"]), f"{machine['memory_gib']:.0f} GiB", machine["system"]])
    yield from table(["", "processor", "cores", "instructions", "memory", "system"], rows)


def comparison_lines(results):
    kept = results.of("vs_pytorch")
    if not kept:
        return
    yield "## Training steps against PyTorch"
    yield ""
    yield ("The same model, the same weights, the same tokens, AdamW and clipping included. All sides are live "
           "processes that take turns in short blocks; a side that waits sleeps on its pipe. The ratio is the speed of Shiftron "
           "over that of the row, by pairs of blocks; its interval holds it with 95 % confidence. The loss column is the largest "
           "relative difference of any of the first steps' losses from Shiftron's.")
    yield ""
    for result in kept:
        data = result["result"]
        shift = "without shift" if result.get("vanilla") else "with KV shift"
        label = f", {result['label']}" if result.get("label") else ""
        yield f"### {result['model']} {shift}, {result['precision']}{label}, {data['threads']} threads, machine {result['letter']}"
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
    """Whether memory is told without what a side takes for a model of kilobytes, as on GPUs, where it is that of tensors."""
    return all("machinery_bytes" in side or "device_bytes" in side for side in result["result"]["sides"].values())


def machinery_lines(kept):
    """What the shares of memory of these comparisons would be about if nothing but the model and its training counted."""
    if not kept:
        return
    shares = {}
    for result in kept:
        name, best = fastest_other(result)
        own = result["result"]["sides"]["shiftron"]
        told, without = shares.setdefault(result["model"], ([], []))
        told.append(memory_of(own) / memory_of(best))
        without.append((memory_of(own) - MACHINERY["shiftron"]) / (memory_of(best) - MACHINERY[name.split("-")[1]]))
    theirs = [size for name, size in MACHINERY.items() if name != "shiftron"]
    changes = "; ".join(f"{model} {min(told):.2f} to {max(told):.2f}, without it about {min(without):.2f} to {max(without):.2f}"
                        for model, (told, without) in shares.items())
    yield (f"On processors PyTorch's memory above start-up holds {min(theirs) / 1e9:.1f} to {max(theirs) / 1e9:.1f} GB of its own machinery, most of "
           f"it with a compiler, which a model of kilobytes takes too (Shiftron: {MACHINERY['shiftron'] / 1e9:.2f} GB). It flatters the shares of "
           f"small models: {changes}.")
    yield ""


def milliseconds(seconds):
    return f"{1e3 * seconds:.0f} ms"


def fastest_other(result):
    """(name, side) of the PyTorch of a comparison over which the ratio, by pairs of blocks, is the least."""
    others = [(name, side) for name, side in result["result"]["sides"].items() if name != "shiftron"]
    return min(others, key=lambda other: other[1]["speed_of_shiftron_over_it"])


def bars(results):
    """Of the picture: label, machine, times as fast, its interval."""
    kept = []
    for result in results.of("vs_pytorch"):
        machine = results.machines[string.ascii_uppercase.index(result["letter"])]
        processor = machine.get("gpu", machine["processor"]).split(",")[0].replace("(R)", "").replace(" Processor", "")
        side = fastest_other(result)[1]
        label = ", ".join(part for part in (f"{result['model']} {result['precision']}", "without shift" if result.get("vanilla") else "",
                                            result.get("label", "")) if part)
        kept.append((label, f"{result['letter']}: {processor}, {machine['cores']} cores", side["speed_of_shiftron_over_it"], side["interval_95"]))
    return kept


def summary_lines(results):
    kept = results.of("vs_pytorch")
    if not kept:
        return
    yield "## At a glance"
    yield ""
    yield f"![times as fast as the fastest PyTorch]({PICTURE.name})"
    yield ""
    yield ("Training steps against the fastest PyTorch of each case, from the tables below: how many times as fast, and the peak "
           "memory above start-up, on a GPU that of tensors, as a share of that PyTorch's, and of the PyTorch that needs least. The fastest is "
           "the one over which the ratio is the least, of those that were measured there.")
    yield ""
    yield from machinery_lines([result for result in kept if not has_machinery(result)])
    rows = []
    for result in kept:
        sides = result["result"]["sides"]
        own = sides["shiftron"]
        name, best = fastest_other(result)
        least = min(memory_of(side) for side in sides.values() if side is not own)
        rows.append([result["model"], "no" if result.get("vanilla") else "yes", result["precision"], result.get("label", ""), result["letter"],
                     f"{own['tokens_per_second']:.0f}", SIDES.get(name, name), f"{best['speed_of_shiftron_over_it']:.2f}",
                     interval(best["interval_95"], "{:.2f}".format), f"{memory_of(own) / memory_of(best):.2f}",
                     f"{memory_of(own) / least:.2f}"])
    yield from table(["model", "KV shift", "precision", "", "machine", "tokens/s", "fastest PyTorch", "times as fast", "95 %", "of its memory",
                      "of the least"], rows)


def floor_row(data):
    """Of a precision's figures; older results have no measured step."""
    kinds = " + ".join(f"{1e3 * data[key]:.0f}" for key in ("step_seconds", "attention_seconds", "other_seconds"))
    measured = "measured_step_seconds" in data
    return [f"{data['gflops']:.0f}", f"{kinds} ms", f"{data['floor_tokens_per_second']:.0f}",
            milliseconds(data["floor_seconds"]), milliseconds(data["measured_step_seconds"]) if measured else "–",
            percent(data["share_of_floor"]) if measured else "–", interval(data.get("share_range"), percent),
            percent(data["peak_share_of_floor"]) if "peak_share_of_floor" in data else "–"]


def part_lines(data):
    """The parts of a step that are above their floor by a share of the step that is worth a line, the largest loss first."""
    step = sum(part["measured_seconds"] for part in data["parts"])
    for part in sorted(data["parts"], key=lambda one: one["floor_seconds"] - one["measured_seconds"]):
        loss = (part["measured_seconds"] - part["floor_seconds"]) / step
        if loss < WORTH_A_LINE:
            return
        reason = REASONS.get(part["part"])
        yield (f"* {part['part']}: {milliseconds(part['measured_seconds'])} for {milliseconds(part['floor_seconds'])}, "
               f"{percent(loss, 1)} of the step" + (f": {reason}" if reason else ""))


def floor_lines(results):
    kept = results.of("step_floor")
    if not kept:
        return
    yield "## The floor of a step"
    yield ""
    yield ("The least that a step costs on a machine with the library's calls: each matrix product through oneDNN directly, on buffers that "
           "are in no cache, in the fastest of the ways that the library offers; the products of attention (the causal half) at their mean "
           "rate; the bytes of all other kernels at the speed of copying. Where the trainer's own products are faster than the library's, the "
           "step is below that floor, its share above 100 %; the last column has the share of a floor whose products all run at the peak of "
           "the processor's best instruction. The step is the trainer's in the same process: each round calls every product "
           "and takes a step, so that a machine whose speed drifts is as slow for both. The share is that of the floor in the step; its "
           "range is over the rounds. `step_floor` without `--json` lists the products one by one and all parts of the step.")
    yield ""
    rows, lists = [], []
    for result in kept:
        for precision in ("fp32", "bf16"):
            data = result["result"][precision]
            rows.append([result["model"], result["letter"], str(result["result"]["threads"]), precision] +
                        (floor_row(data) if data else ["none here"] + 7 * [""]))
            losses = list(part_lines(data)) if data and "parts" in data else []
            if losses:
                lists += [f"### Above the floor: {result['model']}, {precision}, machine {result['letter']}", "", *losses, ""]
    yield from table(["model", "machine", "threads", "precision", "GFLOP/s of products", "products + attention + rest", "tokens/s at the floor",
                      "floor", "step", "share", "rounds", "share at the processor's peak"], rows)
    if lists:
        yield "What the step takes longer than the floor, part by part (means over the rounds):"
        yield ""
        yield from lists
    yield from provenance(kept)


def shift_lines(results):
    kept = [result for result in results.of("train_steps") if "overhead" in result["result"]]
    if not kept:
        return
    yield "## What the KV shift costs"
    yield ""
    yield ("Two trainers in one process, with and without the shift, take steps in turn. The overhead is the median over the pairs "
           "of steps; its 95 % interval is that of the median, by order statistics.")
    yield ""
    rows = []
    for result in kept:
        data = result["result"]
        rows.append([result["model"], result["letter"], str(data["threads"]), data["precision"], str(data["pairs"]),
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
    yield ("Against one rank of two threads, and against each other: whole runs of `shiftron train` in turn, the median over the "
           "steps behind the first. The ratio is that of speeds, by rounds.")
    yield ""
    rows = []
    for result in kept:
        for layout, data in result["result"]["layouts"].items():
            rows.append([result["model"], result["precision"], result["letter"], layout, f"{data['tokens_per_second']:.0f}",
                         data["against"], f"{data['other_tokens_per_second']:.0f}", f"{data['ratio']:.3f}",
                         f"{min(data['rounds']):.3f} to {max(data['rounds']):.3f}"])
    yield from table(["model", "precision", "machine", "two ranks", "tokens/s", "against", "tokens/s", "ratio", "rounds"], rows)
    yield from provenance(kept)


def generation_lines(results):
    kept = results.of("generate_tokens")
    if not kept:
        return
    yield "## Generation"
    yield ""
    yield ("One sequence, token by token, with random weights. The bound: the speed at which the same process reads memory, over the bytes "
           "of weights and cache that a token must read; the share is that of the bound of its own round.")
    yield ""
    rows = []
    for result in kept:
        data = result["result"]
        rows.append([result["model"], data["precision"], result["letter"], str(data["threads"]), str(data["cache"]),
                     f"{data['tokens_per_second']:.0f}", f"{data['bound_tokens_per_second']:.0f}",
                     f"{data['read_bytes_per_second'] / 1e9:.0f} GB/s", f"{data['share_of_bound']:.2f}",
                     interval(data["share_range"], "{:.2f}".format)])
    yield from table(["model", "precision", "machine", "threads", "tokens in cache", "tokens/s", "bound", "read", "share", "rounds"], rows)
    yield from provenance(kept)


CHECKPOINT_ROWS = {"written": "written, hashed and synced", "saved": "saved: and read back, and named", "restored cold": "restored, cold",
                   "restored warm": "restored, warm", "raw write": "plain write and fsync", "raw read cold": "plain pread, cold",
                   "raw read warm": "plain pread, warm", "read back": "the read-back of a save, warm", "converted": "converted to tp = 2, from warm files",
                   "exported": "exported in bfloat16, from warm files (of what is written)"}


def checkpoint_lines(results):
    kept = results.of("checkpoint_files")
    if not kept:
        return
    yield "## Checkpoints"
    yield ""
    yield ("Masters and two moments of a model with random bits, saved and restored by one rank as a run does it. Plain calls move as many "
           "bytes between the same memory and the same disk, in pieces of a block, by one thread and without a hash; they take turns with "
           "ours in every round, and the share is their time over ours. Cold: the page cache held nothing of the file; warm: all of it.")
    yield ""
    rows = []
    for result in kept:
        data = result["result"]
        for name, label in CHECKPOINT_ROWS.items():
            figure = data["figures"][name]
            rows.append([result["model"], data["precision"], result["letter"], str(data["threads"]), label, f"{figure['seconds']:.2f} s",
                         f"{figure['bytes_per_second'] / 1e9:.2f} GB/s", f"{figure['share_of_raw']:.2f}" if "share_of_raw" in figure else "",
                         interval(figure.get("share_range"), "{:.2f}".format) if "share_of_raw" in figure else ""])
    yield from table(["model", "precision", "machine", "threads", "", "time", "rate", "share of plain calls", "rounds"], rows)
    yield from provenance(kept)


def checkpoint_comparison_lines(results):
    kept = results.of("checkpoint_vs_pytorch")
    if not kept:
        return
    yield "## Checkpoints against PyTorch"
    yield ""
    yield ("The same tensors in fp32 on the same disk, by live processes that take turns; every save ends with its files synced, every "
           "restore with the bytes back in tensors that are there. The ratio is the time of the row over that of Shiftron, by rounds. "
           "Shiftron hashes what it writes, reads it back, and compares the hashes when it restores; the others do neither.")
    yield ""
    rows = []
    names = {"shiftron": "Shiftron", "dcp": "torch.distributed.checkpoint, one process", "safetensors": "safetensors.torch"}
    for result in kept:
        for side, figures in result["result"]["sides"].items():
            for words, figure in figures.items():
                own = side == "shiftron"
                rows.append([result["model"], result["letter"], names.get(side, side), words, f"{figure['seconds']:.2f} s",
                             f"{figure['bytes_per_second'] / 1e9:.2f} GB/s", "" if own else f"{figure['ratio']:.2f}",
                             "" if own else interval(figure["ratio_range"], "{:.2f}".format)])
    yield from table(["model", "machine", "", "", "time", "rate", "times as long", "rounds"], rows)
    yield from provenance(kept)


HARNESS_SHAPES = {"mmlu": "MMLU, five examples", "hellaswag": "HellaSwag"}


def harness_lines(results):
    kept = results.of("evaluate_vs_harness")
    if not kept:
        return
    yield "## Benchmark tasks against lm-evaluation-harness"
    yield ""
    yield ("Items a second, from texts to log-likelihoods, by live processes that take turns: the harness through transformers at the "
           "fastest of its batch sizes and precisions, Shiftron at the faster of its own. Each is the best of its rounds, and the harness's "
           "first pass over batch sizes counts for it. Behind them: the ratio of both, the ratios in one precision, two ranks of one thread over one thread "
           "in the precision where they gain more, and whole commands from start to report.")
    yield ""
    rows = []
    for result in kept:
        for shape, data in result["result"].items():
            best, batches = data["best"], data["batch"]
            precisions, threads = data["fastest"], result["threads"]
            theirs = f"harness {precisions['harness']}"
            ours = f"shiftron {precisions['shiftron']}, {threads} thread{'s' * (threads > 1)}"
            whole = data.get("whole_seconds")
            rows.append([result["model"], "no" if result["vanilla"] else "yes", result["label"], result["letter"], HARNESS_SHAPES[shape],
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
    yield "## Tokens against Python's packages"
    yield ""
    yield ("The same text, by the same tokenizer, from JSONL to tokens on the disk, in whole commands that take turns; all count the same tokens. "
           "`shiftron data build` shuffles and hashes besides; the packages write two bytes a token behind each other, and the start of a Python is part "
           "of their commands. The least of all rounds.")
    yield ""
    rows = []
    for result in kept:
        for threads, data in result["result"].items():
            for side, seconds in data["seconds"].items():
                ratio = "" if side == "shiftron" else f"{data['best']['shiftron'] / data['best'][side]:.2f}"
                rows.append([result["model"], result["letter"], f"{data['text_bytes'] / 1e6:.1f} MB", threads, SIDES.get(side, f"{side}, Python"),
                             f"{min(seconds):.2f} s", f"{data['best'][side] / 1e6:.1f} MB/s", f"{min(data['processor_seconds'][side]):.2f} s",
                             ratio])
    yield from table(["tokenizer", "machine", "text", "threads", "", "time", "rate", "of processors", "times as long"], rows)
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
            rows.append([one["name"].removesuffix("/real_time"), result["letter"], f"{one['real_time']:.3f} {one['time_unit']}", *rates])
        yield from table(["kernel", "machine", "time", "GB/s", "GFLOP/s"], rows)
    yield from provenance(kept)


def profile_lines(results):
    kept = [result for result in results.of("train_steps") if "kernels" in result["result"]]
    if not kept:
        return
    yield "## Where the time of a step goes on a GPU"
    yield ""
    yield ("Events of the device around every call of an operation, which add about 2 µs to each; a call of few microseconds is bound by them. "
           "The share of the peak is that of the products' or of copying, whichever is higher; above one, what is read lies in the cache.")
    yield ""
    for result in kept:
        data = result["result"]
        whole = sum(kernel["seconds"] for kernel in data["kernels"].values())
        yield (f"### {result['model']}, machine {result['letter']}: a step of {1e3 * data['step_seconds']:.1f} ms, its kernels "
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


def document(results):
    lines = ["# Performance", "",
             "Written by `benchmarks/report.py` from `benchmarks/results/`, one file a measurement; change neither by hand. "
             "How to measure again: the command under each table, from the top of the repository, on a machine that does nothing else.", ""]
    for section in (machine_lines, summary_lines, comparison_lines, floor_lines, shift_lines, parallel_lines, generation_lines,
                    checkpoint_lines, checkpoint_comparison_lines, tokens_lines, harness_lines, kernel_lines, profile_lines):
        lines += section(results)
    return "\n".join(lines).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    results = Results(ROOT / "benchmarks" / "results")
    text = document(results)
    if arguments.check:
        if not DOCUMENT.exists() or DOCUMENT.read_text(encoding="utf-8") != text:
            sys.exit("report: docs/performance.md is not what the results say\n  next: benchmarks/report.py")
        if not PICTURE.exists() or speed_picture.script(bars(results)) not in PICTURE.read_text(encoding="utf-8"):
            sys.exit("report: docs/performance.svg is not what the results say\n  next: benchmarks/report.py")
        return
    if not shutil.which("gnuplot"):
        sys.exit("report: gnuplot is missing\n  next: launch/install-deps")
    picture = speed_picture.drawn(bars(results))
    for path, content in ((DOCUMENT, text), (PICTURE, picture)):
        path.write_text(content, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
