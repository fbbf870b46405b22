#!/usr/bin/env python3
"""`shiftron tokenizer export`: tokenizers and transformers give the same ids as the program, for a bpe and a unigram model."""
import json
import pathlib
import random
import re
import shutil
import struct
import sys
import tempfile
import unittest

import tokenizers
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "system"))
from harness import ROOT, shiftron  # noqa: E402
from tokenizer_cases import HARD, numbers_of, random_strings  # noqa: E402

class Tokenizer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="shiftron-interchange-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.text = cls.folder / "text.txt"
        cls.text.write_text("\n".join(path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]))
        cls.strings = HARD + list(random_strings(10000))

    @classmethod
    def must(cls, *words):
        result = shiftron(*words)
        if result.returncode != 0:
            raise AssertionError(f"{words}: {result.stdout}{result.stderr}")
        return result

    @staticmethod
    def piece_field(text, kind, score=0.0):
        """A further piece of a model that ends there; kind: 3 control, 4 user-defined, 5 unused (sentencepiece_model.proto)."""
        text = text.encode()
        fields = b"\x0a" + bytes([len(text)]) + text + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind])
        return b"\x0a" + bytes([len(fields)]) + fields

    def exported(self, kind):
        model, directory = self.folder / f"{kind}.model", self.folder / kind
        self.must("tokenizer", "train", "--input", self.text, "--vocab", 1024, "--kind", kind, "--output", model)
        self.must("tokenizer", "export", model, "--output", directory)
        return model, directory

    def check(self, kind):
        model, directory = self.exported(kind)
        shutil.copyfile(model, directory / "tokenizer.model")  # as an exported model has it; must not be preferred
        raw = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        fast = transformers.AutoTokenizer.from_pretrained(directory)
        self.assertEqual(fast.eos_token_id, 1)
        self.assertEqual(len(fast), raw.get_vocab_size())
        found = numbers_of(model, [raw.id_to_token(token) for token in range(raw.get_vocab_size())], self.strings, self.folder)
        strings, ours = list(found), list(found.values())
        self.assertGreater(len(strings), 9000)
        self.assertEqual((raw.encode("").ids, fast("")["input_ids"]), ([], []))
        wrong = {"tokenizers": [], "transformers": []}
        theirs = {"tokenizers": [found.ids for found in raw.encode_batch(strings)],
                  "transformers": fast(strings)["input_ids"]}
        for name, found in theirs.items():
            for string, one, other in zip(strings, ours, found):
                if one != other:
                    wrong[name].append((string, one, other))
        hard = set(HARD)
        for name, found in wrong.items():
            print(f"{kind}, {name}: {len(found)} of {len(strings)} strings differ, "
                  f"{sum(string in hard for string, _, _ in found)} of them hard ones")
            for string, one, other in found[:3]:
                print(f"  {string!a}\n    ours   {one}\n    theirs {other}")
        for string, one in zip(strings, ours):
            self.assertEqual(fast.decode(one, skip_special_tokens=True), string)
            self.assertEqual(raw.decode(one), string)
        return wrong, len(strings)

    def test_bpe(self):
        wrong, count = self.check("bpe")
        for found in wrong.values():
            self.assertLessEqual(len(found), count // 1000)
            self.assertEqual([string for string, _, _ in found if string in HARD], [])
        self.assertGreater(len(HARD), 60)

    def test_unigram(self):
        wrong, count = self.check("unigram")
        scores = [score for _, score in json.loads((self.folder / "unigram" / "tokenizer.json").read_text())["model"]["vocab"]]
        for found in wrong.values():
            self.assertLessEqual(len(found), count // 50)
            # A run of one character may be cut into the same pieces in another order, whose scores add up to the same.
            self.assertEqual([string for string, one, other in found if string in HARD and sorted(one) != sorted(other)], [])
            for string, one, other in found:  # only cuts that are equally good: sums of fp32 there, of fp64 here
                self.assertAlmostEqual(sum(scores[token] for token in one), sum(scores[token] for token in other), 3, string)

    def test_further_pieces(self):
        pieces = [("<|im_start|>", 4), ("\r\n", 4), ("foo bar", 4), ("\n\n", 4), ("\t\u2581", 4), ("<|im_end|>", 3), ("\u2581\u2581\u2581", 4),
                  ("q~~q", 5), ("\u20ac", 5)]
        texts = [text.replace("\u2581", " ") for text, _ in pieces] + ["<s>", "</s>", "<unk>", "<0x41>", "\n"]
        mixed = [one + other for one in texts for other in texts] + [f"a {text} b" for text in texts] + HARD
        draw = random.Random(5)
        mixed += ["".join(draw.choice([*texts, "the ", "x", " ", "foo", "\r", "|", "<"]) for _ in range(9)) for _ in range(2000)]
        for kind in ("bpe", "unigram"):
            plain, model, directory = self.folder / f"{kind}-plain.model", self.folder / f"{kind}-more.model", self.folder / f"{kind}-more"
            # Letters alone: no piece but the user's has a "<".
            words = self.folder / "words.txt"
            words.write_text(re.sub(" +", " ", re.sub("[^a-z \n]", "", self.text.read_text())))
            self.must("tokenizer", "train", "--input", words, "--vocab", 600, "--kind", kind, "--output", plain)
            # One that others overlap may be cut otherwise by a unigram model, as is documented.
            given = [(text.replace("\u2581\u2581\u2581", "~\u2581~") if kind == "unigram" else text, number) for text, number in pieces]
            model.write_bytes(plain.read_bytes() + b"".join(self.piece_field(text, number) for text, number in given))
            self.must("tokenizer", "export", model, "--output", directory)
            fast = transformers.AutoTokenizer.from_pretrained(directory)
            names = [piece["piece"].replace("\u2581", " ")
                     for piece in json.loads(self.must("tokenizer", "inspect", model, "--pieces", 700, "--json").stdout)["pieces"]]
            self.assertEqual(fast.convert_tokens_to_ids("<|im_start|>"), names.index("<|im_start|>"))
            found = numbers_of(model, names, mixed, self.folder)
            strings, ours = list(found), list(found.values())
            wrong = [(string, one, other) for string, one, other in zip(strings, ours, fast(strings)["input_ids"]) if one != other]
            for row in wrong[:3]:
                print(kind, *map(ascii, row), sep="\n  ")
            # Cuts of a unigram model that are equally good: the same pieces in another order.
            self.assertEqual([row for row in wrong if kind == "bpe" or sorted(row[1]) != sorted(row[2])][:3], [], kind)

    def test_an_existing_directory_is_refused(self):
        model, directory = self.folder / "again.model", self.folder / "again"
        self.must("tokenizer", "train", "--input", self.text, "--vocab", 400, "--output", model)
        directory.mkdir()
        result = shiftron("tokenizer", "export", model, "--output", directory)
        self.assertEqual(result.returncode, 76)
        self.assertIn("already exists", result.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.glob("again*")), ["again", "again.model"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
