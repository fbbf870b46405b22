#!/usr/bin/env python3
"""launch/draw-loss draws, and says why it cannot."""
import json
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
        rows = [{"step": step, "tokens": 100 * step, "loss": 5 - 0.1 * step} for step in range(1, 30)]
        (self.run_directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def draw(self, output):
        command = [ROOT / "launch" / "draw-loss", output, self.run_directory]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_both_pictures(self):
        result = self.draw(self.folder / "it's.svg")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("<svg", (self.folder / "it's.svg").read_text())
        self.assertTrue((self.folder / "it's.png").read_bytes().startswith(b"\x89PNG"))
        self.assertEqual(len(list(self.folder.iterdir())), 3)

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
