#!/usr/bin/env python3
"""launch/corpus overwrites only what it created, and does not accept an incomplete download."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "launch"))
LOADER = importlib.machinery.SourceFileLoader("corpus", str(ROOT / "launch" / "corpus"))
corpus = importlib.util.module_from_spec(importlib.util.spec_from_loader("corpus", LOADER))
LOADER.exec_module(corpus)
SOURCES = {"One Novel": [(f"Chapter {number}", f"Chapter {number}\n{'word ' * 40}\n") for number in range(20)]}
FACTS = [{"package": "a", "version": "1", "licence": "free", "copyright_sha256": "", "sha256": ""}]


class Corpus(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shiftron corpus-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = self.folder / "out of it"

    def make(self):
        """The command with packages that exist; (exit code, stderr)."""
        errors = io.StringIO()
        with (unittest.mock.patch.object(corpus, "read_sources", lambda _: (SOURCES, FACTS)), contextlib.redirect_stdout(io.StringIO()),
              contextlib.redirect_stderr(errors), unittest.mock.patch.object(sys, "argv", ["corpus", str(self.out)])):
            return corpus.main(), errors.getvalue()

    def documents(self):
        return [json.loads(line)["title"] for folder in ("train", "held-out")
                for line in (self.out / folder / "one-novel.jsonl").read_text().splitlines()]

    def test_created_again(self):
        for _ in range(2):
            self.assertEqual(self.make()[0], 0)
            self.assertEqual(sorted(self.documents()), sorted(title for title, _ in SOURCES["One Novel"]))
            (self.out / "train" / "one-novel.jsonl").write_text("cut off")

    def stays(self, name, phrase):
        """A user's file of that name in the directory, which is refused with the phrase."""
        with self.subTest(name=name):
            path = self.out / name
            path.parent.mkdir(parents=True)
            path.write_text("of the user")
            code, errors = self.make()
            self.assertEqual((code, path.read_text()), (76, "of the user"))
            self.assertIn(phrase.format(path=path, folder=path.parent, name=path.name) + "\n  next: launch/corpus DIR", errors)
            self.assertEqual([found for found in self.out.rglob("*") if found.is_file()], [path])
            shutil.rmtree(self.out)

    def test_files_of_others_stay(self):
        for name in ("train/dataset.json", "held-out/.notes"):
            self.stays(name, "{folder} contains {name}, which this command did not create")
        for name in ("train/one-novel.jsonl", "held-out.txt", "SOURCES.md", "figures.json"):
            self.stays(name, "{path} would be overwritten, and no SOURCES.md says that this command created it")

    def test_a_download_that_was_cut(self):
        self.out.mkdir()
        said = "half"

        def call(*command, cwd=None, **_):
            """apt-get, first interrupted in the middle of its file."""
            pathlib.Path(cwd, f"{command[3]}_1_all.deb").write_text(said)
            if said == "half":
                raise KeyboardInterrupt
            return subprocess.CompletedProcess(command, 0, "")

        with unittest.mock.patch.object(corpus, "call", call), contextlib.redirect_stdout(io.StringIO()):
            with self.assertRaises(KeyboardInterrupt):
                corpus.download("package", self.out)
            (self.out / "unfinished-of-a-killed-one").mkdir()
            said = "whole"
            self.assertEqual(corpus.download("package", self.out).read_text(), "whole")
        self.assertEqual([path.name for path in self.out.iterdir()], ["package_1_all.deb"])

    def fails(self, call):
        """stderr of the command where its programs answer as `call` does."""
        errors = io.StringIO()
        with (unittest.mock.patch.object(corpus, "call", call), contextlib.redirect_stdout(io.StringIO()),
              contextlib.redirect_stderr(errors), unittest.mock.patch.object(sys, "argv", ["corpus", str(self.out)])):
            self.assertEqual(corpus.main(), 1)
        return errors.getvalue()

    @staticmethod
    def answering(text, called=None):
        """A call of any program, which fails with this text."""
        def call(*command, **_):
            if called is not None:
                called.append(command)
            return subprocess.CompletedProcess(command, 100, text)
        return call

    def test_a_full_disk_is_reported(self):
        called, packages, temporary = [], f"{self.out}/packages", tempfile.gettempdir()
        errors = self.fails(self.answering("Err:1\n  Error writing to file - write (28: No space left on device)\n", called))
        self.assertIn(f"No space left on device: '{packages}'\n  next: df -h '{packages}'; launch/corpus", errors)
        self.assertEqual(len(called), 1, "newer lists of packages make no room")
        for package in ("r-cran-janeaustenr", "bible-kjv-text"):
            (self.out / "packages" / f"{package}_1_all.deb").touch()
        errors = self.fails(self.answering("tar: Cannot write: No space left on device\n"))
        self.assertIn(f"No space left on device: '{temporary}'\n  next: df -h {temporary}; launch/corpus", errors)

    def test_other_faults_of_packages(self):
        errors = self.fails(self.answering("E: Unable to locate package\n"))
        self.assertIn("next: apt-get update && apt-get download r-cran-janeaustenr", errors)

    def test_a_folder_that_cannot_be_made(self):
        self.out.write_text("mine")
        code, errors = self.make()
        self.assertEqual(code, 1)
        self.assertIn(f"next: ls -ld '{self.out}/packages'; launch/corpus", errors)


if __name__ == "__main__":
    unittest.main(verbosity=2)
