#!/usr/bin/env python3
"""Takes small Llamas with byte-level tokenizers, made by transformers, through the program and back: `checkpoint import`, `data build`, `train`,
`checkpoint export`. Compares token ids, logits, generated tokens and benchmark answers with those of transformers and lm-evaluation-harness 0.4.13.

byte_level_round_trip [--kind NAME,…] [--keep DIR]

needs `pip install "lm_eval[hf]==0.4.13"` with torch, and the program (build/release/shiftron, or SHIFTRON); no network.
--kind: of KINDS below (default: all). --keep DIR: models, runs and reports stay there. Exit code 1 if anything differs.
"""
import argparse
import collections
import json
import pathlib
import shutil
import sys

import lm_eval_parity  # first: it sets the environment for the packages below
import lm_eval_tasks
import torch
from harness import ROOT, SystemTest, lines, options, shiftron, step
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

sys.path.append(str(ROOT / "tests/tokenizer"))
import families  # noqa: E402
from hard_texts import HARD, random_texts  # noqa: E402

RANDOM_TEXTS = 229  # next to those of HARD
LOGITS = 1e-5  # how far logits may differ before training
STEPS, LENGTH, POSITIONS = 60, 128, 512
PROMPTS = ["The model reads", " tokens of a", "Zürich, 日本語:", "def f(x):\n    ", "1234567 + 89 ="]
NEW_TOKENS = 40
TASKS = ["lambada_openai", "winogrande", "hellaswag", "arc_easy", "piqa", "boolq", "triviaqa", "gsm8k", "mmlu_sociology", "cmmlu_logical",
         "hendrycks_math_algebra", "wikitext"]
DRAWN = [task for task in TASKS if task not in ("lambada_openai", "wikitext")]  # those that take examples
# family of tests/tokenizer/families.py, seed of the weights, the tokenizer's tokens, further tokens that end a text, rows that the vocabulary is
# padded to a multiple of, settings of LlamaConfig, and what lm_eval_parity.py evaluates: examples, tokens that the model reads, beginning token
Kind = collections.namedtuple("Kind", "family seed tokens more_ends padding settings cases")
KINDS = {
    "gpt-2": Kind(families.gpt_2, 1, {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}, [], 1, {"tie_word_embeddings": True},
                  [(TASKS, None, POSITIONS, None), (DRAWN, 2, 160, None)]),
    "llama-3": Kind(families.llama_3, 2, {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}, ["<|eot_id|>"], 1,
                    {"rope_theta": 500000.0}, [(TASKS, None, POSITIONS, None), (DRAWN, 2, 160, None), (TASKS, None, POSITIONS, False),
                                               (TASKS, None, POSITIONS, True)]),
    "qwen-2": Kind(families.qwen_2, 3, {"eos_token": "<|endoftext|>"}, ["<|im_end|>"], 64, {"num_key_value_heads": 1},
                   [(TASKS, None, POSITIONS, None), (DRAWN, 2, 160, None)]),
}


class Faults(list):
    def unless_equal(self, what, found, expected):
        if found != expected:
            self.append(f"{what}: {ascii(found)[:300]}, expected {ascii(expected)[:300]}")


