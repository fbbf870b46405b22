#!/usr/bin/env python3
"""Text as people have it: pipes, folders, patterns, lists and packed files give the documents of the plain file."""
import json
import os
import pathlib
import random
import subprocess
import time
import unittest

from harness import PROGRAM, SEED, SystemTest

PACKERS = {"gz": ["gzip", "-c"], "zst": ["zstd", "-qc"], "xz": ["xz", "-c"], "bz2": ["bzip2", "-c"]}


class TextInputs(SystemTest):
    number = 0  # of builds
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.folder / "text.jsonl"
        lines = cls.text.read_text().splitlines(keepends=True)
        cls.parts = cls.folder / "parts"
        cls.parts.mkdir()
        for (ending, packer), part in zip(PACKERS.items(), (lines[i::4] for i in range(4))):
            packed = subprocess.run(packer, input="".join(part).encode(), capture_output=True, check=True).stdout
            (cls.parts / f"part.jsonl.{ending}").write_bytes(packed)
        cls.plain = cls.built("--input", cls.text)
        cls.in_parts = cls.built("--input", *sorted(cls.parts.iterdir()))

    @classmethod
    def built(cls, *words, stdin=b"", fails=False):
        """(documents, tokens, bytes of text, JSON) of a build; what it writes to stderr if it `fails`."""
        cls.number += 1
        words = ["data", "build", *words, "--tokenizer", cls.folder / "tokenizer.model", "--output", cls.folder / f"built-{cls.number}", "--json"]
        done = subprocess.run([PROGRAM, *map(str, words)], input=None if hasattr(stdin, "fileno") else stdin, stdin=stdin if hasattr(stdin, "fileno") else None,
                              capture_output=True, check=False)
        if fails:
            assert done.returncode == 76, done
            return done.stderr.decode()
        assert done.returncode == 0, done.stderr.decode()
        result = json.loads(done.stdout)
        dataset = result["datasets"][0]
        return dataset["documents"], dataset["tokens"], dataset["text_bytes"], result

    def test_pipes(self):
        packed = (self.parts / "part.jsonl.gz").read_bytes()
        half = self.built("--input", self.parts / "part.jsonl.gz")[:3]
        for word in ("-", "/dev/stdin"):
            self.assertEqual(self.built("--input", word, stdin=self.text.read_bytes())[:3], self.plain[:3], word)
        self.assertEqual(self.built("--input", "-", stdin=packed)[:3], half)
        with open(self.text, "rb") as file:
            self.assertEqual(self.built("--input", "/dev/stdin", stdin=file)[:3], self.plain[:3])
        self.assertEqual(self.built("--input", "-", stdin=packed)[3]["inputs"],
                         [{"file": "stdin", "kind": "jsonl", "packing": "gzip", "bytes": None}])
        self.assertIn("no document with text in -", self.built("--input", "-", fails=True))

    def test_folders_patterns_and_lists(self):
        self.assertEqual(self.in_parts[:3], self.plain[:3])
        order = [input["file"] for input in self.in_parts[3]["inputs"]]
        names = "".join(f"{name}\n" for name in order)
        (self.folder / "list").write_text(names)
        for words, stdin in (([self.parts], b""), ([f"{self.parts}/part.*"], b""), ([f"@{self.folder / 'list'}"], b""), (["@-"], names.encode())):
            result = self.built("--input", *words, stdin=stdin)
            self.assertEqual(result[:3], self.plain[:3], words)
            self.assertEqual([input["file"] for input in result[3]["inputs"]], order, words)

    def test_a_folder_may_hold_both_parts(self):
        held = self.parts / "part.jsonl.xz"
        documents, _, _, result = self.built("--input", self.parts, "--validation-input", held)
        self.assertEqual([pathlib.Path(dataset["directory"]).name for dataset in result["datasets"]], ["train", "validation"])
        self.assertEqual(documents + result["datasets"][1]["documents"], self.plain[0])
        self.assertEqual(result["datasets"][1]["documents"], self.built("--input", held)[0])
        self.assertIn("give one of them", self.built("--input", self.text, "--validation-input", held, "--validation-fraction", "0.5", fails=True))

    def test_what_is_left_out_is_reported(self):
        odd = self.folder / "odd.jsonl"
        odd.write_bytes(self.text.read_bytes() * 2 + b'{"text": 5}\n{"text": "caf\xe9 \\ud800", "score": NaN}\n{"title": "x"}\n')
        err = self.built("--input", odd, fails=True)
        lines = 2 * self.text.read_bytes().count(b"\n")
        self.assertIn(f"odd.jsonl:{lines + 1}: ", err)
        self.assertIn(f"odd.jsonl:{lines + 3}: ", err)
        self.assertIn("2 broken lines", err)
        documents, _, _, result = self.built("--input", odd, "--skip-bad", "2", "--deduplicate")
        self.assertEqual(documents + result["duplicates"], 2 * self.plain[0] + 1)
        self.assertEqual(result["duplicates"], self.plain[0])
        self.assertEqual([result[key] for key in ("bad_lines", "foreign_bytes", "replaced_surrogates")], [2, 1, 1])
        self.assertIn(f"odd.jsonl:{lines + 3}: no key", result["first_bad"][1])

    def test_a_tokenizer_of_a_pipe_is_that_of_the_file(self):
        models = [self.folder / "of-file.model", self.folder / "of-pipe.model"]
        for word, model in zip((self.text, "-"), models):
            subprocess.run([PROGRAM, "tokenizer", "train", "--input", word, "--vocab", "384", "--output", model], input=self.text.read_bytes(),
                           capture_output=True, check=True)
        self.assertEqual(models[0].read_bytes(), models[1].read_bytes())

    def test_inspection_shows_lengths_and_samples(self):
        data = self.folder / "data" / "validation"
        done = subprocess.run([PROGRAM, "data", "inspect", data, "--lengths", "--samples", "2", "--json"], capture_output=True, check=True)
        shown = json.loads(done.stdout)
        self.assertEqual(sum(row["documents"] for row in shown["lengths"]["counts"]), shown["documents"])
        self.assertEqual(len(shown["samples"]), 2)
        texts = [json.loads(line)["text"] for line in self.text.read_text().splitlines()]
        for sample in shown["samples"]:
            self.assertTrue(any(text.startswith(sample["text"].rstrip("\ufffd")) for text in texts), sample)  # a character may be cut
        out = subprocess.run([PROGRAM, "data", "inspect", data, "--lengths", "--samples", "2"], capture_output=True, text=True, check=True).stdout
        self.assertIn(f"document {shown['samples'][1]['document']}, {shown['samples'][1]['tokens']} tokens: ", out)
        self.assertIn("bytes per token: ", out)


