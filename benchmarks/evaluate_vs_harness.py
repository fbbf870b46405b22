#!/usr/bin/env python3
"""Answers the items of benchmark tasks here and with lm-evaluation-harness, and compares items per second.

    build/lm-eval/bin/python benchmarks/evaluate_vs_harness.py 30m      (configs/NAME.conf with KV shift; needs lm_eval[hf]==0.4.13 with torch)

A model is trained for one step and exported for the harness, which loads it through transformers on the CPU. The items are made up, with
the lengths of MMLU with five examples and of HellaSwag; --data DIR uses the items of a folder that `shiftron evaluate` can read. Only
scoring, from texts to log-likelihoods, is timed, in live processes that take turns, each with its model loaded: the harness in fp32 and
bf16 at whichever of its batch sizes was fastest in a first pass, Shiftron in both, and on one thread and on two ranks of one thread.
The ratio is Shiftron's best of all rounds over the harness's best. Then whole commands, from start to report, take turns.
Fails if log-likelihoods in fp32 differ by more than 1e-4.
"""
import argparse
import importlib.util
import itertools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from exported_step import exported_step
from live_process import LiveProcess
from record import ROOT, Fault, OtherWork, at_least, command_text, keep, largest, model_file, must, require_program, split_words, wait_until_quiet

BUILD = ROOT / "build" / "release"
TOLERANCE = 1e-4  # of a log-likelihood, relative above 1
SUBJECTS = ["anatomy", "astronomy"]
SHAPES = {"mmlu": (",".join(f"mmlu_{subject}" for subject in SUBJECTS), 5), "hellaswag": ("hellaswag", 0)}  # tasks, examples
PRECISIONS = {"fp32": "float32", "bf16": "bfloat16"}
MAX_LENGTH = 2048


class Words:
    """Texts of made-up words with the frequencies of a natural language."""

    def __init__(self, count=40000):
        self.random = random.Random(5)
        starts, middles, ends = "b br ch d f g gl h k l m n p pr r s st t tr v w".split(), "a e i o u ai ea ou".split(), ["", "n", "r", "s", "l", "t"]
        syllables = [one + two + three for one in starts for two in middles for three in ends]
        made = {}
        while len(made) < count:
            made["".join(self.random.choice(syllables) for _ in range(self.random.choice([1, 2, 2, 3])))] = None
        self.words = list(made)
        self.sums = list(itertools.accumulate(1 / (rank + 3) for rank in range(count)))

    def sentence(self, least, most):
        drawn = self.random.choices(self.words, cum_weights=self.sums, k=self.random.randint(least, most))
        return " ".join(drawn).capitalize()

    def corpus(self, path, documents):
        write_lines(path, [{"text": ". ".join(self.sentence(5, 25) for _ in range(20)) + "."} for _ in range(documents)])


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_items(words, folder, items):
    """As many of each shape, in words: a token is a word or a part of one."""
    def question(subject):
        return {"question": words.sentence(20, 60) + "?", "subject": subject, "choices": [words.sentence(3, 12) for _ in range(4)],
                "answer": words.random.randrange(4)}

    def beginning(number):
        return {"ind": number, "activity_label": words.sentence(1, 3), "ctx_a": words.sentence(20, 50) + ".", "ctx_b": words.sentence(2, 8),
                "ctx": "", "endings": [words.sentence(10, 25) + "." for _ in range(4)], "source_id": "", "split": "val",
                "split_type": "indomain", "label": str(words.random.randrange(4))}

    for number, subject in enumerate(SUBJECTS):
        write_lines(folder / "mmlu" / subject / "dev.jsonl", [question(subject) for _ in range(5)])
        share = items * (number + 1) // len(SUBJECTS) - items * number // len(SUBJECTS)
        write_lines(folder / "mmlu" / subject / "test.jsonl", [question(subject) for _ in range(share)])
    for split in ("validation", "train"):
        write_lines(folder / "hellaswag" / f"{split}.jsonl", [beginning(number) for number in range(items)])


