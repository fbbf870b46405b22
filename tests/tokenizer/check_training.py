#!/usr/bin/env python3
"""`shiftron tokenizer train --kind byte-bpe` against BpeTrainer of the package `tokenizers`: the same tokens and merges for the same text.

    SHIFTRON=build/release/shiftron check_training.py [--vocab N] [FILE.txt | FILE.jsonl …]

Without files: the documents of this repository, and texts that are hard for tokenizers.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from families import LLAMA_3, bytes_last, split
from hard_texts import HARD, random_texts
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHIFTRON = pathlib.Path(os.environ.get("SHIFTRON", ROOT / "build/release/shiftron")).resolve()
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def theirs(texts, vocab):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = bytes_last(split(LLAMA_3))
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, min_frequency=2, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())["model"]


def texts_of(path):
    if path.suffix == ".jsonl":
        return [json.loads(line)["text"] for line in path.read_text().splitlines() if line.strip()]
    return [path.read_text()]


def compare(name, paths, vocab, folder):
    output = folder / "tokenizer.json"
    words = ["tokenizer", "train", "--kind", "byte-bpe", "--vocab", vocab, "--output", output, "--input", *paths, "--special-tokens", *SPECIAL[1:]]
    result = subprocess.run([SHIFTRON, *map(str, words)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"{name}: {result.stderr}")
    ours = json.loads(output.read_text())["model"]
    expected = theirs([text for path in paths for text in texts_of(path)], vocab)
    pairs = list(zip(ours["merges"], expected["merges"]))
    first = next((index for index, (one, other) in enumerate(pairs) if one != other), None)
    print(f"{name}, {vocab} tokens: {len(ours['merges'])} merges here, {len(expected['merges'])} there; "
          f"{'all equal' if first is None else f'different from {first}: {pairs[first]}'}")
    Tokenizer.from_file(str(output))
    return ours["merges"] == expected["merges"] and ours["vocab"] == expected["vocab"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--vocab", type=int, default=4096)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        if arguments.files:
            equal = [compare("the files", arguments.files, arguments.vocab, folder)]
        else:
            hard = folder / "hard.jsonl"
            hard.write_text("".join(json.dumps({"text": text}) + "\n" for text in HARD * 3 + list(random_texts(3000)) if "\ud800" not in text))
            pages = sorted((ROOT / "docs").glob("*.md"))
            lines = folder / "lines.jsonl"
            lines.write_text("".join(json.dumps({"text": page.read_text()}) + "\n" for page in pages))
            equal = [compare(name, paths, vocab, folder) for name, paths, vocab in
                     (("pages", [lines], 400), ("pages", [lines], 5000), ("hard texts", [hard], 2500), ("both", [lines, hard], 8000))]
    print("equal" if all(equal) else "unequal")
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
