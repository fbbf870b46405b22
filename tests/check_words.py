#!/usr/bin/env python3
"""Fails on words that a reader stumbles over (`behind` for `after`) and names better ones.

    tests/check_words.py ROOT            checks the pages
    tests/check_words.py --self-test     checks this script

What is read: of pages all but code spans, code blocks, HTML comments and the targets of links; of C++ the comments, in src/ the strings too; of
Python the comments and strings, in tests/ only the comments and docstrings, because tests also quote the program; of JSON all but the keys; of
all other files (shell, CMake, configurations) everything.
"""
import fnmatch
import io
import pathlib
import re
import sys
import tokenize

TEXTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/*.md", "CMakeLists.txt", "cmake/*", "configs/**/*.conf", ".ci/*", ".github/**/*.*",
         "launch/*", "experiments/run", *(f"experiments/**/{name}" for name in ("README.md", "*.py", "*.json", "*.conf")),
         *(f"{folder}/**/*.{suffix}" for folder in ("src", "tests", "benchmarks") for suffix in ("cpp", "h", "cu")),
         *(f"{folder}/**/{name}" for folder in ("tests", "benchmarks") for name in ("*.py", "*.sh", "run", "headers", "mutants", "CMakeLists.txt"))]
CODE = (".cpp", ".h", ".cu")

WORDS = [  # (pattern, what to write instead); a space also matches the end of a line
    (r"behind", "after"),
    (r"besides?", "next to, with, in addition to"),
    (r"anew", "again, from the start"),
    (r"alike", "the same, identical"),
    (r"go(?:es|ing)? on|went on|gone on", "continues, resumes"),
    (r"(?:make|makes|making|made) again", "recomputed, rebuilt"),
    (r"of (?:its|their|his|our|one's) own making", "its own"),
    (r"software machine", "emulator"),
    (r"without a word", "silently, without a message"),
    (r"told", "reported, printed"),
    (r"amid", "during, in the middle of"),
    (r"who(?:so)?ever", "anyone who, those who"),
    (r"mend(?:s|ed|ing)?", "fix"),
    (r"by turns", "alternately, interleaved"),
    (r"but for", "except, apart from"),
    (r"in vain", "without success"),
    (r"(?:held|hold|holds) against", "compared with, checked against"),
    (r"as (?:it lies|they lie)", "in place, in the stored layout"),
    (r"(?:that|which) (?:is|are) there", "that exists"),
]

FINE = [r"(?:hides?|hid|hidden|hiding|falls?|falling|fell|lags?|lagging) behind", r"told apart"]  # patterns that are what they seem

EXEMPTIONS = [  # (page or pattern of pages, exact text, reason)
    ("experiments/definition.py", '"alike"', "a key of experiment.json"),
    ("experiments/judge.py", '"alike"', "a key of experiment.json"),
    ("src/preflight/preflight.cpp", '"behind"', "of clocks"),
]


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def spaced(pattern):
    return re.compile(rf"\b(?:{pattern})\b".replace(" ", r"\s+"), re.I)


CPP_PARTS = re.compile(r'''(?sx) //[^\n]* | R"(?P<mark>\w*)\(.*?\)(?P=mark)" | "(?:[^"\\\n]|\\.)*" | (?<!\w)'(?:[^'\\\n]|\\.)+' ''')


def cpp_prose(text, strings):
    """The comments of C++, with `strings` its strings too. Marks and escapes become blanks, so that a sentence runs on over lines."""
    kept, end = [], 0
    for match in CPP_PARTS.finditer(text):
        part = match.group()
        if part.startswith("//"):
            part = "  " + part[2:]
        elif part.startswith("'") or not strings:
            part = blank(match)
        else:
            part = re.sub(r'^R?"|"$|\\[^\n]', blank, part)
        kept += [re.sub(r"[^\n]", " ", text[end:match.start()]), part]
        end = match.end()
    return "".join(kept) + re.sub(r"[^\n]", " ", text[end:])


