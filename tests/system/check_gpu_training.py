#!/usr/bin/env python3
"""The program on the emulator: training, stopped and resumed on either device, evaluation, generation, reproducible runs."""
import json
import os
import unittest

from harness import LAYOUTS, SystemTest, events, losses, shiftron, step

BOUNDS = {"fp32": 1e-5, "bf16": 2e-2}  # of losses within some steps: sums of products are cut at random, and an update divides by the root of a square
os.environ.setdefault("SHIFTRON_MACHINE_ORDER", "uneven")


class GpuTraining(SystemTest):
    STEPS, STOP = 6, 3

    def settings_of(self, run, precision, **more):
        return self.settings(run, **{"model__hidden": 32, "train__sequence_length": 16, "train__precision": precision, "train__steps": self.STEPS, "optimizer__learning_rate": "1e-3",
                                     "data__validation": self.folder / "data" / "validation", "evaluation__every": 3,
                                     "evaluation__sequences": 4, "checkpoint__every": self.STEPS, **more})

    def trained(self, name, precision, ranks=1, until=None, **more):
        run = self.folder / name
        settings = self.settings_of(run, precision, **more)
        if until:
            settings["train.stop_at"] = until
        self.expect(75 if until else 0, self.train(ranks, settings), 240)
        return run

    def assert_like(self, one, other, precision):
        self.assertEqual(set(losses(one)), set(losses(other)))
        for number, values in losses(one).items():
            for mine, theirs in zip(values[:2], losses(other)[number]):  # a tie may fall otherwise on another device
                self.assertAlmostEqual(float(mine), float(theirs), delta=BOUNDS[precision] * float(theirs), msg=f"step {number}")

    def answer(self, *arguments):
        return json.loads(self.must(shiftron(*arguments, "--json", timeout=240)))

    def test_training_resumes_on_the_other_device(self):
        for precision in BOUNDS:
            with self.subTest(precision=precision):
                whole = self.trained(f"{precision}-cpu", precision)
                run = self.trained(f"{precision}-both", precision, until=2)
                self.trained(run.name, precision, until=4, device__kind="cuda")
                self.trained(run.name, precision)
                self.assertEqual(len(events(run, "resume")), 2)
                self.assert_like(run, whole, precision)

    def test_a_device_resumes_with_the_same_bits(self):
        repeats = {"device__kind": "cuda", "train__deterministic": "repeat"}  # without it attention's backward need not
        whole = self.trained("own", "bf16", **repeats)
        parts = self.folder / "own-parts"
        self.trained(parts.name, "bf16", until=self.STOP, **repeats)
        self.trained(parts.name, "bf16", **repeats)
        self.assertEqual(losses(parts), losses(whole))
        self.assert_same_step(step(whole, self.STEPS), step(parts, self.STEPS))

    def test_runs_repeat(self):
        once, again = (self.trained(name, "bf16", device__kind="cuda", train__deterministic="repeat") for name in ("once", "again"))
        self.assertEqual(losses(once), losses(again))
        self.assert_same_step(step(once, self.STEPS), step(again, self.STEPS))

    def test_checkpoints_are_scored_and_continued_on_either(self):
        run = self.trained("scored", "fp32", device__kind="cuda")
        checkpoint = ["--checkpoint", step(run, self.STEPS)]
        lines = (self.folder / "text.jsonl").read_text().splitlines(keepends=True)
        (self.folder / "few.jsonl").write_text("".join(lines[:3]))
        few = self.folder / "few"
        self.must(shiftron("data", "build", "--input", self.folder / "few.jsonl", "--tokenizer", self.folder / "tokenizer.model", "--output", few))
        own, cpu = (self.answer("evaluate", *checkpoint, "--data", few, *device) for device in ([], ["--device.kind", "cpu"]))
        self.assertAlmostEqual(own["loss"], cpu["loss"], delta=1e-5 * cpu["loss"])
        self.assertNotEqual(own["loss"], cpu["loss"])  # the one that trained it is taken
        text = [self.must(shiftron("generate", *checkpoint, "--prompt", "The", "--tokens", 8, *device, timeout=240)) for device in ([], ["--device.kind", "cpu"])]
        self.assertEqual(*text)

    def test_ranks_are_like_one_of_the_cpu(self):
        alone = self.trained("alone", "fp32", model__layers=4)
        for name, devices, more in (("tp2pp2", 8, {"parallel__tp": 2, "parallel__pp": 2}), ("zero", 1, {"parallel__zero": 1})):
            with self.subTest(layout=name):  # the second one's share a GPU
                os.environ["SHIFTRON_MACHINE_DEVICES"] = str(devices)
                try:
                    run = self.trained(name, "fp32", LAYOUTS[name][0], model__layers=4, device__kind="cuda", **more)
                finally:
                    del os.environ["SHIFTRON_MACHINE_DEVICES"]
                self.assert_like(run, alone, "fp32")

    def test_a_host_without_a_gpu_says_so(self):
        run = self.folder / "without"
        os.environ["SHIFTRON_MACHINE_DEVICES"] = "0"
        try:
            text = self.expect(76, self.train(1, self.settings_of(run, "fp32", device__kind="cuda")))
        finally:
            del os.environ["SHIFTRON_MACHINE_DEVICES"]
        self.assert_printed_once(text, "no GPU found on", "device.kind=cpu")


if __name__ == "__main__":
    unittest.main(verbosity=2)
