#!/usr/bin/env python3
"""Fails if the documents and the program disagree on commands, configuration keys or exit codes, if the program refuses the
configuration of a training command in a document, or if the project's version differs between files.

    tests/check_promises.py PROGRAM [ROOT]            checks
    tests/check_promises.py PROGRAM [ROOT] --write    updates the table of docs/configuration.md
"""
import json
import pathlib
import re
import subprocess
import sys

BEGIN, END = "<!-- keys: written by tests/check_promises.py --write -->", "<!-- end of keys -->"
RESERVED = "reserved"
NO_KEYS = {"section.key", "model.safetensors"}  # which look like one


def output(program, *words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout


def help_of(program):
    """The commands and the configuration keys, as src/cli/help.cpp prints them."""
    return json.loads(output(program, "--help", "json"))


def training_commands(text):
    """[(ranks or "", words)] of `train --config configs/…` in a document, without what stands for other words."""
    lines = re.sub(r"\s*\\\n\s*", " ", text)
    return [(ranks, [word for word in words.split() if word != "…"]) for ranks, words in
            re.findall(r"(?:launch/local (\d+)|[Ss][Hh][Ii][Ff][Tt][Rr][Oo][Nn]) train((?: --config configs/[\w./-]+)+[^\n`|#]*)", lines)]


def refusal(program, root, ranks, words):
    """Of the configuration, by --dry-run; None if it is taken."""
    answer = ["--ranks", ranks] if ranks else []
    done = subprocess.run([program, "train", *words, *answer, *(["--dry-run"] if "--dry-run" not in words else [])], capture_output=True, text=True,
                          cwd=root, check=False)
    return None if done.returncode == 0 else " ".join(done.stderr.split())


def table(program):
    rows = []
    for key in help_of(program)["keys"]:
        default = "required" if key["required"] else f"`{key['default']}`" if key["default"] else ""
        rows.append("| `{}` | {} | {} | {} |".format(key["name"], key["argument"].replace("|", " \\| "), default, key["help"]))
    return "\n".join(["| key | values | default | meaning |", "|---|---|---|---|", *rows])


def faults(program, root):
    pages = {path.name: path.read_text() for path in [root / "README.md", root / "CONTRIBUTING.md", root / "ARCHITECTURE.md", root / "SECURITY.md",
                                                      *sorted((root / "docs").glob("*.md"))] if path.exists()}
    readme = pages["README.md"]
    documents = "".join(text for name, text in pages.items() if name not in ("CONTRIBUTING.md", "ARCHITECTURE.md"))

    commands = [command["name"] for command in help_of(program)["commands"]]
    named = set()
    for words in re.findall(r"shiftron ([a-z]+(?:-[a-z]+)*(?: [a-z]+)?)", documents):
        first = words.split()[0]
        found = words if words in commands else first if first in commands else ""
        if found:
            named.add(found)
        elif any(command.split()[0] == first for command in commands) or f"shiftron {words} -" in documents:
            yield f"a document names `shiftron {words}`, which is no command"
    for command in commands:
        if command not in named:
            yield f"no document names `shiftron {command}`"

    source = re.search(r"enum class ExitCode : int \{(.*?)\};", (root / "src/core/check.h").read_text(), re.S)[1]
    codes = {int(number): name for name, number in re.findall(r"(\w+) = (\d+)", source)}
    answer = {int(number): meaning for number, meaning in re.findall(r"^\| (\d+) \| (.+) \|$", readme, re.M)}
    for number in sorted(set(codes) ^ set(answer)):
        yield f"exit code {number} is " + ("not in README.md" if number in codes else "not in src/core/check.h")
    program_text = "".join(path.read_text() for path in (root / "src").rglob("*.cpp"))
    left_by_jobs = re.findall(r"\bleave (\d+)", (root / "launch/slurm-job.sh").read_text())
    for number, name in codes.items():
        used = f"ExitCode::{name}" in program_text or str(number) in left_by_jobs
        if number in answer and used == (RESERVED in answer[number]):
            yield f"README.md on exit code {number}: " + ("it is returned" if used else f"nothing returns it, which must be called {RESERVED}")

    version = re.search(r"^project\(\w+ VERSION (\S+)", (root / "CMakeLists.txt").read_text(), re.M)[1]
    for name, line in (("CITATION.cff", rf"^version: {re.escape(version)}$"), ("CHANGELOG.md", rf"^## \[.*\b{re.escape(version)}\b")):
        if not re.search(line, (root / name).read_text(), re.M):
            yield f"{name} does not name the version of CMakeLists.txt, {version}"

    module = (root / "src/interchange/modeling_kv_shift_llama.py").read_text()
    tested = re.search(r"^TESTED = \((.*?)\)", module, re.M)[1].replace('"', "")
    if f"transformers {tested}" not in (root / "docs/interchange.md").read_text():
        yield f"docs/interchange.md does not say that exports are tested with transformers {tested}, as the code of their model does"

    listed = [key["name"] for key in help_of(program)["keys"]]
    stated = re.findall(r'option\(\s*"([a-z_]+\.[a-z_]+)"', (root / "src/config/options.cpp").read_text())
    for key in sorted(set(listed) ^ set(stated)):
        yield f"{key} is " + ("not in src/config/options.cpp" if key in listed else "not in `shiftron --help json`")
    page = (root / "docs/configuration.md").read_text()
    if page[page.index(BEGIN) + len(BEGIN):page.index(END)].strip() != table(program):
        yield "docs/configuration.md is not what `shiftron --help json` says: run tests/check_promises.py PROGRAM . --write"
    sections = {key.split(".")[0] for key in listed}
    for name, text in pages.items():
        in_backticks = [word for word in re.findall(r"`([a-z]+\.[a-z_]+)`", text) if word.split(".")[0] in sections]
        for word in sorted(set(re.findall(r"--([a-z]+\.[a-z_]+)", text) + in_backticks) - NO_KEYS - set(listed)):
            yield f"{name} names {word}, which is no key"
        for ranks, words in training_commands(text):
            if refused := refusal(program, root, ranks, words):
                yield f"{name}: `train {' '.join(words)}` is refused: {refused}"


def write(program, root):
    path = root / "docs/configuration.md"
    page = path.read_text()
    path.write_text(page[:page.index(BEGIN) + len(BEGIN)] + "\n" + table(program) + "\n" + page[page.index(END):])


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--write"]
    where = pathlib.Path(words[1] if len(words) > 1 else ".").resolve()
    if "--write" in sys.argv:
        write(words[0], where)
    found = list(faults(words[0], where))
    print("\n".join(found) or "promises: no fault")
    sys.exit(bool(found))