def make_model(kind, folder):
    """The model and the tokenizer, as transformers saves them, with random weights."""
    text = [line for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] for line in page.read_text().splitlines(keepends=True)]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(families.trained(kind.family, text))), **kind.tokens)
    end = tokenizer.eos_token_id
    ends = [end, *tokenizer.convert_tokens_to_ids(kind.more_ends)]
    config = LlamaConfig(**{"vocab_size": -(-len(tokenizer) // kind.padding) * kind.padding, "hidden_size": 64, "intermediate_size": 160,
                            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": POSITIONS,
                            "initializer_range": 0.1, "bos_token_id": tokenizer.bos_token_id, "eos_token_id": ends if kind.more_ends else end,
                            **kind.settings})
    torch.manual_seed(kind.seed)
    LlamaForCausalLM(config).float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load(folder):
    model, report = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    if wrong := {what: names for what, names in report.items() if names}:
        raise AssertionError(f"{folder}: {wrong}")
    return model.eval()


def compare_ids(original, exported, trained, folder, faults):
    """The number of texts, each with names of special tokens as text, and as tokens."""
    texts = list(dict.fromkeys(HARD + list(random_texts(RANDOM_TEXTS))))
    inputs = folder / "texts.jsonl"
    inputs.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    tokenizers = [AutoTokenizer.from_pretrained(path) for path in (original, exported)]
    for splits in (True, False):  # names of special tokens
        answer = SystemTest.must(shiftron("tokenizer", "encode", trained, "--input", inputs, *([] if splits else ["--special-text"])))
        bare, whole = ([[tokenizer(text, add_special_tokens=adds, split_special_tokens=splits)["input_ids"] for text in texts]
                        for tokenizer in tokenizers] for adds in (False, True))
        mine = [json.loads(line) for line in answer.splitlines()]
        faults.unless_equal("number of encoded texts", len(mine), len(texts))
        for text, own, expected, of_export, begun, of_export_begun in zip(texts, mine, *bare, *whole):
            where = f"ids of {ascii(text)[:100]} with names of special tokens as {'text' if splits else 'tokens'}"
            faults.unless_equal(f"{where}, by the program", own, expected)
            faults.unless_equal(f"{where}, by the export", of_export, expected)
            faults.unless_equal(f"{where} with a beginning, by the export", of_export_begun, begun)
    return len(texts)


@torch.no_grad()
def compare_logits(original, exported, faults):
    """The largest difference."""
    models = [load(path) for path in (original, exported)]
    ids = torch.randint(models[0].config.vocab_size, (4, LENGTH), generator=torch.Generator().manual_seed(5))
    one, other = (model(ids).logits for model in models)
    far = (one - other).abs().max().item()
    if not far <= LOGITS:
        faults.append(f"logits of the export differ by {far:.3g}, of {one.abs().max().item():.3g}")
    return far


@torch.no_grad()
def compare_generated(original, exported, trained, folder, faults):
    """The number of tokens. The program stops only at the tokenizer's own end."""
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS))
    answer = SystemTest.must(shiftron("generate", "--checkpoint", trained, "--prompts", prompts, "--tokens", NEW_TOKENS, "--json"))
    tokenizer, model = AutoTokenizer.from_pretrained(original), load(exported)
    mine = [json.loads(line) for line in answer.splitlines()]
    faults.unless_equal("prompts that were continued", [one["prompt"] for one in mine], PROMPTS)
    count = 0
    for one in mine:
        ids = tokenizer(one["prompt"], return_tensors="pt")["input_ids"]
        made = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS,
                              eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.eos_token_id)[0, ids.shape[1]:].tolist()
        ended = made[-1] == tokenizer.eos_token_id
        expected = made[:-1] if ended else made
        faults.unless_equal(f"whether a continuation of {one['prompt']!r} ended", one["ended"], ended)
        faults.unless_equal(f"continuation of {one['prompt']!r}", one["ids"], expected)
        faults.unless_equal(f"text that continues {one['prompt']!r}", one["text"], tokenizer.decode(expected))
        count += len(made)
    return count


def compare_facts(original, exported, faults):
    """What the export keeps of the files that the model came with."""
    faults.unless_equal("tokenizer.json of the export", *((path / "tokenizer.json").read_bytes() for path in (exported, original)))
    one, other = (json.loads((path / "config.json").read_text()) for path in (exported, original))
    for key in ("vocab_size", "eos_token_id", "bos_token_id", "max_position_embeddings", "tie_word_embeddings"):
        faults.unless_equal(f"{key} of the export", one[key], other[key])


class Corpus(SystemTest):
    """A text."""