class KilledBuild(SystemTest):
    KILLS = int(os.environ.get("SHIFTRON_TEST_KILLS", "3"))
    MEGABYTES = int(os.environ.get("SHIFTRON_TEST_MEGABYTES", "12"))

    def test_killed_again_and_again(self):
        """After the first save, then at random moments; the shards are those of an uninterrupted build."""
        text = self.folder / "long.jsonl"
        line = b'{"text": "%d %s"}\n'
        words = [json.loads(line)["text"].encode() for line in (self.folder / "text.jsonl").read_text().splitlines()]
        with open(text, "wb") as file:
            for number in range(self.MEGABYTES * 10**6 // (sum(map(len, words)) // len(words) + 20)):
                file.write(line % (number // 2, json.dumps(words[number % len(words)].decode())[1:-1].encode()) if number != 500 else b"broken\n")

        def command(output):
            return [PROGRAM, "data", "build", "--input", text, "--tokenizer", self.folder / "tokenizer.model", "--output", self.folder / output,
                    "--deduplicate", "--skip-bad", "1", "--validation-fraction", "0.1", "--shard-tokens", "100000", "--threads", "2", "--json"]

        began = time.monotonic()
        whole = json.loads(subprocess.run(command("whole"), capture_output=True, check=True).stdout)
        seconds = time.monotonic() - began
        chance, kills, errors = random.Random(SEED), 0, b""
        while True:
            job = subprocess.Popen(command("killed"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            while kills == 0 and job.poll() is None and not (self.folder / "killed" / ".building" / "saved").exists():
                time.sleep(0.01)
            moment = chance.uniform(0, 2 if kills else 0.1) * seconds / self.KILLS
            try:
                out, error = job.communicate(timeout=moment if kills < self.KILLS else None)
            except subprocess.TimeoutExpired:
                job.kill()
                out, error = job.communicate()
                kills += 1
                print(f"kill {kills} after {moment:.2f} s: {error.decode().splitlines()[:2]}", flush=True)
                continue
            finally:
                errors += error
            self.assertEqual(job.returncode, 0, error)
            break
        self.assertIn(b"resumes; ", errors)
        killed = json.loads(out)
        for result in (whole, killed):
            for dataset in result["datasets"]:
                del dataset["directory"]
        if killed["was_there"]:  # the last kill was while the files were moved; what was wrong with bad lines is then not known
            killed["first_bad"] = whole["first_bad"]
        self.assertEqual(dict(killed, was_there=False), whole)
        self.assertEqual(*({path.relative_to(self.folder / name): path.read_bytes() for path in (self.folder / name).rglob("*") if path.is_file()}
                           for name in ("killed", "whole")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