def python_prose(text, strings):
    """The comments and docstrings of a Python script, with `strings` all its strings; escapes and the {expressions} of strings become blanks."""
    lines = [" " * len(line) for line in text.split("\n")]
    before = tokenize.NEWLINE  # the last token that is neither a comment nor an empty line
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        is_string = token.type in (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", None))
        if token.type == tokenize.COMMENT or is_docstring or is_string and strings:
            marks = r"\\[^\n]|\{[^{}\n]*\}|^\w*['\"]+|['\"]+$" if is_string else "^#"  # the last two: the quotes, between which a sentence runs on
            inside = re.sub(marks, blank, token.string)
            for at, part in enumerate(inside.split("\n"), token.start[0] - 1):
                start = token.start[1] if at == token.start[0] - 1 else 0
                lines[at] = lines[at][:start] + part + lines[at][start + len(part):]
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type
    return "\n".join(lines)


def prose(name, text):
    """The text of the same lines, without what is not prose."""
    if name.endswith(CODE):
        text = cpp_prose(text, strings=name.startswith("src/"))
    elif name.endswith(".py") or text.startswith("#!/usr/bin/env python3"):
        text = python_prose(text, strings=not name.startswith("tests/"))
    elif name.endswith(".json"):
        text = re.sub(r'"[^"\n]*":', blank, text)
    elif not name.endswith(".md"):  # shell, CMake, configurations: a comment's # does not interrupt a sentence
        text = re.sub(r"(?m)^\s*#+", blank, text)
    for pattern in (r"(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$",  # code blocks
                    r"(?s)<!--.*?-->",
                    r"(?s)(`+)(?!`)(?:(?!\n\s*\n).)*?(?<!`)\1(?!`)",  # code spans, which end with their paragraph
                    r"(?<=\])\([^)\s]*\)", r"https?://\S+"):
        text = re.sub(pattern, blank, text)
    return text


def faults(name, text, exemptions=()):
    """(line number, words, what to write instead) in their order."""
    for page, exact, _ in exemptions:
        if fnmatch.fnmatch(name, page):
            text = re.sub(r"\s+".join(map(re.escape, exact.split())), blank, text)
    text = prose(name, text)
    for pattern in FINE:
        text = spaced(pattern).sub(blank, text)
    found = [(text.count("\n", 0, match.start()) + 1, " ".join(match.group().split()), better)
             for pattern, better in WORDS for match in spaced(pattern).finditer(text)]
    return sorted(found)


def unused(exemptions, pages):
    """Exemptions whose text is on no page that they name."""
    for page, exact, reason in exemptions:
        there = any(fnmatch.fnmatch(name, page) and " ".join(exact.split()) in " ".join(text.split()) for name, text in pages.items())
        if not there or not reason:
            yield f'tests/check_words.py: the exemption of "{exact}" in {page} ' + ("has no reason" if there else "is no longer needed: remove it")


def check(root):
    pages = {str(path.relative_to(root)): path.read_text(encoding="utf-8") for pattern in TEXTS for path in sorted(root.glob(pattern)) if path.is_file()}
    code = 0
    for name, text in pages.items():
        for line, words, better in faults(name, text, EXEMPTIONS):
            print(f'{name}:{line}: "{words}": write {better}')
            code = 1
    for fault in unused(EXEMPTIONS, pages):
        print(fault)
        code = 1
    print(f"words: {'a fault' if code else 'no fault'}; {len(pages)} files checked")
    return code


FLAGGED = {  # a sentence: the words that are found in it
    "It is saved behind the step.": ["behind"],
    "Behind\nit comes the update.": ["Behind"],
    "Communication is left behind.": ["behind"],
    "What stands beside it, besides.": ["beside", "besides"],
    "The table is written anew, and all are alike.": ["alike", "anew"],
    "Training goes\non; a run may go on, and one went on.": ["go on", "goes on", "went on"],
    "Activations are made again.": ["made again"],
    "A format of its own making.": ["of its own making"],
    "A software machine runs it.": ["software machine"],
    "It ends without a word, and the reason is told.": ["told", "without a word"],
    "Killed amid a job, whoever did it; nobody knows, somebody must mend it.": ["amid", "mend", "whoever"],
    "Two runs by turns, but for one, in vain.": ["but for", "by turns", "in vain"],
    "Bodies are held against it, as they lie.": ["as they lie", "held against"],
    "The file that is there stays.": ["that is there"],
}
CLEAN = [
    "Communication is hidden behind compute, and a hidden  behind too.", "A rank falls behind.", "They cannot be told apart.", "Recommend the amendment: amidst.",
    "`behind` and ``a ` beside`` are code.", "`a span\nof two lines, behind it`", "```\nanew\n\nalike\n```\n", "  ```diff\n- whoever\n  ```",
    "[text](behind.md) and https://example.org/beside", "<!-- told\namid -->", "Is that it? There it goes, on and off.",
]

FILES = [  # (name, text, [(line, words found)])
    ("a.cpp", '// It goes\n  int told = f("// anew"); // on, behind `alike`', [(1, "goes on"), (2, "behind")]),
    ("src/a.cpp", 'f("it goes "\n  "on", \'"\', 1\'0, "\\nbehind", 2\'0); // "told', [(1, "goes on"), (2, "behind"), (2, "told")]),
    ("src/a.cpp", 'f(R"(a "\n`// beside` anew)"); told(); // on', [(2, "anew")]),
    ("launch/a", '#!/usr/bin/env python3\ntold = f"anew {behind}"  # It goes\n# on\nx = "a\\nbehind"', [(2, "anew"), (2, "goes on"), (4, "behind")]),
    ("launch/a.py", 'def told():\n    """A text\n    told."""\n    f("goes "\n      "on {alike}")', [(3, "told"), (4, "goes on")]),
    ("tests/a.py", '# beside\n\n"""Behind."""\ndef a():\n    "anew"\n    return "told"', [(1, "beside"), (3, "Behind"), (5, "anew")]),
    ("launch/a", "#!/usr/bin/env bash\n# it goes\n# on\necho 'told'; behind=1", [(2, "goes on"), (4, "behind"), (4, "told")]),
    ("cmake/a.cmake", 'message("told")  # anew', [(1, "anew"), (1, "told")]),
    ("a.json", '{"alike": "told",\n "claim": "anew"}', [(1, "told"), (2, "anew")]),
]


def self_test():
    for text, words in FLAGGED.items():
        found = sorted(word for _, word, _ in faults("a.md", text))
        assert found == sorted(words), (text, found)
    for text in CLEAN:
        assert not faults("a.md", text), (text, faults("a.md", text))
    for pattern, _ in WORDS:  # each is shown to find something
        assert any(re.fullmatch(pattern, word, re.I) for words in FLAGGED.values() for word in words), pattern
    for name, text, found in FILES:
        assert [fault[:2] for fault in faults(name, text)] == found, (name, text, faults(name, text))
    assert faults("a.md", "one\n\n```\nbehind\n```\n\ntwo behind")[0][0] == 7  # the line
    assert [line for line, _, _ in faults("a.md", "an unclosed ` tick\n\nbehind `it`")] == [3]
    exempt = [("docs/*.md", "beside it", "quoted")]
    assert not faults("docs/a.md", "lies beside\nit", exempt) and faults("docs/a.md", "lies beside them", exempt) and faults("a.md", "beside it", exempt)
    assert not list(unused(exempt, {"docs/a.md": "beside\nit"})) and list(unused(exempt, {"docs/a.md": "none", "a.md": "beside it"}))
    assert list(unused([("a.md", "x", "")], {"a.md": "x"}))
    print("words: the check finds what it should")
    return 0


if __name__ == "__main__":
    sys.exit(self_test() if "--self-test" in sys.argv else check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