def make_data(name, imported, original, faults):
    """A dataset of the corpus by the tokenizer of the imported step."""
    Corpus.make_data(f"data-{name}", imported)
    data = Corpus.folder / f"data-{name}" / "train"
    description = json.loads((data / "dataset.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(original)
    begun, bare = (tokenizer("a", add_special_tokens=adds)["input_ids"] for adds in (True, False))
    faults.unless_equal("token that begins documents", description.get("beginning_of_document"), begun[0] if begun != bare else None)
    faults.unless_equal("token that ends documents", description["end_of_document"], tokenizer.eos_token_id)
    return data


def trained_further(run, data):
    """The step, and the losses of the first and the last one."""
    SystemTest.must(shiftron("train", "--config", run / "config.conf", *options({
        "data.train": data, "output.directory": run, "train.global_batch": 4, "train.sequence_length": LENGTH, "train.steps": STEPS,
        "optimizer.learning_rate": "5e-3", "checkpoint.every": STEPS, "device.threads": 1, "output.log_every": 1}), timeout=300))
    losses = [line["loss"] for line in lines(run / "metrics.jsonl") if "loss" in line]
    if not losses[-1] < losses[0] - 1:  # what did not learn would compare as well as what did
        raise AssertionError(f"{run}: the loss is {losses[0]} first and {losses[-1]} last")
    return step(run, STEPS), losses[0], losses[-1]


def export(of_step, output):
    SystemTest.must(shiftron("checkpoint", "export", of_step, "--format", "hf", "--output", output))
    return output


def round_trip(name, folder):
    """The trained step, its export, a row of the first table, and what differs."""
    kind, faults = KINDS[name], Faults()
    original, run = folder / "original", folder / "run"
    make_model(kind, original)
    SystemTest.must(shiftron("checkpoint", "import", original, "--format", "hf", "--output", run))
    untrained = export(step(run, 0), folder / "untrained")
    far = compare_logits(original, untrained, faults)
    compare_facts(original, untrained, faults)
    trained, first, last = trained_further(run, make_data(name, step(run, 0), original, faults))
    exported = export(trained, folder / "exported")
    compare_facts(original, exported, faults)
    texts = compare_ids(original, exported, trained, folder, faults)
    tokens = compare_generated(original, exported, trained, folder, faults)
    return trained, exported, [name, texts, f"{far:.1e}", f"{first:.2f}", f"{last:.2f}", tokens, len(faults)], faults


def benchmarks(trained, exported, case, outputs, include):
    """A row of the second table, and what differs."""
    tasks, fewshot, length, begun = case
    lm_eval_parity.ours(trained, tasks, fewshot, length, begun, None, lm_eval_tasks.HUB, outputs[0])
    lm_eval_parity.theirs(exported, tasks, fewshot, length, begun, None, include, outputs[1])
    found = lm_eval_parity.compare(*outputs)
    words = f"{outputs[0].parent.name}, {'no' if fewshot is None else fewshot} examples, {length} tokens, beginning {begun}"
    return [words, found.items, found.answers, f"{found.widest:.1e}", found.flags, len(found.near_ties), found.texts, found.numbers,
            f"{found.widest_number:.1e}", len(found.faults)], [f"{words}: {fault}" for fault in found.faults]


def show(head, rows):
    """Prints a table, after all that the harness prints meanwhile; the result: what differs."""
    faults, rows = [], list(rows)
    print(head + "\n|---|" + "--:|" * (head.count("|") - 2), flush=True)
    for row, found in rows:
        print("| " + " | ".join(map(str, row)) + " |", flush=True)
        faults += found
    for fault in faults[:60]:
        print(fault, flush=True)
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default=",".join(KINDS))
    parser.add_argument("--keep", type=pathlib.Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # the models are tiny
    names = [name for name in chosen.kind.split(",") if name]
    if not names:
        parser.error("--kind is empty")
    if unknown := [name for name in names if name not in KINDS]:
        parser.error(f"--kind {unknown[0]} is none of {', '.join(KINDS)}")
    folder = chosen.keep or pathlib.Path(lm_eval_parity.HOME) / "round-trip"
    include = folder / "tasks"
    include.mkdir(parents=True, exist_ok=True)
    Corpus.setUpClass()
    try:
        lm_eval_tasks.write_tasks(include)
        models = {}

        def round_trips():
            for name in names:
                *models[name], row, faults = round_trip(name, folder / name)
                yield row, [f"{name}: {fault}" for fault in faults]

        faults = show("| tokenizer | texts | logits differ by | first loss | last | generated tokens | faults |", round_trips())
        faults += show("| benchmarks | items | answers | widest | greedy | differ | texts | numbers | widest | faults |",
                       (benchmarks(*models[name], case, [folder / name / f"{side}-{number}" for side in ("ours", "theirs")], include)
                        for name in names for number, case in enumerate(KINDS[name].cases)))
        print(f"{len(faults)} differences")
        return 1 if faults else 0
    finally:
        Corpus.doClassCleanups()
        shutil.rmtree(lm_eval_parity.HOME, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
