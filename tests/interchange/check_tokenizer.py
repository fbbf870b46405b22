#!/usr/bin/env python3
"""`shiftron tokenizer export`: tokenizers and transformers give the numbers that the program gives, for a bpe and a unigram model."""
import json
import pathlib
import random
import re
import shutil
import sys
import tempfile
import unittest

import numpy
import tokenizers
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "system"))
from harness import ROOT, shiftron  # noqa: E402

HARD = [
    "", " ", "  ", "   ", "a", " a", "a ", "  a  b  ", "a" + " " * 50 + "b", " " * 300, "\t", "\t\ta\r\n", "\r", "\n", "\n\n", "\n\n\n a\n",
    " \n \n", "a\nb", "a\n\nb ", "x\0y", "\0", "\x01\x7f", "\u2581", "a\u2581b", "\u2581\u2581 \u2581", " \u2581", "\u2585", "\u2585a\u2585",
    "</s>", "<s>", "<unk>", "<pad>", "a</s>b", "</s></s>", " </s> ", "<</s>>", "</s", "s>", "<unk><unk>", "<0x41>", "<0x0A>", "a<0xE2>b",
    "<0x", "<0x41", "0x41>", "<0x41><0x42>", "é", "e\u0301", "ﬁ", "Ａ", "ñandú", "日本語", "日本語 テスト", "العربية", "עברית", "हिन्दी", "😀",
    "👩‍👩‍👧‍👦", "🇩🇪", "\ufeff", "\ufefftext", "\u00a0", "\u3000", "\u200b", "\u2028", "a\u0000\u0000b", "\U0010ffff", "𝔘𝔫𝔦", "K\u212a", "ß", "İi", "Ǆ",
    "The quick brown fox", "the the the the", "aaaaaaaaaaaaaaaa", "ababababab", "----------", "==========", "1234567890", "3.14159e-10",
    "foo_bar(baz)[0] = {1: 2};", "if (x < 3) { y += 1; }\n\treturn;", "<html></s></html>", "http://a.b/c?d=e&f=g#h", "$$\\frac{a}{b}$$",
    "C:\\path\\to", "“quoted”", "a—b", "…", "don't", "tokenizer.model", "--shift.key 1", "\\u2581", "</ s>", "< unk >", "<|endoftext|>",
]
ALPHABETS = ["abcdefghij ", "theandofr  .,\n", "aab ", " \n\t", "<>/s0x41unkF ", "\u2581 a\u2585", "éüñß日本語😀 a", "-=`*#|_ ", "0123456789."]


def random_strings(count):
    draw = random.Random(11)
    words = [word + " " for path in sorted((ROOT / "docs").glob("*.md")) for word in path.read_text().split()]
    for _ in range(count):
        pieces = []
        for _ in range(draw.randrange(1, 5)):
            if draw.random() < 0.4:
                pieces.append("".join(draw.choice(words) for _ in range(draw.randrange(1, 6))))
            else:
                pieces.append("".join(draw.choice(draw.choice(ALPHABETS)) for _ in range(draw.randrange(1, 12))))
        yield "".join(pieces)


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

    def exported(self, kind):
        model, directory = self.folder / f"{kind}.model", self.folder / kind
        self.must("tokenizer", "train", "--input", self.text, "--vocab", 1024, "--kind", kind, "--output", model)
        self.must("tokenizer", "export", model, "--output", directory)
        return model, directory

    def ours(self, model, names):
        """{string: its numbers} through a dataset, which one call makes of all; `names`: what tokenizer.json calls each number."""
        source, data = self.folder / f"{model.stem}.jsonl", self.folder / f"{model.stem}-data"
        source.write_text("".join(json.dumps({"text": string}) + "\n" for string in self.strings))
        self.must("data", "build", "--input", source, "--tokenizer", model, "--output", data)
        described = json.loads((data / "dataset.json").read_text())
        self.assertEqual(described["token_type"], "u16")
        tokens = numpy.concatenate([numpy.fromfile(data / shard["file"], "<u2", shard["tokens"], offset=shard["tokens_offset"])
                                    for shard in described["shards"]])
        ends = numpy.flatnonzero(tokens == described["end_of_document"])
        bytes_of = [bytes([int(name[3:5], 16)]) if re.fullmatch("<0x[0-9A-F]{2}>", name) else name.encode() for name in names]
        found = {}
        for begin, end in zip([0, *(ends + 1)], ends):
            ids = tokens[begin:end].tolist()
            found[b"".join(bytes_of[token] for token in ids).decode()] = ids
        self.assertEqual(set(found), set(self.strings) - {""})  # documents without text are left out
        return found

    def check(self, kind):
        model, directory = self.exported(kind)
        shutil.copyfile(model, directory / "tokenizer.model")  # as an exported model has it; must not be preferred
        raw = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        fast = transformers.AutoTokenizer.from_pretrained(directory)
        self.assertEqual(fast.eos_token_id, 1)
        self.assertEqual(len(fast), raw.get_vocab_size())
        found = self.ours(model, [raw.id_to_token(token) for token in range(raw.get_vocab_size())])
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
            for string, one, other in found[:8]:
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

    def test_unigram(self):
        wrong, count = self.check("unigram")
        for found in wrong.values():
            self.assertLessEqual(len(found), count // 1000)
            self.assertEqual([string for string, _, _ in found if string in HARD], [])

    def test_an_existing_directory_is_refused(self):
        model, directory = self.folder / "again.model", self.folder / "again"
        self.must("tokenizer", "train", "--input", self.text, "--vocab", 400, "--output", model)
        directory.mkdir()
        result = shiftron("tokenizer", "export", model, "--output", directory)
        self.assertEqual(result.returncode, 76)
        self.assertIn("is there already", result.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.glob("again*")), ["again", "again.model"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
