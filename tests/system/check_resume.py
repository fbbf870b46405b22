#!/usr/bin/env python3
"""Stopped and resumed = uninterrupted: the same bits in the same layout, within 1e-10 in fp64 in another."""
import json
import shutil
import unittest

from harness import LAYOUTS, SystemTest, losses, options, shiftron, step


class Resume(SystemTest):
    STEPS, STOP = 6, 3

    def settings_of(self, run, layout, precision):
        return {**self.settings(run, model__layers=4, train__precision=precision, train__steps=self.STEPS, checkpoint__every=self.STEPS,
                                optimizer__schedule="cosine", optimizer__warmup=2), **LAYOUTS[layout][1]}

    def dump(self, run):
        return self.must(shiftron("data", "dump", "--config", run / "config.conf", "--step", self.STOP + 1))

    def same_bits(self, layout, precision, resumed_with=None):
        ranks = LAYOUTS[layout][0]
        name = f"{layout}-{precision}" + "".join(f"-{value}" for value in (resumed_with or {}).values())
        whole, parts = self.folder / f"{name}-whole", self.folder / f"{name}-parts"
        self.expect(0, self.train(ranks, self.settings_of(whole, layout, precision)))
        settings = self.settings_of(parts, layout, precision)
        if precision == "bf16":  # a run's first start times which products use bfloat16: both resume from one
            shutil.copytree(step(whole, 0), step(parts, 0))
        self.expect(75, self.train(ranks, {**settings, "train.stop_at": self.STOP}))
        self.assertEqual(set(losses(parts)), set(range(1, self.STOP + 1)))
        before = self.dump(parts)
        if precision == "fp64":
            shutil.copytree(parts, self.folder / f"{layout}-stopped")
        self.expect(0, self.train(ranks, {**settings, **(resumed_with or {})}))
        self.assertEqual(before, self.dump(parts))
        self.assertEqual(before, self.dump(whole))
        self.assertEqual(losses(parts), losses(whole))
        self.assertEqual(set(losses(parts)), set(range(1, self.STEPS + 1)))
        self.assert_same_step(step(whole, self.STEPS), step(parts, self.STEPS))

    def other_layout(self, saved_as, resumed_as):
        whole, run = self.folder / f"{saved_as}-fp64-whole", self.folder / f"{saved_as}-as-{resumed_as}"
        shutil.copytree(self.folder / f"{saved_as}-stopped", run)
        self.expect(0, self.train(LAYOUTS[resumed_as][0], self.settings_of(run, resumed_as, "fp64")))
        for number, values in losses(whole).items():
            for mine, theirs in zip(losses(run)[number], values):
                self.assertAlmostEqual(float(mine), float(theirs), delta=1e-10, msg=f"step {number}")
        found = json.loads(shiftron("checkpoint", "diff", "--json", step(whole, self.STEPS), step(run, self.STEPS)).stdout)
        for tensor in found["unequal"]:
            self.assertLess(tensor["max_absolute"], 1e-10, tensor)

    def test_fp64(self):
        for layout in ("tp2pp2", "dp2", "zero_zbv"):
            self.same_bits(layout, "fp64")
        for saved_as, resumed_as in (("tp2pp2", "zero"), ("dp2", "tp2pp2"), ("tp2pp2", "single"), ("zero_zbv", "interleaved"),
                                       ("dp2", "eight")):
            with self.subTest(saved_as=saved_as, resumed_as=resumed_as):
                self.other_layout(saved_as, resumed_as)

    def test_fp32(self):
        for layout in ("interleaved", "zero"):
            with self.subTest(layout=layout):
                self.same_bits(layout, "fp32")

    def test_ranks_in_another_order(self):
        self.same_bits("tp2pp2", "fp32", {"parallel.rank_order": "pp,dp,cp,tp"})

    def test_bf16(self):
        for layout in ("tp2pp2", "zero"):
            with self.subTest(layout=layout):
                self.same_bits(layout, "bf16")

    def test_a_converted_step_resumes_like_the_original(self):
        stopped, here, there = (self.folder / f"converted-{name}" for name in ("stopped", "here", "there"))
        settings = self.settings_of(stopped, "tp2pp2", "fp32")
        self.expect(75, self.train(4, {**settings, "train.stop_at": self.STOP}))
        shutil.copytree(stopped, here)
        self.expect(0, self.train(2, self.settings_of(here, "zero", "fp32")))
        made = json.loads(self.must(shiftron("checkpoint", "convert", step(stopped, self.STOP), "--layout", "dp=2,zero=1",
                                             "--output", there, "--json")))
        self.assertEqual(made["next"], f"launch/local 2 train --config {there}/config.conf --output.directory {there}")
        self.assert_same_step(step(stopped, self.STOP), step(there, self.STOP))
        self.expect(0, self.start(2, made["next"].split()[2:]))
        self.assertEqual({number: values for number, values in losses(here).items() if number > self.STOP}, losses(there))
        self.assert_same_step(step(here, self.STEPS), step(there, self.STEPS))
        whole = json.loads(self.must(shiftron("checkpoint", "consolidate", step(here, self.STEPS), "--output", self.folder / "whole",
                                              "--drop-optimizer", "--precision", "bf16", "--json")))
        self.assertEqual(whole["files"], 1)
        self.must(shiftron("evaluate", "--checkpoint", whole["directory"], "--data", self.folder / "data" / "validation"))
        self.must(shiftron("generate", "--checkpoint", whole["directory"], "--prompt", "The", "--tokens", "2"))
        self.expect(76, self.start(1, ["train", "--config", whole["configuration"]]))

    def test_what_an_import_knows_goes_along(self):
        """Length, ends and origin of a model that is trained on, converted and exported; training here has shorter sequences."""
        first, run, there = (self.folder / f"origin-{name}" for name in ("first", "run", "there"))
        exported, again = self.folder / "origin-exported", self.folder / "origin-again"
        self.expect(75, self.train(1, {**self.settings(first, train__steps=2), "train.stop_at": 1}))
        self.must(shiftron("checkpoint", "export", step(first, 1), "--format", "hf", "--output", exported))
        config = json.loads((exported / "config.json").read_text())
        own = config["eos_token_id"]
        (exported / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 131072}))
        (exported / "generation_config.json").write_text(json.dumps({"eos_token_id": [own, 7]}))
        self.must(shiftron("checkpoint", "import", exported, "--format", "hf", "--output", run))
        settings = self.settings(run, train__steps=4)
        for stop in (1, 2):  # saved, resumed and saved
            self.expect(75, self.start(1, ["train", "--config", run / "config.conf", *options({**settings, "train.stop_at": stop})]))
        self.must(shiftron("checkpoint", "convert", step(run, 2), "--layout", "dp=2,zero=1", "--output", there))
        self.must(shiftron("checkpoint", "export", step(there, 2), "--format", "hf", "--output", again))
        found = json.loads((again / "config.json").read_text())
        self.assertEqual((found["max_position_embeddings"], found["eos_token_id"]), (131072, [own, 7]))
        card = (again / "README.md").read_text()
        self.assertIn("Trained further and exported by Shiftron.", card)
        self.assertIn(f"| origin | imported from `{exported}`, then trained here: 2 steps of ", card)


if __name__ == "__main__":
    unittest.main(verbosity=2)