def write_tasks(data, folder):
    """The harness's own tasks on local files."""
    built_in = pathlib.Path(importlib.util.find_spec("lm_eval").submodule_search_locations[0]) / "tasks"
    folder.mkdir()

    def write(name, base, part, splits):
        files = {split: str((data / part / f"{split}.jsonl").resolve()) for split in splits}
        (folder / f"{name}.yaml").write_text(f"include: {built_in / base}\ntask: {name}\ndataset_path: json\ndataset_name: null\n"
                                             f"dataset_kwargs: {json.dumps({'data_files': files})}\n", encoding="utf-8")

    for subject in SUBJECTS:
        write(f"mmlu_{subject}", f"mmlu/default/mmlu_{subject}.yaml", f"mmlu/{subject}", ("dev", "test"))
    write("hellaswag", "hellaswag/hellaswag.yaml", "hellaswag", ("train", "validation"))


def make_model(program, arguments, options, folder):
    """A step and its export; the tokenizer of the step is made here unless it is given."""
    configs = [model_file(arguments.model), ROOT / "configs" / ("vanilla.conf" if arguments.vanilla else "kv-shift.conf")]
    words = Words()
    text, tokenizer = folder / "text.jsonl", arguments.tokenizer or folder / "tokenizer.model"
    words.corpus(text, 2500)
    if arguments.tokenizer:
        vocab = int(re.search(r'"vocab(?:_size)?": *(\d+)', must(program, "tokenizer", "inspect", tokenizer, "--json")).group(1))
    else:
        vocab = int(re.search(r"^vocab = (\d+)", model_file(arguments.model).read_text(), re.MULTILINE).group(1))
        must(program, "tokenizer", "train", "--input", text, "--vocab", vocab, "--output", tokenizer)
    return words, exported_step(program, configs, vocab, tokenizer, [text], folder, options)


def own_name(precision, ranks, threads):
    return f"shiftron {precision}, " + (f"{ranks} ranks" if ranks > 1 else f"{threads} thread" + "s" * (threads > 1))


class Ours(LiveProcess):
    def __init__(self, precision, ranks, threads, step, data, arguments):
        command = [BUILD / "benchmarks" / "answer_items", "--checkpoint", step, "--data", data, "--limit", arguments.limit,
                   "--max-length", MAX_LENGTH, "--precision", precision, "--threads", threads]
        if ranks > 1:
            command = ["mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none", *command]
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMPI_MCA_mpi_yield_when_idle="1")
        super().__init__(own_name(precision, ranks, threads), command, environment)
        self.precision = precision
        self.ranks = children(self.process.pid)[1:] if ranks > 1 else []
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        """A rank that waits for others does not sleep."""
        for pid in self.ranks:
            os.kill(pid, number)

    def rate(self, shape, batch=None):
        tasks, examples = SHAPES[shape]
        self.signal(signal.SIGCONT)
        self.last = self.ask(f"{tasks} {examples}")
        self.signal(signal.SIGSTOP)
        return self.last["items"] / self.last["seconds"]

    def end(self):
        self.signal(signal.SIGCONT)
        super().end()


class Theirs(LiveProcess):
    def __init__(self, precision, folder, arguments):
        command = [sys.executable, ROOT / "benchmarks" / "harness_items.py", "--model", folder / "export", "--dtype", PRECISIONS[precision],
                   "--tasks", folder / "tasks", "--limit", arguments.limit, "--max-length", MAX_LENGTH, "--threads", arguments.threads]
        environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads), HF_HOME=str(folder / "hub"))
        super().__init__(f"harness {precision}", command, environment)
        self.precision = precision

    def rate(self, shape, batch):
        tasks, examples = SHAPES[shape]
        self.last = self.ask(f"{tasks} {examples} {batch}")
        return self.last["items"] / self.last["seconds"]


