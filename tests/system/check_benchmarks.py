#!/usr/bin/env python3
"""Benchmarks of a checkpoint and of a training run: the same answers under every layout, a killed evaluation resumes, a run is the same
as without them, and comparisons name what differs."""
import json
import os
import shutil
import signal
import subprocess
import time
import unittest

import parquet
from harness import LAYOUTS, ROOT, SystemTest, benchmark_report, last_step, lines, losses, main, options, processes, shiftron, step

DATA = ROOT / "tests" / "evaluate" / "data" / "hub"
RELEASED, STORED = DATA.parent / "original", DATA.parent / "parity"
TASKS = "hellaswag,winogrande,arc_easy,mmlu_abstract_algebra,lambada_openai,wikitext,hendrycks_math_algebra"
# Of the datasets that have several forms: asked with an example each, and those that have none to give.
DRAWN = ("lambada_standard,winogrande,hellaswag,ai2_arc,mmlu_abstract_algebra,mmlu_business_ethics,mmlu_philosophy,mmlu_sociology,"
         "cmmlu_agronomy,cmmlu_logical,hendrycks_math_algebra,hendrycks_math_geometry,boolq,openbookqa,copa,gsm8k")
ALONE, HUB_ALONE = "lambada_openai", "hendrycks_math500,wikitext,piqa,social_iqa,sciq,triviaqa"
# Products of other shapes add in another order: of float32, over rows of some hundred tokens.
TOLERANCE = 1e-4


def as_numbers(answers):
    """Numbers that became texts, as in samples, are numbers again; other texts stay."""
    if isinstance(answers, list):
        return [as_numbers(answer) for answer in answers]
    try:
        return float(answers)
    except ValueError:
        return answers


class Reports(SystemTest):
    """Small checkpoints, and what the program says of them."""
    models = 1

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.steps = []
        for seed in range(1, cls.models + 1):
            run = cls.folder / f"run-{seed}"
            settings = {**cls.settings(cls, run, train__seed=seed), "checkpoint.every": 6}
            cls.must(shiftron("train", *options(settings)))
            cls.steps.append(step(run, 6))

    def reports(self, data, tasks=ALONE):
        """What the program says of `data`, without times: {task: its samples as bytes}, and the results."""
        samples, results = {}, []
        for number, (names, words) in enumerate(((DRAWN, ["--fewshot", "1"]), (tasks, []))):
            output = self.folder / f"{self._testMethodName}-{data.name}-{number}"
            self.must(shiftron("evaluate", "--checkpoint", self.steps[0], "--tasks", names, "--data", data, "--output", output,
                               "--max-length", "256", "--max-gen-toks", "4", "--json", *words))
            found, _ = benchmark_report(output)
            for facts in found["configs"].values():
                self.assertTrue(all(path.startswith(f"{data}/") for path in facts.pop("files")))
            results.append({key: value for key, value in found.items() if key not in ("date", "total_evaluation_time_seconds")})
            samples.update({path.name.split("_20")[0]: path.read_bytes() for path in output.rglob("samples_*")})
            self.assertEqual(set(found["task_hashes"]), set(found["n-samples"]))
        return samples, results

    def assert_same_reports(self, data, expected, tasks=ALONE):
        samples, results = self.reports(data, tasks)
        self.assertEqual(results, expected[1])
        self.assertEqual(samples, expected[0])


