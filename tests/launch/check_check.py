#!/usr/bin/env python3
"""What launch/check chooses for a change, in which order it runs it, and that it fails if a test does.

    tests/launch/check_check.py
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHECK = ROOT / "launch" / "check"


def load():
    loader = importlib.machinery.SourceFileLoader("check", str(CHECK))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
    loader.exec_module(module)
    return module


class Check(unittest.TestCase):
    def chosen(self, *files):
        ran = subprocess.run([CHECK, "--list", *[ROOT / name for name in files]], capture_output=True, text=True, check=True)
        return [line.split("  ") for line in ran.stdout.splitlines()]

    def test_own_folder_comes_first(self):
        chosen = self.chosen("src/train/engine.cpp")
        self.assertEqual(chosen[0][1], "train_tests")
        self.assertIn(["1", "preflight_tests", "tests/preflight/preflight_test.cpp"], chosen)
        self.assertLessEqual(len({program for _, program, _ in chosen}), 3)

    def test_an_implementation_that_nobody_includes(self):
        chosen = self.chosen("src/kernels/swiglu_cpu.cpp")
        self.assertEqual({program for _, program, _ in chosen}, {"kernels_tests"})
        self.assertEqual(chosen[0][0], "1", "a test that names it comes first")

    def test_a_test_file_is_nearest_to_itself(self):
        self.assertEqual(self.chosen("tests/core/hash_test.cpp"), [["0", "core_tests", "tests/core/hash_test.cpp"]])

    def test_a_file_elsewhere(self):
        ran = subprocess.run([CHECK, "/etc/passwd"], capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("/etc/passwd is not in", ran.stderr)

    def test_a_red_test_and_one_without_time(self):
        module = load()
        with tempfile.TemporaryDirectory() as folder:
            module.BUILD = pathlib.Path(folder)
            (module.BUILD / "tests").mkdir()
            for name, script in (("core_tests", "exit 0"), ("data_tests", "echo broken; exit 1"), ("cli_tests", "exec sleep 5")):
                (module.BUILD / "tests" / name).write_text(f"#!/bin/sh\n{script}\n")
                (module.BUILD / "tests" / name).chmod(0o755)
            taken = [(f"tests/{folder}/x_test", 1, ROOT / "tests/core/hash_test.cpp") for folder in ("core", "data", "cli", "cli", "core")]
            shown, times = io.StringIO(), {}
            with contextlib.redirect_stdout(shown):
                failed, late = module.run_tests(taken, 1, times)
            self.assertEqual((failed, sorted(late)), (["tests/data/x_test"], ["tests/cli/x_test", "tests/cli/x_test", "tests/core/x_test"]))
            self.assertIn("broken", shown.getvalue())
            self.assertEqual(times["tests/cli/x_test"], 2, "so long that the next call runs parts of it")
            with contextlib.redirect_stdout(shown):
                module.run_tests(taken[:1], 1, {"tests/core/x_test": 1})
            self.assertRegex(shown.getvalue(), r"hash_test.cpp, part [1-4] of 4")

    def test_short_neighbours_share_a_process(self):
        taken = [(f"tests/{name}_test", 1, ROOT / f"tests/{name}_test.cpp") for name in ("core/a", "core/b", "core/c", "core/long", "data/a", "data/new")]
        times = {"tests/core/a_test": 1, "tests/core/b_test": 1, "tests/core/c_test": 4, "tests/core/long_test": 9, "tests/data/a_test": 1}
        groups = [[test.split("/", 1)[1] for test, _ in group] for group in load().grouped(taken, 40, times)]
        self.assertEqual(groups, [["core/a_test", "core/b_test"], ["core/c_test"], ["core/long_test"], ["data/a_test"], ["data/new_test"]])


if __name__ == "__main__":
    unittest.main()