def children(pid):
    found = [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [pid] + [one for child in found for one in children(child)]


def largest_difference(found, others):
    return largest(abs(one - other) / max(1, abs(other)) for one, other in zip(found, others, strict=True))


def measure(shape, ours, theirs, arguments):
    swept, best_batch = {}, {}
    for side in theirs:
        side.rate(shape, arguments.batch[0])  # warm-up
        for batch in arguments.batch:
            swept.setdefault(side.name, {})[str(batch)] = rate = side.rate(shape, batch)
            print(f"  {shape}, {side.name}, batches of {batch}: {rate:.2f} items/s", file=sys.stderr, flush=True)
        best_batch[side.name] = int(max(swept[side.name], key=swept[side.name].get))
    for side in ours:
        side.rate(shape)
    sides = ours + theirs
    meter = OtherWork([pid for side in sides for pid in children(side.process.pid)])
    rates = {side.name: [] for side in sides}
    for number in range(arguments.rounds):
        for side in sides[number % len(sides):] + sides[:number % len(sides)]:
            rates[side.name].append(side.rate(shape, best_batch.get(side.name)))
    reference = next(side for side in theirs if side.precision == "fp32")
    differences = {side.name: largest_difference(side.last["log_likelihoods"], reference.last["log_likelihoods"]) for side in sides}
    best = {side.name: max(rates[side.name]) for side in sides}
    # The first pass counts for the harness too: its best is the best that was seen.
    for side in theirs:
        best[side.name] = max(best[side.name], *swept[side.name].values())
    own = {precision: best[own_name(precision, 1, arguments.threads)] for precision in PRECISIONS}
    other = {side.precision: best[side.name] for side in theirs}
    ranks = {precision: best[own_name(precision, 2, 1)] / best[own_name(precision, 1, 1)] for precision in PRECISIONS}
    fastest = {"shiftron": max(own, key=own.get), "harness": max(other, key=other.get)}
    ratio = max(own.values()) / max(other.values())
    same = {precision: own[precision] / other[precision] for precision in PRECISIONS}
    return {"items": reference.last["items"], "batch": best_batch, "swept": swept, "rates": rates, "best": best, "fastest": fastest, "differences": differences,
            "ratio": ratio, "ratio_same_precision": same, "ranks_over_one_thread": ranks, "other_cores": meter.cores()}


def whole_commands(program, shape, result, step, data, folder, arguments):
    """Seconds from a command's start to its end, the least of all rounds."""
    tasks, examples = SHAPES[shape]
    precision, own_precision = result["fastest"]["harness"], result["fastest"]["shiftron"]
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads), HF_HOME=str(folder / "hub"), HF_HUB_OFFLINE="1",
                       HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    facts = f"pretrained={folder / 'export'},dtype={PRECISIONS[precision]},trust_remote_code=True,max_length={MAX_LENGTH}"
    seconds = {"shiftron": [], "harness": []}
    for number in range(arguments.whole_rounds):
        commands = {"shiftron": [program, "evaluate", "--checkpoint", step, "--tasks", tasks, "--fewshot", examples, "--data", data, "--limit",
                                 arguments.limit, "--max-length", MAX_LENGTH, "--output", folder / f"ours-{shape}-{number}",
                                 "--train.precision", own_precision, "--device.threads", arguments.threads],
                    "harness": [sys.executable, "-m", "lm_eval", "run", "--model", "hf", "--model_args", facts, "--device", "cpu",
                                "--batch_size", result["batch"][f"harness {precision}"], "--log_samples", "--include_path", folder / "tasks", "--tasks", tasks,
                                "--num_fewshot", examples, "--limit", arguments.limit, "--output_path", folder / f"theirs-{shape}-{number}"]}
        for name, command in commands.items():
            began = time.monotonic()
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, env=environment)
            if done.returncode != 0:
                raise Fault(f"{name} returned {done.returncode}: {done.stderr.strip()[-2000:]}")
            seconds[name].append(time.monotonic() - began)
    return {name: min(values) for name, values in seconds.items()}


