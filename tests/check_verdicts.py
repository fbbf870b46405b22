#!/usr/bin/env python3
"""What tests/run.py says of small ctest projects, tests/check_mutants.py of patches that name no test, and tests/check_paths.py of sources
outside git."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parent
NEVER = "5000000"  # CPU seconds


def ctest_project(folder, **commands):
    """A build folder whose tests are these shell commands, in this order."""
    folder.mkdir()
    lines = []
    for name, command in commands.items():
        lines += [f'add_test({name} "sh" "-c" "{command}")', f'set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77 RESOURCE_LOCK one)']
    (folder / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
    return folder


class Verdicts(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def run_tests(self, build, *words, budget=NEVER):
        done = subprocess.run([sys.executable, "-B", TESTS / "run.py", build, "60", budget, *words], capture_output=True, text=True, check=False,
                              env=os.environ | {"SHIFTRON_TEST_TIME_SCALE": "1"})
        return done.returncode, done.stdout.splitlines()[-1], done.stdout

    def test_what_was_skipped_has_not_passed(self):
        code, last, text = self.run_tests(ctest_project(self.folder / "build", works="true", cannot="exit 77"))
        self.assertEqual((code, last), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertRegex(text, r"cannot \(Skipped\)")

    def test_what_failed_has(self):
        build = ctest_project(self.folder / "build", works="true", breaks="echo '9/9 Test #9: a .***Skipped'; false", cannot="exit 77")
        code, last, _ = self.run_tests(build)
        self.assertEqual((code != 0, last), (True, "1 passed, 1 failed, 1 skipped"))
        code, last, _ = self.run_tests(ctest_project(self.folder / "other", works="true"), "--with", build, "none")
        self.assertEqual((code, last), (0, "1 passed, 0 failed"))

    def test_what_an_exceeded_budget_ended(self):
        build = ctest_project(self.folder / "build", works="true", cannot="exit 77", computes="i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done",
                              waits="sleep 50")
        code, last, text = self.run_tests(build, budget="0.1")
        self.assertNotIn("tests passed", text)  # ctest itself had no time to count
        self.assertEqual((code, last), (1, "2 passed, 0 failed, 1 skipped"))

    def check_mutant(self, line):
        build = self.folder / "release"
        program = build / "tests" / "core_tests"
        if not build.exists():
            ctest_project(build, system_kills="true")
            program.parent.mkdir()
            program.write_text("#!/bin/sh\nprintf 'Arena.\\n  Grows\\nSizes/Ledger.  # TypeParam = int\\n  Adds/eager  # GetParam() = 1\\n'\n")
            program.chmod(0o755)
        patch = self.folder / "one.patch"
        patch.write_text(f"# killed by: {line}\n")
        done = subprocess.run([sys.executable, "-B", TESTS / "check_mutants.py", TESTS.parent, build, patch], capture_output=True, text=True,
                              check=False)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return re.findall(r"no such test: (.+)", done.stdout)

    def test_mutants_that_no_test_can_kill(self):
        for line in ("core_tests Arena.Grows", "core_tests Arena.*, *Ledger.Adds/*", "core_tests Sizes/Ledger.Adds/{order}", "core_tests -Arena.*",
                     "thread/core_tests Arena.*", "shiftron system_kills", "slurm Slurm.test_limits", "data_tests Build.*"):
            self.assertEqual(self.check_mutant(line), [], line)
        for line, absent in (("core_tests Arena.A*", "core_tests Arena.A*"), ("core_tests Ledger.*", "core_tests Ledger.*"),
                             ("core_tests Arena.*, Area.*", "core_tests Area.*"), ("shiftron system_kill", "shiftron system_kill"),
                             ("slurm Slurm.test_limit", "slurm Slurm.test_limit"), ("slurm Slum.test_limits", "slurm Slum.test_limits")):
            self.assertEqual(self.check_mutant(line), [absent], line)

    def test_paths_of_a_machine_are_found_in_a_tarball(self):
        (self.folder / "src").mkdir()
        (self.folder / "src" / "file.h").write_text("// in /" + "home/somebody\n")
        done = subprocess.run([sys.executable, "-B", TESTS / "check_paths.py", self.folder], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout.split(": ")[:2]), (1, ["src/file.h:1", "path of a machine"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
