#!/usr/bin/env python3
"""benchmarks/*.py refuse what they cannot measure with a message, before they measure anything."""
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import record  # pylint: disable=wrong-import-position,import-error
import report  # pylint: disable=wrong-import-position,import-error

ABSENT = "/absent/program"
REFUSED = [
    (["record.py", "--busy", "name", ABSENT], f"record: no program at {ABSENT}\n  next: cmake"),
    (["record.py", "--busy", "name", "echo", "text"], "record: echo text printed no JSON"),
    (["vs_pytorch.py", "30m", "--variant", "bf16-eager"], "--variant bf16-eager: the variants of fp32 are fp32-eager"),
    (["vs_pytorch.py", "30m", "--blocks", "0"], "argument --blocks: 0 is less than 1"),
    (["vs_pytorch.py", "30m", "--train-steps", ABSENT], f"vs_pytorch: no program at {ABSENT}"),
    (["vs_pytorch.py", "of-nobody"], "vs_pytorch: no model of-nobody"),
    (["parallel_efficiency.py", "30m", "--data", ".", "--busy", "--layout", "tp2"], "no layout 'tp2'; layouts: 'tp 2', 'dp 2'"),
    (["parallel_efficiency.py", "30m", "--data", ".", "--steps", "1"], "argument --steps: 1 is less than 2"),
    (["parallel_efficiency.py", "of-nobody", "--data", "."], "no model of-nobody"),
    (["checkpoint_vs_pytorch.py", "of-nobody"], "checkpoint_vs_pytorch: no model of-nobody"),
    (["checkpoint_vs_pytorch.py", "30m", "--directory", ".", "--busy", "--checkpoint-files", ABSENT], f"no program at {ABSENT}")]


class Measurements(unittest.TestCase):
    def run_script(self, *words, path=""):
        return subprocess.run([sys.executable, "-B", ROOT / "benchmarks" / words[0], *words[1:]], capture_output=True, text=True, check=False,
                              cwd=tempfile.gettempdir(), env=os.environ | {"PYTHONPATH": path}, timeout=100)

    def test_words_that_name_nothing(self):
        with tempfile.TemporaryDirectory() as modules:  # in place of those that the scripts do not reach
            for name in ("h5py", "numpy"):
                pathlib.Path(modules, f"{name}.py").touch()
            for words, message in REFUSED:
                with self.subTest(words=words):
                    done = self.run_script(*words, path=modules)
                    self.assertIn(message, done.stderr)
                    self.assertNotIn("Traceback", done.stderr)
                    self.assertIn(done.returncode, (1, 2))

    def test_a_python_without_modules(self):
        with tempfile.TemporaryDirectory() as modules:
            pathlib.Path(modules, "h5py.py").write_text("raise ImportError('no h5py')")
            done = self.run_script("vs_pytorch.py", "30m", path=modules)
        self.assertEqual((done.returncode, done.stderr.split(",")[0]), (1, "vs_pytorch: no h5py\n  next: launch/install-deps --benchmarks"))

    def test_a_kept_command_is_words_of_a_shell(self):
        self.assertEqual(record.command_text([record.ROOT / "launch" / "local", 2, "--layout", "tp 2"]), "launch/local 2 --layout 'tp 2'")

    def test_a_difference_that_is_no_number_is_the_largest(self):
        for differences in ([1e-6, math.nan, 2e-6], [math.nan, 1e-6], [1e-6, math.nan]):
            self.assertFalse(record.largest(differences) <= 1e-4)
        self.assertEqual(record.largest([1e-6, 3e-6, 2e-6]), 3e-6)

    def test_the_fastest_other_is_that_of_the_least_ratio(self):
        sides = {"shiftron": {"tokens_per_second": 90.0, "speed_of_shiftron_over_it": 1.0},
                 "a": {"tokens_per_second": 60.0, "speed_of_shiftron_over_it": 1.55},
                 "b": {"tokens_per_second": 58.0, "speed_of_shiftron_over_it": 1.45}}
        self.assertEqual(report.fastest_other({"result": {"sides": sides}})[0], "b")

    def test_machines_have_names_that_tell_them_apart(self):
        def machine(family, model, instructions, processor="AMD EPYC", **more):
            return {"processor": processor, "family": family, "model": model, "instructions": ["avx2", *instructions], **more}
        avx512 = ["avx512f", "avx512_bf16"]
        machines = [machine("26", "2", avx512), machine("25", "17", avx512), machine("25", "1", []), machine("26", "17", avx512),
                    machine("6", "207", [*avx512, "amx_bf16"], "Intel(R) Xeon(R) Processor", gpu="NVIDIA H200, 580.1"),
                    machine("6", "143", [*avx512, "amx_bf16"], "Intel(R) Xeon(R) Processor"),
                    machine("6", "85", ["avx512f"], "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz"), machine("6", "200", ["avx10"], "Other(R)")]
        self.assertEqual(report.machine_names(machines), [
            "EPYC Zen 5 (AVX-512), no. 1", "EPYC Zen 4 (AVX-512)", "EPYC Zen 3 (AVX2)", "EPYC Zen 5 (AVX-512), no. 2", "H200",
            "Xeon Sapphire Rapids (AMX)", "Intel Xeon Gold 6130 CPU @ 2.10GHz family 6 model 85 (AVX-512)", "Other family 6 model 200 (avx10)"])
        kept = report.Results(ROOT / "benchmarks" / "results")
        self.assertEqual(len(set(kept.names)), len(kept.machines))

    def test_memory_is_reported_without_machinery(self):
        self.assertEqual(report.memory_of({"own_bytes": 10, "machinery_bytes": 3}), 7)
        self.assertEqual(report.memory_of({"own_bytes": 10, "device_bytes": 5}), 5)
        self.assertFalse(report.has_machinery({"result": {"sides": {"shiftron": {"own_bytes": 10}}}}))

    def test_text_of_results_is_only_text(self):
        """gnuplot runs what stands in backticks of a double-quoted text; the script ends up in a comment of the SVG."""
        evil = '"; system("touch ran"); "`touch ran`\\\n--><script>|'
        script = report.speed_picture.script([(evil, evil, 1.5, (1, 2))])
        self.assertNotRegex(script, r"[`\\]|-->")
        quoted = "; system(touch ran); touch ran- -><script>|"
        self.assertEqual(script.count('"'), script.replace(f'"{quoted}"', '""').count('"'))
        self.assertEqual(script.count(f'"{quoted}"'), 3)
        with self.assertRaises((TypeError, ValueError)):
            report.speed_picture.script([("a", "b", 1.5, ("system('touch ran')", 2))])
        self.assertEqual(list(report.table(["a"], [["x|y\n<b>"]]))[2], r"| x\|y \<b> |")


if __name__ == "__main__":
    unittest.main(verbosity=2)
