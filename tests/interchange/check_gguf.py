#!/usr/bin/env python3
"""Models that the program trained, run by llama.cpp: logits against float64, greedy text against `shiftron generate`, and the tokenizer's
ids.

    tests/interchange/run check_gguf.py llama_cpp h5py numpy
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy
from llama_cpp import Llama

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "system"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tokenizer"))
import reference  # noqa: E402
from hard_texts import HARD as HARD_TEXTS, random_texts  # noqa: E402
from harness import MODEL, PROGRAM, ROOT, environment, options, scaled, shiftron, step  # noqa: E402
from read_checkpoint import read_step  # noqa: E402
from tokenizer_cases import HARD, numbers_of, random_strings  # noqa: E402
from tokenizer_json_cases import BYTE_FALLBACK, BYTE_LEVEL  # noqa: E402

STEPS = 3
VOCAB = 1024  # of the tokenizers
SPACE_MARK = "\u2581"  # which llama.cpp takes for a space
CASES = {
    "bpe": {"model.vocab": VOCAB},
    "padded": {"model.vocab": VOCAB + 7, "model.tie_embeddings": "true", "model.kv_heads": 4},
    "unigram": {"model.vocab": VOCAB, "model.head_dim": 12, "model.kv_heads": 1, "model.ffn": 96},
}
UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}  # half a unit in the last place, of what is near 1


def must(*words):
    result = shiftron(*words)
    if result.returncode != 0:
        raise AssertionError(f"{words}: {result.stdout}{result.stderr}")
    return result.stdout


class TokenizerJson(unittest.TestCase):
    """tokenizer.json: ids of llama.cpp against those of `tokenizer encode`, which check_conformance.py compares with the package."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="shiftron-interchange-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.texts = HARD_TEXTS + list(random_texts(2000))
        (cls.folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in cls.texts))

    def exported(self, name, content, *choice):
        """(llama.cpp's model, the file's size, ids of every text, what the export says of differences)"""
        folder = self.folder / name.replace(" ", "-")
        folder.mkdir()
        tokenizer = folder / "tokenizer.json"
        tokenizer.write_text(json.dumps(content))
        ends = [token["content"] for token in content["added_tokens"] if token["special"]]
        choice = choice or ["--beginning-of-document", "none", "--end-of-document=" + ends[-1]]
        must("data", "build", "--input", self.folder / "texts.jsonl", "--tokenizer", tokenizer, *choice, "--output", folder / "data")
        must("train", *options({**MODEL, "train.steps": 1, "model.vocab": 2048, "shift.key": 0, "shift.value": 0, "data.train": folder / "data",
                                "output.directory": folder / "run"}))
        answer = json.loads(must("checkpoint", "export", step(folder / "run", 1), "--format", "gguf", "--output", folder / "m.gguf", "--json"))
        lines = must("tokenizer", "encode", tokenizer, *choice, "--input", self.folder / "texts.jsonl").splitlines()
        model = Llama(str(folder / "m.gguf"), vocab_only=True, verbose=False)
        return model, [json.loads(line) for line in lines], answer.get("note", "")

    def test_ids(self):
        for name, (content, is_similar) in {**BYTE_LEVEL, **BYTE_FALLBACK}.items():
            model, ours, note = self.exported(name, content)
            self.assertEqual("ids of llama.cpp may differ" in note, is_similar, f"{name}: {note}")
            theirs = [model.tokenize(text.encode(), add_bos=True, special=False) for text in self.texts]
            wrong = [row for row in zip(self.texts, ours, theirs) if row[1] != row[2]]
            print(f"ids of {name}: {len(wrong)} of {len(self.texts)} texts differ")
            for text, one, other in wrong[:3]:
                print(f"  {ascii(text)[:200]}\n    ours   {str(one)[:200]}\n    theirs {str(other)[:200]}")
            self.assertLessEqual(len(wrong), len(self.texts) // 8 if is_similar else 0, name)

    def test_tokens_at_the_ends(self):
        content = BYTE_LEVEL["llama-bpe"][0]
        model, ours, _ = self.exported("ends", content, "--end-of-document", "<|eot_id|>")
        ids = {token["content"]: token["id"] for token in content["added_tokens"]}
        self.assertEqual((model.token_bos(), model.token_eos()), (ids["<|begin_of_text|>"], ids["<|eot_id|>"]))
        self.assertEqual(model.tokenize(b"a", add_bos=True, special=False), [ids["<|begin_of_text|>"], *ours[self.texts.index("a")]])
        self.assertEqual(model.tokenize(b"<|eot_id|>", add_bos=False, special=True), [ids["<|eot_id|>"]])


class Gguf(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="shiftron-interchange-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        text = "\n".join(path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
        (cls.folder / "text.txt").write_text(text)
        cls.made = {}

    def trained(self, case):
        """(step, file in f32)"""
        if case not in self.made:
            kind = "unigram" if case == "unigram" else "bpe"
            tokenizer, data, run = (self.folder / f"{case}{ending}" for ending in (".model", "-data", "-run"))
            must("tokenizer", "train", "--input", self.folder / "text.txt", "--vocab", VOCAB, "--kind", kind, "--output", tokenizer)
            must("data", "build", "--input", self.folder / "text.txt", "--tokenizer", tokenizer, "--output", data)
            # Wide initial matrices: all rows of a small model otherwise look the same, and mistakes would not show.
            must("train", *options({**MODEL, "train.steps": STEPS, "optimizer.learning_rate": "1e-3", "data.train": data, "shift.key": 0, "shift.value": 0,
                                    "model.init_std": 0.2, "output.directory": run, **CASES[case]}))
            self.made[case] = (step(run, STEPS), self.export(case, step(run, STEPS), "f32"))
        return self.made[case]

    def export(self, case, directory, precision):
        file = self.folder / f"{case}-{precision}.gguf"
        answer = json.loads(must("checkpoint", "export", directory, "--format", "gguf", "--output", file, "--precision", precision, "--json"))
        self.assertEqual(answer["bytes"], file.stat().st_size)
        self.assertEqual("note" in answer, case == "unigram")
        return file

    @staticmethod
    def load(file, **more):
        # Keys and values are kept in float32 (ggml's type 0), not in float16.
        return Llama(str(file), n_ctx=128, n_threads=1, n_threads_batch=1, logits_all=True, type_k=0, type_v=0, verbose=False, **more)

    def logits(self, file, ids):
        model = self.load(file)
        model.eval(ids.tolist())
        return numpy.array(model.scores[:len(ids)], dtype=numpy.float64)

    # First order, in the worst case: a sum of n products is off by (n + 1) units of rounding of its largest term's size, and
    # thirteen operations of a layer, the norm in front of the head and the head follow each other.
    @staticmethod
    def bound(config, unit):
        longest = max(config["model"][key] for key in ("hidden", "ffn"))
        return (13 * config["model"]["layers"] + 2) * (longest + 1) * unit

    def test_logits_are_those_of_the_reference(self):
        for case in CASES:
            directory, file = self.trained(case)
            found = read_step(directory)
            ids = numpy.random.default_rng(3).integers(3, VOCAB, 48)
            expected = reference.logits(found.parameters, found.configuration, ids)[:, :VOCAB]  # the file has the tokenizer's tokens alone
            largest = numpy.abs(expected).max()
            self.assertGreater(largest, 0.5)
            error = numpy.abs(self.logits(file, ids) - expected).max() / largest
            bound = self.bound(found.configuration, UNIT["f32"])
            print(f"logits of {case}: {error:.1e} of the largest, {bound:.1e} allowed")
            self.assertLess(error, bound, case)
            # A rotation of the other channels, or of another base, is far outside of it.
            other = dict(found.configuration, model={**found.configuration["model"], "rope_base": 5e4})
            changed = reference.logits(found.parameters, other, ids)[:, :VOCAB]
            self.assertGreater(numpy.abs(changed - expected).max() / largest, 3 * bound)

    def test_halves_are_near(self):
        directory, _ = self.trained("bpe")
        found = read_step(directory)
        ids = numpy.random.default_rng(3).integers(3, VOCAB, 48)
        expected = reference.logits(found.parameters, found.configuration, ids)
        for precision in ("f16", "bf16"):
            error = self.logits(self.export("bpe", directory, precision), ids) - expected
            size = numpy.linalg.norm(error) / numpy.linalg.norm(expected)
            print(f"logits in {precision}: {size:.1e} of their length")
            # Weights and, in ggml's products, activations are rounded at random: in each of the operations of the bound above.
            self.assertLess(size, UNIT[precision] * 2 * (13 * found.configuration["model"]["layers"] + 2) ** 0.5)

    def test_greedy_text_is_that_of_generate(self):
        for case in CASES:
            directory, file = self.trained(case)
            words = [PROGRAM, "generate", "--checkpoint", str(directory), "--prompt", "The taps of a", "--tokens", "24"]
            text = subprocess.run(words, capture_output=True, env=environment(), check=True, timeout=scaled(60)).stdout  # any bytes
            model = self.load(file)
            ids = model.tokenize(b"The taps of a", add_bos=True, special=False)
            prompt = list(ids)
            for token in model.generate(prompt, temp=0.0, top_k=1, repeat_penalty=1.0):
                if token == model.token_eos() or len(ids) == len(prompt) + 24:
                    break
                ids.append(token)
            self.assertGreater(len(set(ids[len(prompt):])), 3, case)
            theirs = model.detokenize(ids, special=False)
            self.assertGreater(len(theirs), len(b"The taps of a") + 20)
            self.assertEqual(text.rstrip(b"\n"), theirs.rstrip(b"\n"), case)

    def numbers(self, case):
        """(string, ours, theirs) of every string."""
        _, file = self.trained(case)
        model = self.load(file)
        self.assertEqual(model.token_eos(), 1)
        tokenizer = self.folder / f"{case}.model"
        names = [piece["piece"] for piece in json.loads(must("tokenizer", "inspect", tokenizer, "--pieces", VOCAB, "--json"))["pieces"]]
        ours = numbers_of(tokenizer, [name.replace(SPACE_MARK, " ") for name in names], HARD + list(random_strings(2000)), self.folder)
        self.assertGreater(sum(string in ours for string in HARD), 60)
        self.assertEqual(model.tokenize(b"", add_bos=True), [])
        return [(string, ids, model.tokenize(string.encode(), add_bos=True, special=False)) for string, ids in ours.items()], names

    def report(self, case, wrong, count):
        print(f"ids of {case}: {len(wrong)} of {count} strings differ, {sum(string in HARD for string, _, _ in wrong)} of them hard ones")
        for string, ours, theirs in wrong[:3]:
            print(f"  {string!a}\n    ours   {ours}\n    theirs {theirs}")

    def test_bpe_numbers(self):
        for case in ("bpe", "padded"):
            found, _ = self.numbers(case)
            wrong = [row for row in found if row[1] != row[2] and SPACE_MARK not in row[0]]
            self.report(case, wrong, len(found))
            self.assertEqual(wrong, [])
            marked = [row for row in found if SPACE_MARK in row[0]]
            self.assertTrue(all(ours != theirs for _, ours, theirs in marked) and marked)  # as it is documented

    def test_unigram_numbers(self):
        found, names = self.numbers("unigram")
        is_byte = [len(name) == 6 and name.startswith("<0x") for name in names]
        whole = [row for row in found if not any(is_byte[token] for token in row[1]) and SPACE_MARK not in row[0]]
        wrong = [row for row in whole if row[1] != row[2]]
        self.report("unigram, characters with a piece", wrong, len(whole))
        self.assertGreater(len(whole), 500)
        self.assertLessEqual(len(wrong), len(whole) // 50)  # cuts that are equally good
        others = [row for row in found if any(is_byte[token] for token in row[1])]
        self.report("unigram, characters without one", [row for row in others if row[1] != row[2]], len(others))

    def test_without_a_tokenizer(self):
        directory, file = self.trained("bpe")
        model, run, bare = (self.folder / name for name in ("bare", "bare-run", "bare.gguf"))
        must("checkpoint", "export", directory, "--format", "hf", "--output", model)
        for name in ("tokenizer.model", "tokenizer.json"):
            (model / name).unlink()
        must("checkpoint", "import", model, "--format", "hf", "--output", run)
        must("checkpoint", "export", step(run, 0), "--format", "gguf", "--output", bare, "--precision", "f32")
        ids = numpy.random.default_rng(4).integers(3, VOCAB, 20)
        self.assertTrue((self.logits(bare, ids) == self.logits(file, ids)).all())

    def test_a_shift_is_refused(self):
        run = self.folder / "shifted"
        self.trained("bpe")
        must("train", *options({**MODEL, "train.steps": 1, "data.train": self.folder / "bpe-data", "model.vocab": VOCAB,
                                "output.directory": run}))
        result = shiftron("checkpoint", "export", step(run, 1), "--format", "gguf", "--output", self.folder / "shifted.gguf")
        self.assertEqual(result.returncode, 76)
        self.assertIn("--format hf", result.stderr)
        self.assertEqual(list(self.folder.glob("shifted.gguf*")), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
