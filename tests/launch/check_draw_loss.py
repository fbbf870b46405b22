#!/usr/bin/env python3
"""launch/draw-loss draws, and says why it cannot."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class DrawLoss(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shiftron draw-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.run_directory = self.folder / "a run's"
        self.run_directory.mkdir()
        self.rows = [{"step": step, "tokens": 100 * step, "loss": 5 - 0.1 * step} for step in range(1, 30)]
        self.write_metrics(map(json.dumps, self.rows))

    def write_metrics(self, lines):
        (self.run_directory / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))

    def draw(self, output):
        command = [ROOT / "launch" / "draw-loss", output, self.run_directory]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_both_pictures(self):
        result = self.draw(self.folder / "it's.svg")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("<svg", (self.folder / "it's.svg").read_text())
        self.assertTrue((self.folder / "it's.png").read_bytes().startswith(b"\x89PNG"))
        self.assertEqual(len(list(self.folder.iterdir())), 3)

    def test_any_value_by_arms(self):
        """Rows of evaluations take their tokens from the rows of their steps; a value may lie within an object."""
        evaluations = [{"step": 10, "validation_loss": 4.5}, {"step": 20, "validation_loss": 3.5, "benchmarks": {"copa": {"acc": 0.5}}}]
        self.write_metrics(map(json.dumps, self.rows + evaluations))
        other = shutil.copytree(self.run_directory, self.folder / "other")
        (other / "metrics.jsonl").write_text((other / "metrics.jsonl").read_text().replace("3.5", "1.5"))
        command = [ROOT / "launch" / "draw-loss", "--value", "validation_loss", self.folder / "arms", self.run_directory, other, "--", other]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        picture = (self.folder / "arms.svg").read_text()
        for text in ("held-out loss", "arm 1", "other", "1.0k", "2.0k"):
            self.assertTrue(text in picture, text)
        command[2] = "benchmarks.copa.acc"
        self.assertEqual(subprocess.run(command, capture_output=True, check=False).returncode, 0)
        command[2] = "accuracy"
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no step of a run's has a value accuracy yet", result.stderr)

    def test_what_is_no_number_is_skipped_and_never_run(self):
        """gnuplot runs system("…"), and what stands in backticks. The rows that are left make the same picture."""
        self.assertEqual(self.draw(self.folder / "clean").returncode, 0)
        mark = self.folder / "ran"
        command = f"1 1\nEND\nsystem('touch \"{mark}\"')\n$x << END\n`touch \"{mark}\"`"
        hostile = [{"tokens": command}, {"loss": command}, {"step": command}, {"step": [1]}, {"tokens": True}, {"loss": {}}, {"loss": 10**400}]
        hostile = [json.dumps({"step": 5, "tokens": 500, "loss": 4.5} | values) for values in hostile]
        hostile += ['{"step": 6, "tokens": 1e999, "loss": 1}', '{"step": 6, "tokens": 600, "loss": NaN}', "[" * 100_000, "[6]", "cut {"]
        lines = list(map(json.dumps, self.rows))
        self.write_metrics([*lines[:9], *hostile, '{"step": 7, "loss": null}', *lines[9:], '{"step": 30, "los'])
        with open(self.run_directory / "metrics.jsonl", "r+b") as file:  # a row that is being written is not counted
            file.truncate(file.seek(-1, 2))
        result = self.draw(self.folder / "hostile")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, f"draw-loss: warning: skipped {len(hostile)} rows of {self.run_directory}/metrics.jsonl: "
                         "their step, tokens or loss is not a finite number\n")
        self.assertFalse(mark.exists())
        self.assertEqual((self.folder / "hostile.svg").read_text(), (self.folder / "clean.svg").read_text())
        self.write_metrics(hostile)
        result = self.draw(self.folder / "none")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no step of a run's has a loss yet", result.stderr)

    def test_a_hostile_name_is_only_a_name(self):
        """A run's name in gnuplot's script, in the SVG and on the terminal; a .gnuplot in the folder or at home."""
        mark = self.folder / "ran"
        for place in (self.folder / ".gnuplot", self.folder / ".config" / "gnuplot" / "gnuplotrc"):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"system('touch \"{mark}\"')\n")
        name = f"\x1b]0;x\x07<script>`touch ran`'.system('touch ran').'\n\udcff\u202e"
        self.run_directory = self.run_directory.rename(self.folder / name)
        command = [ROOT / "launch" / "draw-loss", self.folder / "loss", self.run_directory]
        result = subprocess.run(command, capture_output=True, check=False, cwd=self.folder, env=os.environ | {"HOME": str(self.folder)})
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertFalse(mark.exists())
        picture = (self.folder / "loss.svg").read_text(encoding="utf-8")
        self.assertNotRegex(picture, "<script|[\x00-\x08\x0b-\x1f\u202e]")
        self.assertIn("&lt;script>`touch ran`'.system('touch ran').' ", picture)
        (self.run_directory / "metrics.jsonl").unlink()
        result = subprocess.run(command, capture_output=True, check=False)
        self.assertNotRegex(result.stderr, b"[\x00-\x08\x0b-\x1f\x7f\xff]")
        self.assertIn(rb"\x1B]0;x\x07<script>", result.stderr)
        self.assertIn(rb"\xFF\xE2\x80\xAE", result.stderr)

    def test_an_output_that_cannot_be_opened(self):
        (self.folder / "loss.svg").mkdir()
        result = self.draw(self.folder / "loss")
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"{self.folder}/loss.svg cannot be written: Is a directory\n  next: ls -ld ", result.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["a run's", "loss.svg"])

    def test_a_full_disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "tmpfs", disk, "-o", "size=64k"]
        if subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("no right to mount")
        try:
            (disk / "loss.svg").write_text("older")
            with open(disk / "filler", "wb", 0) as stream:
                stream.write(b"x" * 2**17)  # what fits of it
            result = self.draw(disk / "loss")
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"{disk}/loss.svg cannot be written: No space left on device\n  next: df -h ", result.stderr)
            self.assertEqual((disk / "loss.svg").read_text(), "older")
            self.assertFalse((disk / "loss.svg.unfinished").exists())
        finally:
            subprocess.run(["umount", "-l", disk], check=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
