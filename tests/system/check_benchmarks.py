#!/usr/bin/env python3
"""Benchmarks of a checkpoint: the same answers under every layout, a killed evaluation goes on, and comparisons name what differs."""
import json
import os
import shutil
import signal
import time
import unittest

from harness import LAYOUTS, ROOT, SystemTest, options, processes, shiftron, step

DATA = ROOT / "tests" / "evaluate" / "data" / "hub"
TASKS = "hellaswag,winogrande,arc_easy,mmlu_abstract_algebra,lambada_openai,wikitext,hendrycks_math_algebra"
# Products of other shapes add in another order: of float32, over rows of some hundred tokens.
TOLERANCE = 1e-4


def report(folder):
    path = max(folder.rglob("results_*.json"))
    stamp = path.stem.removeprefix("results_")
    samples = {one.name.removeprefix("samples_").removesuffix(f"_{stamp}.jsonl"): [json.loads(line) for line in one.read_text().split("\n") if line]
               for one in path.parent.glob(f"samples_*_{stamp}.jsonl")}
    return json.loads(path.read_text()), samples


def numbers(responses):
    """Log-likelihoods and truths, or generated text."""
    return [float(answer[0][0]) if len(answer[0]) == 2 or answer[0][0].lstrip("-")[:1].isdigit() else answer[0][0] for answer in responses]


class Benchmarks(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.steps = []
        for seed in (1, 2):
            run = cls.folder / f"run-{seed}"
            settings = {**cls.settings(cls, run, train__seed=seed), "checkpoint.every": 6}
            cls.must(shiftron("train", *options(settings)))
            cls.steps.append(step(run, 6))

    def arguments(self, output, step_directory=None, *more):
        return ["evaluate", "--checkpoint", step_directory or self.steps[0], "--tasks", TASKS, "--data", DATA, "--output", output,
                "--max-length", "512", "--max-gen-toks", "8", "--token-budget", "256", *more]

    def assert_same_answers(self, one, other):
        (results, samples), (others, other_samples) = one, other
        self.assertEqual(results["task_hashes"], others["task_hashes"])
        self.assertEqual(samples.keys(), other_samples.keys())
        for task, lines in samples.items():
            for line, twin in zip(lines, other_samples[task], strict=True):
                for answer, same in zip(numbers(line["resps"]), numbers(twin["resps"]), strict=True):
                    if isinstance(answer, float):
                        self.assertAlmostEqual(answer, same, delta=TOLERANCE * max(1, abs(answer)), msg=f"{task} {line['doc_id']}")
                    else:
                        self.assertEqual(answer, same, task)

    def test_every_layout_answers_alike(self):
        self.expect(0, self.start(1, self.arguments(self.folder / "one")))
        alone = report(self.folder / "one")
        self.assertEqual(set(alone[1]), set(TASKS.split(",")))
        self.assertFalse((self.folder / "one" / "journal").exists())
        for layout in ("tp2pp2", "dp2"):
            ranks, parallel = LAYOUTS[layout]
            self.expect(0, self.start(ranks, self.arguments(self.folder / layout, None, *options(parallel))))
            self.assert_same_answers(alone, report(self.folder / layout))

    def test_killed_again_and_again(self):
        whole, pieces = self.folder / "whole", self.folder / "pieces"
        began = time.monotonic()
        self.expect(0, self.start(2, self.arguments(whole)))
        span = time.monotonic() - began
        for _ in range(10):
            job = self.start(2, self.arguments(pieces))
            until = time.monotonic() + span * self.random.random()
            while time.monotonic() < until and job.running():
                time.sleep(0.01)
            for process, rank in processes().items():
                if rank is not None:
                    os.kill(process, signal.SIGKILL)
            job.end()
            if list(pieces.rglob("results_*.json")):  # it had ended before
                shutil.rmtree(pieces)
        self.expect(0, self.start(2, self.arguments(pieces)))
        self.assert_same_answers(report(whole), report(pieces))
        self.assertEqual(report(whole)[0]["results"], report(pieces)[0]["results"])

    def test_comparison_names_what_differs(self):
        mine, other = self.folder / "mine", self.folder / "other"
        self.expect(0, self.start(1, self.arguments(mine)))
        self.expect(0, self.start(1, self.arguments(other, self.steps[1])))
        result = shiftron("evaluate", "compare", mine, other, "--json")
        found = json.loads(self.must(result))["comparisons"][0]
        self.assertEqual(found["not_compared"], [])
        self.assertEqual({one["task"] for one in found["differences"]}, set(TASKS.split(",")))
        planted = self.folder / "planted"
        shutil.copytree(DATA, planted)
        path = planted / "hellaswag" / "validation.jsonl"
        lines = path.read_text().splitlines()
        changed = json.loads(lines[1])
        changed["ctx_a"] += " Then it rains."
        path.write_text("\n".join([lines[0], json.dumps(changed), *lines[2:]]) + "\n")
        third = self.folder / "third"
        arguments = self.arguments(third)
        arguments[arguments.index(DATA)] = planted
        self.expect(0, self.start(1, arguments))
        text = self.must(shiftron("evaluate", "compare", mine, third))
        self.assertIn("hellaswag: item 1 differ", text)
        hashes = [report(folder)[0]["task_hashes"] for folder in (mine, third)]
        self.assertEqual([task for task in hashes[0] if hashes[0][task] != hashes[1][task]], ["hellaswag"])

    def test_bad_input_is_named(self):
        for words, text in ((["--tasks", "helaswag"], "hellaswag"), (["--tasks", ","], "--tasks list")):
            result = shiftron("evaluate", "--checkpoint", self.steps[0], *words, "--data", DATA, "--output", self.folder / "bad")
            self.assertEqual(result.returncode, 76, result.stderr)
            self.assertIn(text, result.stderr)
        result = shiftron("evaluate", "--checkpoint", self.steps[0], "--tasks", "hellaswag", "--data", self.folder, "--output",
                          self.folder / "bad")
        self.assertEqual(result.returncode, 76)
        self.assertIn("hellaswag", result.stderr)
        result = shiftron("evaluate", "--checkpoint", self.steps[0], "--data", DATA, "--fewshot", "2")
        self.assertEqual(result.returncode, 76)
        self.assertIn("--fewshot is of --tasks", result.stderr)
        result = shiftron("evaluate", "--tasks", "list")
        self.assertIn("hellaswag", self.must(result))


if __name__ == "__main__":
    unittest.main()
