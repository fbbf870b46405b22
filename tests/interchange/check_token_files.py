#!/usr/bin/env python3
"""Token files that NumPy, and where they are installed Megatron-LM and datatrove, write and read; the writer of docs/dataset-format.md; runs on data
without a tokenizer. What is expected is computed here from the ids."""
import json
import pathlib
import re
import sys
import unittest

import h5py
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "system"))
from harness import ROOT, SystemTest, options, shiftron, step  # noqa: E402

VOCAB, END = 300, 299
IDS = ["--vocab", VOCAB, "--end-of-document", END]


def documents(count, seed=1):
    draw = numpy.random.default_rng(seed)
    return [draw.integers(0, END, draw.integers(1, 90)) for _ in range(count)]


def closed(parts):
    return numpy.concatenate([numpy.append(part, END) for part in parts])


def rows_of(directory):
    """Tokens, targets or None, and where documents start, of all shards."""
    description = json.loads((directory / "dataset.json").read_text())
    tokens, targets, starts, before = [], [], [], 0
    for shard in description["shards"]:
        with h5py.File(directory / shard["file"], "r") as file:
            tokens.append(file["tokens"][:].astype(numpy.int64))
            starts += list(file["doc_start"][:-1] + before)
            if "targets" in file:
                values = file["targets"][:]
                targets.append(numpy.where(values == numpy.iinfo(values.dtype).max, -1, values.astype(numpy.int64)))
            before += len(tokens[-1])
    return numpy.concatenate(tokens), numpy.concatenate(targets) if targets else None, starts