def show(name, shape, result):
    print(f"{name}, {shape}, {result['items']} items; other processes used {result['other_cores']} cores")
    for side, rates in result["rates"].items():
        batch = f", batches of {result['batch'][side]}" if side in result["batch"] else ""
        print(f"  {side:24} {max(rates):8.2f} items/s at best, {min(rates):8.2f} at worst{batch}; log-likelihoods {result['differences'][side]:.1e}")
    print(f"  best over best {result['ratio']:.2f}; in the same precision {result['ratio_same_precision']}; "
          f"two ranks over one thread {result['ranks_over_one_thread']}")
    if "whole_seconds" in result:
        print(f"  whole commands: {result['whole_seconds']}")
    sys.stdout.flush()


def parse_arguments():
    words, own = split_words(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="name of configs/NAME.conf")
    parser.add_argument("--vanilla", action="store_true", help="the model without KV shift")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="only this one; repeatable")
    parser.add_argument("--items", type=at_least(1), default=64, help="number of made-up items of each shape")
    parser.add_argument("--limit", type=int, default=1000000, help="largest number of items of each task")
    parser.add_argument("--data", type=pathlib.Path, help="a folder with items of mmlu and hellaswag")
    parser.add_argument("--tokenizer", type=pathlib.Path, help="tokenizer for them; its vocabulary becomes the model's")
    parser.add_argument("--label", default="", help="names a run with its own options; part of the result's name")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 8, 16, 32], help="batch sizes of the harness")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=at_least(1), default=3)
    parser.add_argument("--whole-rounds", type=at_least(0), default=2, help="rounds of whole commands; 0: none")
    parser.add_argument("--directory", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--wait", type=float, default=300, help="seconds to wait for a quiet machine")
    parser.add_argument("--busy", action="store_true", help="do not wait, keep nothing")
    return parser.parse_args(words), own


def compare(arguments, options, folder):
    program = BUILD / "shiftron"
    require_program(program)
    words, step = make_model(program, arguments, options, folder)
    data = arguments.data or folder / "items"
    if not arguments.data:
        write_items(words, data, arguments.items)
    write_tasks(data, folder / "tasks")
    if not arguments.busy:
        wait_until_quiet(arguments.wait)
    ours = [Ours(precision, ranks, threads, step, data, arguments) for precision in PRECISIONS
            for ranks, threads in dict.fromkeys(((1, arguments.threads), (1, 1), (2, 1)))]
    theirs = [Theirs(precision, folder, arguments) for precision in PRECISIONS]
    results = {shape: measure(shape, ours, theirs, arguments) for shape in arguments.shape or SHAPES}
    versions = theirs[0].ready["versions"]
    for side in ours + theirs:
        side.end()
    for shape, result in results.items():
        if arguments.whole_rounds > 0:
            result["whole_seconds"] = whole_commands(program, shape, result, step, data, folder, arguments)
        show(arguments.model, shape, result)
    return results, versions


def main():
    arguments, options = parse_arguments()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        results, versions = compare(arguments, options, pathlib.Path(folder))
    for shape, result in results.items():
        for side, difference in result["differences"].items():
            if "fp32" in side and not difference <= TOLERANCE:  # NaN too
                raise Fault(f"{shape}: log-likelihoods of {side} differ from the harness's by {difference:.1e}, more than {TOLERANCE:.0e}")
    if arguments.busy:
        return
    cores = max(result["other_cores"] for result in results.values())
    form = "vanilla" if arguments.vanilla else "kv-shift"
    command = command_text(["build/lm-eval/bin/python", "benchmarks/evaluate_vs_harness.py", *sys.argv[1:]])
    name = f"evaluate-vs-harness-{arguments.model}-{form}" + (f"-{arguments.label.replace(' ', '-')}" if arguments.label else "")
    keep(name, "evaluate_vs_harness", command, cores,
         {"model": arguments.model, "vanilla": arguments.vanilla, "label": arguments.label, "threads": arguments.threads, "result": results}, versions)


if __name__ == "__main__":
    try:
        main()
    except Fault as fault:
        sys.exit(f"evaluate_vs_harness: {fault}")
