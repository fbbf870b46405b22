#!/usr/bin/env python3
"""Fails on a path or an anchor in the documents that does not exist, and on an absolute path of some machine in any file.

A path is: a link's target; a word in backticks that starts with a folder of the project or of src/, that ends in "/" or in a
suffix after a "/", or that is a document of the root; in a code block, a word that starts with a folder of the project.
`*` and `{a,b}` are patterns. A part in CAPITALS is a placeholder, build/ and quickstart/ are created by commands: not checked.
"""
import functools
import itertools
import pathlib
import re
import subprocess
import sys

FOLDERS = {".ci", ".github", "benchmarks", "cmake", "configs", "docs", "experiments", "launch", "src", "tests"}
MADE = {"build", "quickstart"}
WORD = re.compile(r"[\w.*{},-]+(?:/[\w.*{},@-]+)*/?")
ROOT_DOCUMENT = re.compile(r"[A-Z]+\.md|CITATION\.cff|CMakeLists\.txt|CMakePresets\.json")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:home|root|work|farm|tmp|mnt|media|Users|workspace)/\w")


def documents(root):
    names = ("ARCHITECTURE.md", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "experiments/README.md")
    return [path for path in (root / name for name in names) if path.exists()] + sorted((root / ".github").glob("**/*.md")) \
        + sorted((root / "docs").glob("**/*.md"))


def expand(pattern):
    """`a{b,c}` -> ab, ac."""
    parts = re.split(r"\{([^{}]*)\}", pattern)
    options = [part.split(",") if place % 2 else [part] for place, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*options)]


def is_placeholder(word):
    return any(re.fullmatch(r"[A-Z][A-Z0-9_-]*(\..*)?", part) for part in word.rstrip("/").split("/")[:-1]) or \
        re.fullmatch(r"[A-Z][A-Z0-9_-]*", word.rstrip("/").split("/")[-1]) is not None


def exists(root, word):
    for base in (root, root / "src"):
        for one in expand(word.rstrip("/")):
            found = list(base.glob(one)) if "*" in one else [base / one] if (base / one).exists() else []
            if not found:
                break
        else:
            return True
    return False


def words_of(root, text):
    """(line number, word) of every path that the text names."""
    fenced = False
    source_folders = {path.name for path in (root / "src").iterdir() if path.is_dir()}
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        spans = [line.split(" #")[0]] if fenced else re.findall(r"`([^`]+)`", line)
        for word in (word.strip(",;:()\"'") for span in spans for word in span.split()):
            if not WORD.fullmatch(word) or is_placeholder(word):
                continue
            first, last = word.split("/")[0], word.split("/")[-1]
            in_project = "/" in word and first in FOLDERS
            looks_like_one = "/" in word and (first in source_folders or not last or re.search(r"\.[a-z]+$", last))
            if first not in MADE and (in_project or not fenced and (looks_like_one or ROOT_DOCUMENT.fullmatch(word))):
                yield number, word


def files(root):
    """Names of all files that git does not ignore; where git knows nothing of them, as in a tarball, of all that nothing made."""
    # Without the rule by which git refuses folders of other users: nothing is executed there.
    listed = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True,
                            check=False)
    if listed.returncode == 0:
        return listed.stdout.splitlines()
    return [str(path.relative_to(root)) for path in sorted(root.rglob("*")) if path.relative_to(root).parts[0] not in MADE | {".git"}]


@functools.lru_cache(maxsize=None)  # most pages are the target of many links
def anchors(page):
    """The names that hosting platforms give to the headings of a page."""
    headings = re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?s)```.*?```", "", page.read_text(encoding="utf-8")))
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in plain}


def link_faults(document, text):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?[^)]*\)", re.sub(r"(?s)```.*?```", "", text)):
        if re.match(r"[a-z]+:", target):
            continue
        page = document.parent / target if target else document
        if not page.exists():
            yield f"the link to {target} leads nowhere"
        elif anchor and page.suffix == ".md" and anchor not in anchors(page.resolve()):
            yield f"{target or document.name} has no heading for the link to #{anchor}"


def faults(root):
    for document in documents(root):
        text = document.read_text(encoding="utf-8")
        name = document.relative_to(root)
        for number, word in words_of(root, text):
            if not exists(root, word):
                yield f"{name}:{number}: {word} does not exist"
        for fault in link_faults(document, text):
            yield f"{name}: {fault}"
    for line in files(root):
        path = root / line
        if not path.is_file() or path.suffix in {".h5", ".png", ".model"}:
            continue
        for number, text in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if MACHINE_PATH.search(text):
                yield f"{line}:{number}: path of a machine: {text.strip()[:100]}"


if __name__ == "__main__":
    found = list(faults(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
    print("\n".join(found) or "documents: no fault")
    sys.exit(bool(found))
