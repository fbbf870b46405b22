#!/usr/bin/env python3
"""read_checkpoint.py reads what the program wrote, under any layout, and names what is wrong."""
import json
import pathlib
import shutil
import sys
import unittest

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "system"))
from harness import SystemTest, shiftron, step  # noqa: E402
from read_checkpoint import Fault, read_step  # noqa: E402

LAYOUTS = {"single": (1, {}), "divided": (4, {"parallel.tp": 2, "parallel.zero": 1})}


class ReadCheckpoint(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.steps = {}

    def made(self, layout):
        if layout not in self.steps:
            ranks, settings = LAYOUTS[layout]
            run = self.folder / layout
            self.expect(0, self.train(ranks, self.settings(run, shift__form="gate", shift__query=1, **settings)))
            self.steps[layout] = step(run, 6)
        return self.steps[layout]

    def test_it_finds_the_tensors_that_the_program_names(self):
        for layout in ("single", "divided"):
            found = read_step(self.made(layout))
            answer = json.loads(self.must(shiftron("checkpoint", "inspect", self.made(layout), "--json")))
            self.assertEqual({path: (list(array.shape), str(array.dtype)) for path, array in found.tensors.items()},
                             {tensor["path"]: (tensor["shape"], tensor["dtype"]) for tensor in answer["tensors"]})
            self.assertEqual(found.configuration, answer["state"]["configuration"])

    def test_values_do_not_depend_on_the_layout(self):
        one, other = (read_step(self.made(layout)) for layout in ("single", "divided"))
        self.assertEqual(one.tensors.keys(), other.tensors.keys())
        self.assertGreater(len(other.manifest["files"]), len(one.manifest["files"]))
        for path, array in one.tensors.items():
            self.assertGreater(numpy.abs(array).max(), 0, path)
            error = numpy.linalg.norm(other.tensors[path] - array) / numpy.linalg.norm(array)
            self.assertLess(error, 1e-3, path)  # sums of fp32 in another order

    def test_inspect_heads_counts_the_pairs_of_table_4(self):
        for layout in ("single", "divided"):
            answer = json.loads(self.must(shiftron("inspect", "heads", self.made(layout), "--json")))["taps"]
            counts = {f"key_{key}_value_{value}": 0 for key in ("current", "previous") for value in ("current", "previous")}
            parameters = read_step(self.made(layout)).parameters
            pairs = []
            for layer in range(sum(name.endswith("shift_key") for name in parameters)):
                key, value = (1 / (1 + numpy.exp(-parameters[f"layers.{layer}.attention.shift_{stream}"].astype(numpy.float64)))
                              for stream in ("key", "value"))  # gate: s of the current token, 1 - s of the previous one
                for of_key, of_value in zip(key[:, 0], value[:, 0]):
                    pairs.append((of_key, of_value))
                    larger = ["current" if share > 1 - share else "previous" for share in (of_key, of_value)]
                    counts["key_{}_value_{}".format(*larger)] += 1
            self.assertEqual(answer["table4"], counts)
            numpy.testing.assert_allclose([(pair["key"][0], pair["value"][0]) for pair in answer["pairs"]], pairs, atol=1e-6)

    def test_what_does_not_fit_is_named(self):
        cases = {
            "lie in no box or in several": lambda manifest: manifest["boxes"].pop(),
            "is stated with": lambda manifest: manifest["files"][0].update(bytes=manifest["files"][0]["bytes"] + 1),
            "is stated at": lambda manifest: manifest["boxes"][0].update(byte_offset=manifest["boxes"][0]["byte_offset"] + 4),
            "and stated as": lambda manifest: manifest["tensors"][manifest["boxes"][0]["tensor"]].update(dtype="float64"),
        }
        for number, (phrase, change) in enumerate(cases.items()):
            with self.subTest(phrase):
                copy = self.folder / f"damaged-{number}"
                shutil.copytree(self.made("single"), copy)
                manifest = json.loads((copy / "manifest.json").read_text())
                change(manifest)
                (copy / "manifest.json").write_text(json.dumps(manifest))
                with self.assertRaisesRegex(Fault, phrase):
                    read_step(copy)


if __name__ == "__main__":
    unittest.main(verbosity=2)
