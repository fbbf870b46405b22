#!/usr/bin/env python3
"""What `cmake --install` leaves runs by itself: the program, commands on the PATH, man pages, completion; also where a library has a folder of its own.

    tests/launch/check_install.py BUILD
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ELSEWHERE = """cmake_minimum_required(VERSION 3.25)
project(elsewhere LANGUAGES C)
add_executable(shiftron main.c)
target_link_libraries(shiftron PRIVATE ${LIBRARY})
include(cmake/install.cmake)
"""
# Words after `shiftron`, the last one is being completed; what must be among the answers.
COMPLETIONS = [(["tr"], ["train"]), (["data", ""], ["build", "generate"]), (["evaluate", "com"], ["compare"]), (["train", "--dry"], ["--dry-run"]),
               (["train", "--optimizer.learning_"], ["--optimizer.learning_rate"]), (["train", "--shift.form", ""], ["free", "gate"]),
               (["train", "--shift.form", "=", "cl"], ["clamp"]), (["help", "checkpoint", "ver"], ["verify"]), (["--ver"], ["--version"]),
               (["train", "--config", "fi"], ["first", "file.conf"]), (["checkpoint", "list", "fir"], ["first"])]


def check_library_elsewhere():
    """Of a program of one library, by the project's own rules of installation."""
    with tempfile.TemporaryDirectory() as scratch:
        sources, library = pathlib.Path(scratch, "sources"), pathlib.Path(scratch, "folder", "libown.so")
        for folder in (sources, library.parent):
            folder.mkdir()
        for path in ROOT.iterdir():
            if path.name[0] != "." and path.name not in ("build", "CMakeLists.txt"):
                (sources / path.name).symlink_to(path)
        (sources / "CMakeLists.txt").write_text(ELSEWHERE)
        (sources / "main.c").write_text("int own(void); int main(void) { return own(); }")
        subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", library], input="int own(void) { return 23; }", text=True, check=True)
        subprocess.run(["cmake", "-S", sources, "-B", f"{scratch}/build", f"-DLIBRARY={library}"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", f"{scratch}/build"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--install", f"{scratch}/build", "--prefix", f"{scratch}/installed"], check=True, stdout=subprocess.DEVNULL)
        ran = subprocess.run([f"{scratch}/installed/bin/shiftron"], capture_output=True, text=True, check=False)
        assert ran.returncode == 23, ran


def check_commands(prefix, run):
    """Every command of PREFIX/bin, called by its name alone. `run` calls a command and returns its output."""
    configs, data = prefix / "share" / "shiftron" / "configs", prefix / "data"
    data.mkdir()
    (data / "dataset.json").write_text("{}")  # a plan needs no more of it
    names = {path.name for path in (prefix / "bin").iterdir()}
    assert names >= {"shiftron", "shiftron-local", "shiftron-slurm", "shiftron-seeds", "shiftron-draw-loss"}, names
    for name in names:
        text = run(name, "--help")
        assert f"{name} " in text and "launch/" not in text.replace("launch/install-deps", ""), text
    plan = ["--data.train", data, "--output.directory", f"{prefix}/run"]
    assert str(prefix / "bin" / "shiftron") in run("shiftron-slurm", configs / "toy.conf", "--nodes", "1", "--tasks-per-node", "1", "--time", "10",
                                                   "--dry-run", *plan)
    assert "parameters" in run("shiftron-local", "1", "train", "--config", configs / "toy.conf", "--dry-run", *plan)
    for words, advice in ((["shiftron-seeds"], "next: shiftron-seeds N"), (["shiftron-local", "0", "x"], "next: shiftron-local 4")):
        assert advice in run(*words, code=76)
    metrics = prefix / "first" / "metrics.jsonl"
    metrics.write_text('{"step": 1, "tokens": 8, "loss": 2}\n')
    (metrics.parent / "config.conf").write_text("[train]\nseed = 1\n")
    assert "mean 2.0000" in run("shiftron", "compare", metrics.parent, "--", metrics.parent, "--metric", "loss")
    if shutil.which("gnuplot"):
        assert "loss.svg" in run("shiftron-draw-loss", f"{prefix}/loss", metrics.parent)
    (prefix / "share" / "shiftron" / "launch" / "paired.py").write_text("raise SystemExit(23)")  # the installed scripts are used, not those of the sources
    run("shiftron", "compare", metrics.parent, "--", metrics.parent, code=23)


def check_version(prefix, run):
    """All places name one version."""
    version = re.search(r"project\(shiftron VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    places = {"--version": run("shiftron", "--version").split()[1], "man page": re.search(r'"Shiftron ([^"]*)"', (prefix / "share/man/man1/shiftron.1").read_text())[1],
              "CITATION.cff": re.search(r"(?m)^version: (.*)$", (ROOT / "CITATION.cff").read_text())[1],
              "CHANGELOG.md": re.search(r"(?m)^## .*?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text())[1]}
    assert set(places.values()) == {version}, (version, places)


def check_pages(prefix):
    pages = sorted((prefix / "share/man/man1").iterdir())
    names = {page.name for page in pages}
    assert names >= {"shiftron.1", "shiftron-train.1", "shiftron-data-build.1", "shiftron-local.1", "shiftron-draw-loss.1"}, names
    if shutil.which("man"):
        for page in pages:
            ran = subprocess.run(["man", "-l", "--warnings", page], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
            assert not ran.stderr and "NAME" in ran.stdout, (page, ran.stderr)


def check_completion(prefix):
    (prefix / "first").mkdir()
    (prefix / "file.conf").touch()
    for words, expected in COMPLETIONS:
        shown = " ".join(f"'{word}'" for word in ["shiftron", *words])
        script = f"source share/bash-completion/completions/shiftron; COMP_WORDS=({shown}); COMP_CWORD={len(words)}; _shiftron; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        ran = subprocess.run(["bash", "-uc", script], cwd=prefix, capture_output=True, text=True, check=True)
        assert not ran.stderr and set(expected) <= set(ran.stdout.splitlines()), (words, ran.stdout[:500], ran.stderr)


def main():
    check_library_elsewhere()
    with tempfile.TemporaryDirectory() as scratch:
        prefix = pathlib.Path(scratch)
        subprocess.run(["cmake", "--install", sys.argv[1], "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SHIFTRON")}
        environment["PATH"] = f"{prefix}/bin:{environment['PATH']}"

        def run(*words, code=0):
            ran = subprocess.run(words, env=environment, cwd=prefix, capture_output=True, text=True, check=False)
            assert ran.returncode == code, (words, ran)
            return ran.stdout + ran.stderr

        for name in ("README.md", "LICENSE", "NOTICE", "CHANGELOG.md", "CITATION.cff", "docs/running.md"):
            assert (prefix / "share/doc/shiftron" / name).is_file(), name
        check_version(prefix, run)
        check_pages(prefix)
        check_completion(prefix)
        check_commands(prefix, run)
        assert not list(prefix.rglob("__pycache__")), "bytecode among the installed files"


main()