class Benchmarks(Reports):
    models = 2

    def arguments(self, output, step_directory=None, *more, length=512):
        return ["evaluate", "--checkpoint", step_directory or self.steps[0], "--tasks", TASKS, "--data", DATA, "--output", output,
                "--max-length", length, "--max-gen-toks", "8", "--token-budget", length // 2, *more]

    def assert_near(self, found, expected, where):
        """Numbers by TOLERANCE, in lists too."""
        if isinstance(expected, list):
            self.assertEqual(len(found), len(expected), where)
            for one, twin in zip(found, expected):
                self.assert_near(one, twin, where)
        elif isinstance(expected, float):
            self.assertAlmostEqual(found, expected, delta=TOLERANCE * max(1, abs(expected)), msg=where)
        else:
            self.assertEqual(found, expected, where)

    def assert_same_answers(self, one, other):
        (results, samples), (others, other_samples) = one, other
        self.assertEqual(results["task_hashes"], others["task_hashes"])
        self.assertEqual(samples.keys(), other_samples.keys())
        for task, lines in samples.items():
            for line, twin in zip(lines, other_samples[task], strict=True):
                self.assert_near(as_numbers(line["resps"]), as_numbers(twin["resps"]), f"{task} {line['doc_id']}")

    def test_every_layout_gives_the_same_answers(self):
        self.expect(0, self.start(1, self.arguments(self.folder / "one")))
        alone = benchmark_report(self.folder / "one")
        self.assertEqual(set(alone[1]), set(TASKS.split(",")))
        self.assertFalse((self.folder / "one" / "journal").exists())
        for layout in ("tp2pp2", "dp2"):
            ranks, parallel = LAYOUTS[layout]
            self.expect(0, self.start(ranks, self.arguments(self.folder / layout, None, *options(parallel))))
            self.assert_same_answers(alone, benchmark_report(self.folder / layout))

    def test_killed_again_and_again(self):
        whole, pieces = self.folder / "whole", self.folder / "pieces"
        short = 96  # tokens of a batch: some hundred batches

        def known():
            try:
                return sum(path.read_bytes().count(b"\n") for path in pieces.rglob("answers-*"))
            except FileNotFoundError:  # it ended meanwhile: its journal went
                return 0

        self.expect(0, self.start(2, self.arguments(whole, length=short)))
        partial = 0
        for _ in range(10):
            job = self.start(2, self.arguments(pieces, length=short))
            enough = known() + self.random.randrange(12)
            while known() < enough and job.running():
                time.sleep(0.001)
            time.sleep(0.02 * self.random.random())
            for process, rank in processes().items():
                if rank is not None:
                    os.kill(process, signal.SIGKILL)
            job.end()
            if list(pieces.rglob("results_*.json")):  # it had ended before
                shutil.rmtree(pieces)
            partial += known() > 0
        self.assertGreater(partial, 0)
        self.expect(0, self.start(2, self.arguments(pieces, length=short)))
        self.assert_same_answers(benchmark_report(whole), benchmark_report(pieces))
        self.assertEqual(benchmark_report(whole)[0]["results"], benchmark_report(pieces)[0]["results"])

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
        hashes = [benchmark_report(folder)[0]["task_hashes"] for folder in (mine, third)]
        self.assertEqual([task for task in hashes[0] if hashes[0][task] != hashes[1][task]], ["hellaswag"])

    # What tests/reference/lm_eval_parity.py --store has kept of lm-evaluation-harness 0.4.13.
    def test_answers_are_the_harnesss(self):
        self.must(shiftron("checkpoint", "import", STORED, "--format", "hf", "--output", self.folder / "stored"))
        compared = 0
        for name, case in json.loads((STORED / "answers.json").read_text())["cases"].items():
            output, tasks = self.folder / f"stored-{name}", case["tasks"]
            given = {"--fewshot": case["fewshot"], "--bos": None if case["bos"] is None else int(case["bos"])}
            self.must(shiftron("evaluate", "--checkpoint", step(self.folder / "stored", 0), "--tasks", ",".join(tasks), "--data", DATA,
                               "--output", output, "--max-length", case["max_length"], "--max-gen-toks", case["most_tokens"],
                               *(word for key, value in given.items() if value is not None for word in (key, str(value)))))
            results, samples = benchmark_report(output)
            self.assertEqual(results["task_hashes"], {task: one["hash"] for task, one in tasks.items()})
            for task, one in tasks.items():
                where = f"{name} {task}"
                self.assertEqual(len(samples[task]), len(one["answers"]), where)
                for key, value in one["results"].items():
                    self.assert_near(results["results"][task][key], value, f"{where} {key}")
                for line, answers, values in zip(samples[task], one["answers"], one["values"]):
                    found = [answer[0] for answer in line["resps"]]
                    self.assert_near(as_numbers(found), as_numbers(answers), f"{where} {line['doc_id']}")
                    for metric, value in values.items():
                        self.assert_near(line[metric], value, f"{where} {line['doc_id']} {metric}")
                    compared += len(answers)
        self.assertGreater(compared, 370)

    def test_released_files_give_the_hubs_report(self):
        of_hub = self.reports(DATA)
        self.assertEqual(len(of_hub[0]), 18)
        self.assert_same_reports(RELEASED, of_hub)
        unpacked = self.folder / "unpacked"  # without the folder that an archive has; MMLU's subjects in one file
        shutil.copytree(RELEASED, unpacked)
        for name in ("winogrande/winogrande_1.1", "arc/ARC-V1-Feb2018-2", "math/MATH"):
            for path in (unpacked / name).iterdir():
                path.rename(unpacked / name.split("/")[0] / path.name)
        (unpacked / "cmmlu").rename(unpacked / "data")
        (unpacked / "cmmlu").mkdir()
        (unpacked / "data").rename(unpacked / "cmmlu" / "data")
        shutil.rmtree(unpacked / "mmlu")
        (unpacked / "mmlu" / "all").mkdir(parents=True)
        for split in ("dev", "test"):
            text = "".join(path.read_text() for path in sorted((DATA / "mmlu").glob(f"*/{split}.jsonl")))
            (unpacked / "mmlu" / "all" / f"{split}.jsonl").write_text(text)
        self.assert_same_reports(unpacked, of_hub)

    def test_truncated_prompts_are_reported(self):
        for length, reported in (("256", False), ("16", True)):
            result = shiftron("evaluate", "--checkpoint", self.steps[0], "--tasks", "winogrande", "--data", DATA, "--output",
                              self.folder / f"length-{length}", "--max-length", length)
            self.must(result)
            self.assertEqual("were cut at the beginning" in result.stderr, reported, result.stderr)
            self.assertEqual("winogrande, item 0" in result.stderr, reported, result.stderr)

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
        self.assertIn("--fewshot only applies with --tasks", result.stderr)
        result = shiftron("evaluate", "--checkpoint", self.steps[0], "--data", DATA, "--limit", "0.5")
        self.assertEqual(result.returncode, 76)
        self.assertIn("--limit '0.5' is not a whole number: without --tasks it counts windows", result.stderr)
        result = shiftron("evaluate", "--checkpoint", self.steps[0], "--tasks", "winogrande", "--data", DATA, "--output", self.folder / "bad",
                          "--limit", "0")
        self.assertEqual(result.returncode, 76)
        self.assertIn("--limit '0' must be > 0", result.stderr)
        result = shiftron("evaluate", "--checkpoint", self.steps[0], "--tasks", self.of_dataset(), "--output", self.folder / "bad")
        self.assertEqual(result.returncode, 76)
        self.assertIn("--data is missing", result.stderr)
        result = shiftron("evaluate", "--tasks", "list")
        self.assertIn("hellaswag", self.must(result))

    def test_keys_that_would_do_nothing_are_refused(self):
        row = ["evaluate", "--checkpoint", self.steps[0], "--tasks", "winogrande", "--data", DATA, "--output", self.folder / "never"]
        config = self.folder / "keys.conf"
        config.write_text("[evaluation]\nlimit = 2\n[optimizer]\nlearning_rate = 5\nclip = 1\n")
        for words, texts in ((["--evaluation.fewshot", "2"], ["evaluation.fewshot has no effect on a checkpoint; use --fewshot (command line)"]),
                             (["--evaluation.sequences", "2"], ["evaluation.sequences has no effect on a checkpoint; omit it"]),
                             (["--data.train", "elsewhere", "--train.seed", "77"], ["2 faults", "data.train has", "train.seed has"]),
                             (["--config", config], ["evaluation.limit has no effect on a checkpoint; use --limit (", "optimizer.learning_rate has"])):
            for command in (row, ["generate", "--checkpoint", self.steps[0], "--prompt", "The"]):
                result = shiftron(*command, *words)
                self.assertEqual(result.returncode, 76, result.stderr)
                for text in texts:
                    self.assertIn(text if command is row else text.split("; use")[0], result.stderr)
                self.assertNotIn("optimizer.clip", result.stderr)  # as the checkpoint has it
        for command, keys in ((row, ["data.document_reset", "train.micro_batch"]),
                              (["generate", "--checkpoint", self.steps[0], "--prompt", "The"], ["train.micro_batch", "train.sequence_length"])):
            values = {"data.document_reset": "false", "train.micro_batch": 2, "train.sequence_length": 16}
            result = shiftron(*command, *options({key: values[key] for key in keys}))
            self.assertEqual(result.returncode, 76, result.stderr)
            for key in keys:
                advice = "use --token-budget" if command is row and key == "train.micro_batch" else "omit it"
                what = "tasks" if command is row else "generate"
                self.assertIn(f"{key} has no effect on {what}; {advice} (command line)", result.stderr)
            self.assertIn("2 faults", result.stderr)
        self.assertFalse((self.folder / "never").exists())
        own = self.steps[0].parent.parent / "config.conf"
        self.must(shiftron("generate", "--checkpoint", self.steps[0], "--prompt", "The", "--tokens", "2", "--config", own))

    def of_dataset(self):
        """A file of a task that takes its items from the folder of datasets."""
        path = self.folder / "of-dataset.json"
        path.write_text(json.dumps({"name": "endings", "kind": "log_likelihood", "dataset": "hellaswag", "split": "validation",
                                    "context": "{ctx_a}", "target": " {ctx_b}"}))
        return path

    def asking(self, run, **more):
        """Settings of a run that asks TASKS at steps 3 and 6."""
        asked = {"evaluation__every": 3, "evaluation__tasks": TASKS, "evaluation__data": DATA, "evaluation__max_gen_toks": 8}
        return self.settings(run, **{"train__sequence_length": 512, "checkpoint__every": 3, **asked, **more})

    def test_on_the_way_of_a_run(self):
        run, plain = self.folder / "asked", self.folder / "plain"
        layout = {"parallel__pp": 2, "parallel__zero": 1}
        text = self.expect(0, self.train(4, self.asking(run, **layout)))
        self.assertRegex(text, r"step 3: hellaswag acc 0\.\d{4} ± 0\.\d{4}")
        self.expect(0, self.train(4, self.asking(plain, **layout, evaluation__every=0, evaluation__tasks="")))
        self.assertEqual(losses(run), losses(plain))
        for number in (3, 6):
            self.assert_same_step(step(run, number), step(plain, number))
        rows = {line["step"]: line["benchmarks"] for line in lines(run / "metrics.jsonl") if "benchmarks" in line}
        self.assertEqual(set(rows), {3, 6})
        report = benchmark_report(run / "evaluations" / "step-00000003")
        self.assertEqual(set(report[1]), set(TASKS.split(",")))
        for task, values in rows[3].items():
            for metric, value in values.items():
                name, error = metric.removesuffix("_stderr"), "_stderr" if metric.endswith("_stderr") else ""
                self.assertEqual(value, report[0]["results"][task][f"{name}{error},none"])
        self.expect(0, self.start(1, self.arguments(self.folder / "of-the-step", step(run, 3))))
        self.assert_same_answers(benchmark_report(self.folder / "of-the-step"), report)
        compared = shiftron("evaluate", "compare", *(run / "evaluations" / f"step-0000000{number}" for number in (3, 6)))
        self.assertIn("hellaswag", self.must(compared))
        # From an older step in another layout: what was reported for later ones is set aside, and reported again.
        last = benchmark_report(run / "evaluations" / "step-00000006")
        self.expect(0, self.train(1, self.asking(run, checkpoint__resume=3)))
        self.assertEqual(sorted(path.name for path in (run / "evaluations").iterdir()),
                         ["step-00000003", "step-00000006", "superseded-step-00000006"])
        self.assert_same_answers(last, benchmark_report(run / "evaluations" / "step-00000006"))
        self.assertEqual([line["step"] for line in lines(run / "metrics.jsonl") if "benchmarks" in line], [3, 6])

    def test_a_stop_ends_a_pass(self):
        run, passages = self.folder / "stopped", self.folder / "passages.jsonl"
        texts = (f"{number} is the number of a passage, one of so many that to read them all takes longer than to stop." for number in range(8000))
        passages.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        asked = self.asking(run, evaluation__tasks=f"perplexity:{passages}", evaluation__every=2)
        del asked["evaluation.data"]  # it needs none
        job = self.train(2, asked)
        self.wait_for(lambda: last_step(run) == 2, job)
        for process in job.ranks().values():
            os.kill(process, signal.SIGUSR1)
        text = self.expect(75, job)
        self.assert_printed_once(text, "step 2: its benchmarks are left for the next start")
        self.assertFalse((run / "evaluations").exists())
        self.assertTrue(step(run, 2).exists())

    def test_runs_that_cannot_ask_do_not_start(self):
        run = self.folder / "refused"
        for ranks, settings, texts in (
                (1, self.asking(run, evaluation__tasks="hellaswg", evaluation__data="", evaluation__every=0),
                 ["3 faults", "did you mean hellaswag?", "evaluation.data is required", "tasks need evaluation.every"]),
                (1, self.asking(run, evaluation__data=self.folder / "nowhere"), ["nowhere' is not a directory", "evaluation.data of a run"]),
                (1, self.asking(run, evaluation__tasks=self.of_dataset(), evaluation__data=""), ["evaluation.data is required"]),
                (2, self.asking(run, evaluation__data=self.folder), [f"{self.folder}/hellaswag/validation.jsonl"])):
            text = self.expect(76, self.train(ranks, settings))
            for part in texts:
                self.assert_printed_once(text, part)
            self.assertFalse(run.exists())


class Parquet(Reports):
    @classmethod
    def setUpClass(cls):
        cls.python = parquet.python_with_arrow()
        if cls.python is None:
            raise unittest.SkipTest("no Python with pyarrow; launch/install-deps --benchmarks-data makes one")
        super().setUpClass()

    def test_parquet_gives_the_hubs_report(self):
        written, converted = self.folder / "parquet", self.folder / "converted"
        parquet.write(self.python, DATA, written)
        for path in sorted(DATA.rglob("*.jsonl")):
            place = path.relative_to(DATA)
            parts = parquet.parts(written, place)
            command = [self.python, ROOT / "launch" / "benchmarks-data", converted / place, *parts]
            self.must(subprocess.run(command, capture_output=True, text=True, check=False))
        tasks = f"{ALONE},{HUB_ALONE}"
        self.assert_same_reports(converted, self.reports(DATA, tasks), tasks)


if __name__ == "__main__":
    main(defaultTest="Benchmarks")
