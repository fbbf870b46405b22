#!/usr/bin/env python3
"""A reader written only from docs/dataset-format.md gives the samples that `data dump` gives; packing as that page defines it."""
import itertools
import json
import random
import struct
import unittest

from harness import VOCAB, SystemTest, lines, options, shiftron

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
BLEND = 65536
PACK = 24
END = VOCAB - 1


def mix(value):
    for turn in range(3):
        value ^= value >> 32
        if turn < 2:
            value = value * 0xD6E8FEB86659FD93 & MASK
    return value


def combine(key, value):
    return mix(key * GOLDEN + mix(value + GOLDEN & MASK) & MASK)


def permuted(index, size, key):
    half = max(4, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for turn in range(6):
            left, right = right, left ^ (mix(right + key + turn * GOLDEN & MASK) & mask)
        index = left << half | right
        if index < size:
            return index


class Reader:
    def __init__(self, directories, weights, length, seed, reset):
        self.length, self.seed, self.reset = length, seed, reset
        self.sources, self.targets = zip(*(self.rows_of(directory) for directory in directories))
        self.windows = [(len(tokens) - (targets is None)) // length for tokens, targets in zip(self.sources, self.targets)]
        weights = weights or self.windows
        shares = [weight / sum(weights) * BLEND for weight in weights]
        self.quotas = [int(share) for share in shares]
        by_remainder = sorted(range(len(shares)), key=lambda source: -(shares[source] - self.quotas[source]))
        for source in by_remainder[:BLEND - sum(self.quotas)]:
            self.quotas[source] += 1

    def rows_of(self, directory):
        """Tokens, and targets or None."""
        description = json.loads((directory / "dataset.json").read_text())
        assert description["version"] in (1, 2)
        self.end = description["end_of_document"]
        kind, highest = {"u16": ("H", 2**16 - 1), "u32": ("I", 2**32 - 1)}[description["token_type"]]
        has_targets = description["version"] > 1 and description["targets"]
        tokens, targets = [], []
        for shard in description["shards"]:
            content = (directory / shard["file"]).read_bytes()
            assert len(content) == shard["bytes"]
            tokens += struct.unpack_from(f"<{shard['tokens']}{kind}", content, shard["tokens_offset"])
            if has_targets:
                own = struct.unpack_from(f"<{shard['tokens']}{kind}", content, shard["targets_offset"])
                assert sum(target != highest for target in own) == shard["counted_targets"]
                targets += [-1 if target == highest else target for target in own]
        return tokens, targets if has_targets else None

    def key(self, use, first, second):
        return combine(combine(combine(combine(0, self.seed), use), first), second)

    def sample(self, number):
        source, item = 0, number
        if len(self.sources) > 1:
            block = number // BLEND
            place = permuted(number % BLEND, BLEND, self.key(2, block, 0))
            while place >= self.quotas[source]:
                place -= self.quotas[source]
                source += 1
            item = block * self.quotas[source] + place
        count = self.windows[source]
        first = permuted(item % count, count, self.key(1, source, item // count)) * self.length
        tokens, targets = self.sources[source], self.targets[source]
        rows = range(first, first + self.length)
        return ([tokens[row] for row in rows],
                [targets[row] if targets else -1 if self.reset and tokens[row] == self.end else tokens[row + 1] for row in rows],
                [row - first for row in rows if row == 0 or tokens[row - 1] == self.end])


def packed(documents, length, end):
    """Tokens and targets of (ids, targets or None) in this order, by the page."""
    tokens, targets = [], []

    def fill():
        count = -len(tokens) % length
        tokens.extend([end] * count)
        targets.extend([-1] * count)

    for ids, labels in documents:
        if len(tokens) % length + len(ids) + 1 > length:
            fill()
        tokens += [*ids, end]
        targets += [*(labels or [*ids[1:], end]), -1]
    fill()
    return tokens, targets


class DatasetFormat(SystemTest):
    def expect_same(self, sources, weights, seed, reset, steps, more=None):
        settings = {**self.settings(self.folder / "run"), "train.seed": seed, "data.document_reset": str(reset).lower(), **(more or {})}
        del settings["data.train"]
        words = options(settings)
        for name, weight in zip(sources, weights or sources):
            words += ["--data.train", f"{self.folder / name}" + (f":{weight}" if weights else "")]
        reader = Reader([self.folder / name for name in sources], weights, settings["train.sequence_length"], seed, reset)
        batch = settings["train.global_batch"]
        for step in steps:
            dumped = json.loads(self.must(shiftron("data", "dump", *words, "--step", step)))
            ids, targets, starts = zip(*(reader.sample((step - 1) * batch + i) for i in range(batch)))
            for key, mine in (("ids", ids), ("targets", targets), ("document_starts", starts)):
                self.assertEqual(dumped[key], list(mine), f"{key} of step {step}")

    def test_samples(self):
        with open(self.folder / "other.jsonl", "w", encoding="utf-8") as stream:
            for number in range(90):
                stream.write(json.dumps({"text": f"Another text, number {number}, of few words."}) + "\n")
        self.must(shiftron("data", "build", "--input", self.folder / "other.jsonl", "--tokenizer", self.folder / "tokenizer.model", "--output",
                           self.folder / "other"))
        far = 10**6
        self.expect_same(["data/train"], None, 0, True, [1, 2, 300, far])
        self.expect_same(["data/train"], None, 12345678901, False, [1, 77])
        self.expect_same(["data/train", "other"], None, 3, True, [1, 2, 40000])
        self.expect_same(["other", "data/train"], [0.3, 0.7], 4, True, [1, 2, far])

    def build_ids(self, name, documents, *words):
        """A dataset without a tokenizer, of (ids, targets or None)."""
        with open(self.folder / f"{name}.jsonl", "w", encoding="utf-8") as stream:
            for ids, targets in documents:
                labels = targets and [None if target < 0 else target for target in targets]
                stream.write(json.dumps({"ids": ids, **({"targets": labels} if labels else {})}) + "\n")
        out = self.must(shiftron("data", "build", "--ids", "--vocab", VOCAB, "--end-of-document", END, "--input",
                                 self.folder / f"{name}.jsonl", "--output", self.folder / name, "--json", *words))
        self.assertIn("no fault", self.must(shiftron("data", "verify", self.folder / name)))
        return json.loads(out)["datasets"][0]

    def packed_documents(self, labelled):
        draw = random.Random(5)
        ids = [[draw.randrange(END) for _ in range(draw.randint(1, PACK - 1))] for _ in range(400)]
        return [(row, [draw.choice([-1, draw.randrange(VOCAB)]) for _ in row] if labelled else None) for row in ids]

    def test_ids_targets_and_packing(self):
        for name, labelled in (("labels", True), ("packed", False)):
            documents = self.packed_documents(labelled)
            built = self.build_ids(name, documents, "--pack", PACK, "--shard-tokens", 1500)
            tokens, targets = Reader([self.folder / name], None, PACK, 0, True).rows_of(self.folder / name)
            targets_of = dict((tuple(ids), labels) for ids, labels in documents)
            order = [tuple(part) for end, part in itertools.groupby(tokens, lambda token: token == END) if not end for part in [list(part)]]
            self.assertCountEqual(order, targets_of)
            self.assertEqual((tokens, targets), packed([(ids, targets_of[ids]) for ids in order], PACK, END))
            self.assertEqual(built["counted_targets"], sum(target >= 0 for target in targets))
            self.assertGreater(built["shards"], 2)
        self.build_ids("plain", self.packed_documents(False))
        more = {"train.sequence_length": PACK}
        self.expect_same(["labels"], None, 0, True, [1, 2], more)
        self.expect_same(["labels", "plain", "packed"], [1, 2, 3], 1, False, [1, 40000], more)
        settings = {**self.settings(self.folder / "run"), "data.train": self.folder / "packed", "train.sequence_length": PACK + 1}
        self.assert_printed_once(self.expect(76, self.train(1, settings)), f"set train.sequence_length={PACK}, or build it with --pack {PACK + 1}")

    def test_masked_data_train_the_same_and_resume_without_a_tokenizer(self):
        """Most windows of the data count nothing, so do some microbatches and, of two windows each, whole steps."""
        draw = random.Random(6)
        documents = []
        for number in range(200):
            ids = [draw.randrange(END) for _ in range(PACK - 1)]
            documents.append((ids, [-1] * (PACK - 2) + [ids[0] if number % 4 == 0 else -1]))
        self.build_ids("masked", documents, "--pack", PACK)
        settings = {**self.settings(self.folder / "one"), "data.train": self.folder / "masked", "data.validation": self.folder / "masked",
                    "train.sequence_length": PACK, "train.global_batch": 2, "train.micro_batch": 1, "train.steps": 12,
                    "train.precision": "fp64", "evaluation.every": 12, "fault.non_finite_in_row": 100}
        self.expect(0, self.train(1, settings))
        settings["output.directory"] = self.folder / "two"
        self.expect(75, self.train(2, {**settings, "parallel.pp": 2, "train.stop_at": 6}))
        self.expect(0, self.train(2, settings))
        one, two = (lines(self.folder / run / "metrics.jsonl") for run in ("one", "two"))
        self.assertEqual([row.get("skipped") for row in one], [row.get("skipped") for row in two])
        self.assertIn(None, [row.get("loss", 0) for row in one], "some step counts nothing")
        self.assertTrue(any(row.get("loss") for row in one))
        for key in ("loss", "gradient_norm", "validation_loss"):
            for mine, other in zip(one, two):
                if mine.get(key) is None:
                    self.assertIsNone(other.get(key))
                else:
                    self.assertAlmostEqual(mine[key] / other[key] if mine[key] else other[key] + 1, 1, 9, f"{key} of {mine}")
        step = self.folder / "two" / "checkpoints" / "step-00000012"
        out = json.loads(self.must(shiftron("evaluate", "--checkpoint", step, "--data", self.folder / "masked", "--json")))
        self.assertEqual((out["targets"], out["windows"], out["bits_per_byte"]), (50, 200, None))
        self.assertAlmostEqual(out["loss"], [row["validation_loss"] for row in two if "validation_loss" in row][-1], 9)
        self.must(shiftron("checkpoint", "export", step, "--format", "hf", "--output", self.folder / "exported"))
        generated = shiftron("generate", "--checkpoint", step, "--prompt", "a", "--tokens", 1)
        self.assertEqual(generated.returncode, 76)
        self.assertIn("has no tokenizer: its data.train has none", generated.stderr)
        self.expect_continuations(step)

    def expect_continuations(self, checkpoint):
        """Of prompts of ids, on one rank and on two, to a file and to stdout; what cannot be continued is named."""
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text('{"ids": [1, 2, 3], "targets": [null, null, 4]}\n\n{"ids": [5]}\n')
        words = ["generate", "--checkpoint", checkpoint, "--ids", prompts, "--tokens", 9]
        given = [*words, "--end-of-document", END]
        printed = self.must(shiftron(*given))
        made = [json.loads(line) for line in printed.splitlines()]
        self.assertEqual([set(one) for one in made], [{"ids", "ended"}] * 2)
        for one in made:
            self.assertEqual(one["ended"], len(one["ids"]) < 9)
            self.assertTrue(all(0 <= token < VOCAB and token != END for token in one["ids"]))
        self.expect(0, self.start(2, [*given, "--output", self.folder / "continued.jsonl"]))
        self.assertEqual((self.folder / "continued.jsonl").read_text(), printed)
        self.assertEqual(self.must(shiftron(*words)), printed, "the checkpoint states the end token of its training data")
        self.expect_log_probabilities(checkpoint, given)
        other = self.folder / "other.jsonl"
        other.write_text('{"ids": [1]}\n{"ids": [%d]}\n' % VOCAB)
        for line, fault in (([*given, "--prompt", "a"], "--prompt and --ids both define what to continue"),
                            (["generate", "--checkpoint", checkpoint, "--prompt", "a", "--end-of-document", 1], "--end-of-document only applies with --ids"),
                            ([*given, "--output", prompts], f"--output {prompts} is also an input"),
                            ([*given[:3], "--ids", other, "--end-of-document", END], f"other.jsonl:2: id {VOCAB} at position 0 is not within the vocabulary")):
            refused = shiftron(*line)
            self.assertEqual((refused.returncode, refused.stdout), (76, ""), refused.stderr)
            self.assert_printed_once(refused.stderr, fault)

    def expect_log_probabilities(self, checkpoint, given):
        """They are what `evaluate` computes for the same ids, as the only counted targets of a dataset."""
        rows = [json.loads(line) for line in self.must(shiftron(*given, "--json", "--temperature", 1, "--samples", 2)).splitlines()]
        self.assertEqual([(row["prompt"], row["sample"], row["text"]) for row in rows],
                         [(prompt, sample, None) for prompt in ([1, 2, 3], [5]) for sample in (0, 1)])
        for number, row in enumerate(rows):
            prompt, ids = row["prompt"], row["ids"]
            self.assertTrue(ids)
            data = self.folder / f"continued-{number}"
            self.build_ids(data.name, [(prompt + ids, [-1] * (len(prompt) - 1) + ids + [-1])], "--pack", PACK)
            out = json.loads(self.must(shiftron("evaluate", "--checkpoint", checkpoint, "--data", data, "--json")))
            self.assertEqual(out["targets"], len(ids))
            self.assertAlmostEqual(row["log_probability"], -out["loss"] * len(ids), 9)


if __name__ == "__main__":
    unittest.main(verbosity=2)
