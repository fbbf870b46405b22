#!/usr/bin/env python3
"""A reader made of docs/dataset-format.md alone gives the samples that `data dump` gives."""
import json
import struct
import unittest

from harness import SystemTest, options, shiftron

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
BLEND = 65536


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
        self.sources = [self.tokens_of(directory) for directory in directories]
        self.windows = [(len(tokens) - 1) // length for tokens in self.sources]
        weights = weights or self.windows
        shares = [weight / sum(weights) * BLEND for weight in weights]
        self.quotas = [int(share) for share in shares]
        by_remainder = sorted(range(len(shares)), key=lambda source: -(shares[source] - self.quotas[source]))
        for source in by_remainder[:BLEND - sum(self.quotas)]:
            self.quotas[source] += 1

    def tokens_of(self, directory):
        description = json.loads((directory / "dataset.json").read_text())
        self.end = description["end_of_document"]
        kind = {"u16": "H", "u32": "I"}[description["token_type"]]
        tokens = []
        for shard in description["shards"]:
            content = (directory / shard["file"]).read_bytes()
            assert len(content) == shard["bytes"]
            tokens += struct.unpack_from(f"<{shard['tokens']}{kind}", content, shard["tokens_offset"])
        return tokens

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
        tokens = self.sources[source]
        rows = range(first, first + self.length)
        return ([tokens[row] for row in rows],
                [-1 if self.reset and tokens[row] == self.end else tokens[row + 1] for row in rows],
                [row - first for row in rows if row == 0 or tokens[row - 1] == self.end])


class DatasetFormat(SystemTest):
    def expect_alike(self, sources, weights, seed, reset, steps):
        settings = {**self.settings(self.folder / "run"), "train.seed": seed, "data.document_reset": str(reset).lower()}
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
        self.expect_alike(["data/train"], None, 0, True, [1, 2, 300, far])
        self.expect_alike(["data/train"], None, 12345678901, False, [1, 77])
        self.expect_alike(["data/train", "other"], None, 3, True, [1, 2, 40000])
        self.expect_alike(["other", "data/train"], [0.3, 0.7], 4, True, [1, 2, far])


if __name__ == "__main__":
    unittest.main(verbosity=2)