class TokenFiles(SystemTest):
    def import_(self, name, *words):
        out = self.must(shiftron("data", "import", *words, *IDS, "--output", self.folder / name, "--json"))
        self.assertIn("no fault", self.must(shiftron("data", "verify", self.folder / name)))
        return rows_of(self.folder / name), json.loads(out)

    def test_npy(self):
        parts = documents(200)
        numpy.save(self.folder / "a.npy", closed(parts[:120]).astype("u2"))
        numpy.save(self.folder / "b.npy", closed(parts[120:]).astype("i8"))
        (tokens, _, starts), made = self.import_("npy", self.folder / "a.npy", self.folder / "b.npy", "--shard-tokens", 2000)
        self.assertTrue(numpy.array_equal(tokens, closed(parts)))
        self.assertEqual(starts, list(numpy.cumsum([0] + [len(part) + 1 for part in parts[:-1]])))
        self.assertEqual([one["dtype"] for one in made["inputs"]], ["u16", "i64"])

    def test_memory_maps_without_a_header(self):
        """nanoGPT's .bin, and OLMo-core's .npy."""
        parts = documents(50)
        for name, kind in (("train.bin", "u2"), ("part-0.npy", "u4")):
            mapped = numpy.memmap(self.folder / name, kind, "w+", shape=len(closed(parts)))
            mapped[:] = closed(parts)
            mapped.flush()
            refused = shiftron("data", "import", self.folder / name, *IDS, "--output", self.folder / "refused")
            self.assertEqual(refused.returncode, 76)
            self.assert_printed_once(refused.stderr, "--format raw --dtype u16 (or u32)")
            refused = shiftron("data", "build", "--input", self.folder / name, "--tokenizer", self.folder / "tokenizer.model", "--output",
                               self.folder / "refused")
            self.assertEqual(refused.returncode, 76)
            self.assert_printed_once(refused.stderr, "shiftron data import --format raw --dtype u16")
            (tokens, _, _), _ = self.import_(f"raw-{name}", self.folder / name, "--format", "raw", "--dtype", f"u{8 * int(kind[1])}")
            self.assertTrue(numpy.array_equal(tokens, closed(parts)))

    def test_masks(self):
        """Targets by their definition: the next token, if the mask says that it is learned; the end token has none."""
        tokens = closed(documents(100))
        learned = numpy.random.default_rng(2).random(len(tokens)) < 0.4
        numpy.save(self.folder / "tokens.npy", tokens.astype("u2"))
        numpy.save(self.folder / "mask.npy", learned)
        (_, targets, _), made = self.import_("masked", self.folder / "tokens.npy", "--targets", self.folder / "mask.npy")
        expected = numpy.where(numpy.append(learned[1:], False) & (tokens != END), numpy.append(tokens[1:], -1), -1)
        self.assertTrue(numpy.array_equal(targets, expected))
        self.assertEqual(made["datasets"][0]["counted_targets"], int((expected >= 0).sum()))

    def test_megatron(self):
        """Its own builder writes, its own reader reads, and what comes back is equal bit for bit."""
        try:
            import torch
            from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
        except ImportError as error:
            self.skipTest(f"pip install megatron-core: {error}")
        parts = [numpy.append(part, END) for part in documents(150)]
        for kind in (numpy.uint16, numpy.int32):
            name = numpy.dtype(kind).name
            prefix, back = str(self.folder / f"megatron-{name}"), str(self.folder / f"back-{name}")
            builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=kind)
            for part in parts:
                builder.add_document(torch.tensor(part.astype(numpy.int64)), [len(part)])
            builder.finalize(f"{prefix}.idx")
            (tokens, _, _), _ = self.import_(f"dataset-{name}", prefix)
            self.assertTrue(numpy.array_equal(tokens, numpy.concatenate(parts)))
            self.must(shiftron("data", "export", self.folder / f"dataset-{name}", "--format", "megatron", "--output", back,
                               "--dtype", {"uint16": "u16", "int32": "i32"}[name]))
            for ending in (".bin", ".idx"):
                self.assertEqual(pathlib.Path(prefix + ending).read_bytes(), pathlib.Path(back + ending).read_bytes(), name + ending)
            read = IndexedDataset(back)
            self.assertEqual(len(read), len(parts))
            self.assertTrue(all(numpy.array_equal(read[i], part) for i, part in enumerate(parts)))
            self.assertEqual(list(read.document_indices), list(range(len(parts) + 1)))

    def test_datatrove(self):
        try:
            from datatrove.pipeline.tokens.tokenizer import TokenizedFile
        except ImportError as error:
            self.skipTest(f"pip install datatrove: {error}")
        parts = [numpy.append(part, END) for part in documents(150)]
        for size in (2, 4):
            folder = self.folder / f"datatrove-{size}"
            file = TokenizedFile(str(folder), "part.ds", save_loss_metadata=True, save_final_metadata=True, tokenizer_name_or_path="gpt2",
                                 token_size=size)
            for part in parts:
                file.write(part.tolist(), part % 3 != 0)
            file.close()
            (tokens, targets, _), made = self.import_(f"trove-{size}", folder / "part.ds")
            self.assertTrue(numpy.array_equal(tokens, numpy.concatenate(parts)))
            after = numpy.append(tokens[1:], 0)
            self.assertTrue(numpy.array_equal(targets, numpy.where((tokens != END) & (after % 3 != 0), after, -1)))
            self.assertEqual(made["inputs"][0]["dtype"], f"u{8 * size}")

    def test_the_writer_of_the_page(self):
        page = (ROOT / "docs" / "dataset-format.md").read_text(encoding="utf-8")
        code = re.search(r"## A writer in Python.*?```python\n(.*?)```", page, re.S).group(1)
        try:
            exec(code, names := {})
        except ImportError as error:
            self.skipTest(str(error))
        for vocabulary, kind in ((VOCAB, "u16"), (70000, "u32")):
            directory = self.folder / f"written-{kind}"
            parts = documents(3000)
            names["write_dataset"](directory, parts, vocabulary, END)
            self.assertIn("no fault", self.must(shiftron("data", "verify", directory)))
            self.assertTrue(numpy.array_equal(rows_of(directory)[0], closed(parts)))
            self.assertEqual(json.loads(self.must(shiftron("data", "inspect", directory, "--json")))["token_type"], kind)

    def test_a_run_keeps_the_end_of_documents(self):
        numpy.save(self.folder / "run.npy", closed(documents(200)).astype("u2"))
        self.import_("run-data", self.folder / "run.npy")
        settings = self.settings(self.folder / "run", data__train=self.folder / "run-data", train__steps=2, checkpoint__every=2)
        settings.pop("data.validation", None)
        self.must(shiftron("train", *options(settings)))
        made = step(self.folder / "run", 2)
        self.must(shiftron("checkpoint", "convert", made, "--layout", "tp=1,pp=1,dp=1", "--output", self.folder / "converted"))
        self.must(shiftron("checkpoint", "import", made, "--format", "shiftron", "--output", self.folder / "again"))
        for number, source in enumerate((made, step(self.folder / "converted", 2), step(self.folder / "again", 0))):
            exported = self.folder / f"exported-{number}"
            self.must(shiftron("checkpoint", "export", source, "--format", "hf", "--output", exported))
            self.assertEqual(json.loads((exported / "config.json").read_text())["eos_token_id"], END, source)
        # Data whose documents end with another token was made for another model.
        other = numpy.where(closed(documents(200)) == END, 7, 8).astype("u2")
        numpy.save(self.folder / "other.npy", other)
        self.must(shiftron("data", "import", self.folder / "other.npy", "--vocab", VOCAB, "--end-of-document", 7, "--output", self.folder / "other"))
        refused = shiftron("evaluate", "--checkpoint", made, "--data", self.folder / "other")
        self.assertEqual(refused.returncode, 76)
        self.assert_printed_once(refused.stderr, f"trained on documents that end with {END}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
