#!/usr/bin/env python3
"""Every Python program of launch/ runs under Python 3.8: no newer syntax and nothing newer from the standard library.

    tests/check_python_version.py ROOT

Only the interpreter that runs this check is needed. It parses each program with the grammar of 3.8 and looks up names in a table. A module that
is not in the table is refused: look up which of its members are newer than 3.8, and add them. What cannot be decided without types is
refused too: `|` between anything but flags and sets may join dictionaries (3.9) or types (3.10).
"""
import ast
import pathlib
import re
import sys

OLDEST = (3, 8)
OWN = {"compare_runs", "foreign_text", "installed", "job_folders", "mpi_launcher", "paired", "picture", "quick_text", "run_values", "side_by_side", "whole_file"}  # modules of launch/
OTHERS = {"pyarrow.parquet", "torch", "transformers", "tokenizers", "safetensors", "h5py", "numpy", "sentencepiece", "llama_cpp", "wandb", "xxhash"}  # of Pythons that launch/install-deps makes
# What modules have gained since 3.8 (typeshed of 2024; to 3.13).
NEW_MEMBERS = {
    "argparse": "BooleanOptionalAction", "ast": "unparse", "concurrent.futures": "InterpreterPoolExecutor", "configparser": "",
    "contextlib": "AsyncContextDecorator aclosing chdir", "ctypes": "BigEndianUnion LittleEndianUnion c_time_t", "datetime": "UTC", "difflib": "",
    "errno": "EQFULL", "fcntl": "F_GETPATH F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW F_GETPIPE_SZ F_SETPIPE_SZ FICLONE FICLONERANGE",
    "functools": "cache Placeholder", "getpass": "", "hashlib": "file_digest", "importlib.machinery": "", "importlib.util": "",
    "itertools": "pairwise batched", "json": "", "lzma": "", "math": "cbrt exp2 fma lcm nextafter sumprod ulp",
    "os": "EFD_CLOEXEC EFD_NONBLOCK EFD_SEMAPHORE P_PIDFD RWF_APPEND SPLICE_F_MORE SPLICE_F_MOVE SPLICE_F_NONBLOCK eventfd eventfd_read "
          "eventfd_write grantpt login_tty pidfd_open posix_openpt process_cpu_count ptsname setns splice timerfd_create unlockpt unshare "
          "waitstatus_to_exitcode",
    "pathlib": "UnsupportedOperation", "pwd": "", "random": "binomialvariate randbytes", "re": "NOFLAG PatternError", "resource": "", "select": "", "shlex": "",
    "shutil": "", "signal": "SIGSTKFLT pidfd_send_signal", "socket": "SO_INCOMING_CPU recv_fds send_fds",
    "statistics": "LinearRegression correlation covariance kde kde_random linear_regression", "string": "", "struct": "", "subprocess": "",
    "sys": "activate_stack_trampoline exception last_exc monitoring orig_argv platlibdir stdlib_module_names", "tempfile": "", "textwrap": "",
    "threading": "getprofile gettrace setprofile_all_threads settrace_all_threads", "time": "CLOCK_TAI", "unittest": "", "zlib": ""}
NEW_BUILTINS = set("BaseExceptionGroup EncodingWarning ExceptionGroup PythonFinalizationError aiter anext".split())
# Methods and attributes of objects, by name alone; modules of which a name is older.
NEW_METHODS = {name: set() for name in "add_note bit_count from_uri full_match hardlink_to is_junction is_relative_to isocalendar_date randbytes "
               "removeprefix removesuffix st_birthtime_ns with_segments with_stem zscore".split()}
NEW_METHODS.update(readlink={"os"}, walk={"os", "ast"})
# Arguments by name; of which calls, where others have had one of that name before.
NEW_ARGUMENTS = {name: None for name in "cancel_futures case_sensitive delete_on_close exit_on_error extra_groups ignore_cleanup_errors "
                 "include_hidden kw_only onexc pipesize process_group recurse_symlinks usedforsecurity walk_up".split()}
NEW_ARGUMENTS.update(
    strict={"zip", "map"}, newline={"write_text"}, umask={"Popen", "run", "call", "check_call", "check_output"},
    user={"Popen", "run", "call", "check_call", "check_output"}, group={"Popen", "run", "call", "check_call", "check_output"},
    delete={"TemporaryDirectory"}, root_dir={"glob", "iglob"}, dir_fd={"glob", "iglob"}, slots={"dataclass"}, match_args={"dataclass"},
    key={"bisect", "bisect_left", "bisect_right", "insort", "insort_left", "insort_right"}, weights={"fmean", "harmonic_mean"},
    counts={"sample"}, follow_symlinks={"exists", "is_file", "is_dir", "chmod"}, wbits={"compress"}, signalnum={"getsignal", "signal"})
GENERICS = {"dict", "frozenset", "list", "set", "tuple", "type"}


def call_name(node):
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def may_join(node):
    """Whether `|` may take it without joining dictionaries or types: numbers, NAMED_FLAGS, sets."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.LShift, ast.BitAnd)) or may_join(node.left) and may_join(node.right)
    if isinstance(node, (ast.Set, ast.SetComp)) or isinstance(node, ast.Constant) and isinstance(node.value, int):
        return True
    if isinstance(node, ast.Call):
        return call_name(node.func) in ("set", "frozenset", "int")
    return call_name(node).isupper()


class Finder(ast.NodeVisitor):
    def __init__(self, tree):
        self.found, self.modules = [], {}  # name in the file: module
        self.lazy = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" and any(one.name == "annotations" for one in node.names)
                        for node in ast.walk(tree))
        self.visit(tree)

    def add(self, node, what):
        self.found.append((node.lineno, what))

    def imported(self, node, module):
        if module in NEW_MEMBERS or module == "__future__":
            return
        if module not in OWN | OTHERS:
            self.add(node, f"import of {module}, which the table of this check lacks")

    def visit_Import(self, node):
        for one in node.names:
            self.imported(node, one.name)
            self.modules[one.asname or one.name] = one.name

    def visit_ImportFrom(self, node):
        self.imported(node, node.module)
        for one in node.names:
            if one.name in NEW_MEMBERS.get(node.module, "").split():
                self.add(node, f"{node.module}.{one.name}")

    def visit_Attribute(self, node):
        base = ast.unparse(node.value) if isinstance(node.value, (ast.Name, ast.Attribute)) else ""
        module = self.modules.get(base)
        if module:
            if node.attr in NEW_MEMBERS.get(module, "").split():
                self.add(node, f"{module}.{node.attr}")
        if node.attr in NEW_METHODS and module not in NEW_METHODS[node.attr]:
            self.add(node, f".{node.attr}")
        self.generic_visit(node)

    def visit_Name(self, node):
        if node.id in NEW_BUILTINS:
            self.add(node, node.id)

    def visit_Call(self, node):
        for word in node.keywords:
            calls = NEW_ARGUMENTS.get(word.arg, set())
            if calls is None or call_name(node.func) in calls:
                self.add(node, f"{call_name(node.func)}({word.arg}=)")
        self.generic_visit(node)

    def visit_BinOp(self, node):
        if isinstance(node.op, ast.BitOr) and not may_join(node):
            self.add(node, "| between what may be dictionaries or types: {**a, **b}, set.union()")
            return
        self.generic_visit(node)

    def visit_AugAssign(self, node):
        if isinstance(node.op, ast.BitOr) and not may_join(node.value):
            self.add(node, "|= of what may be a dictionary: update()")
        self.generic_visit(node)

    def visit_Subscript(self, node):
        if isinstance(node.value, ast.Name) and node.value.id in GENERICS:
            self.add(node, f"{node.value.id}[…]")
        if isinstance(node.slice, ast.Tuple) and any(isinstance(one, ast.Starred) for one in node.slice.elts):
            self.add(node, "* in an index")
        self.generic_visit(node)

    def visit_For(self, node):
        if isinstance(node.iter, ast.Tuple) and any(isinstance(one, ast.Starred) for one in node.iter.elts):
            if (node.iter.lineno, node.iter.col_offset) == (node.iter.elts[0].lineno, node.iter.elts[0].col_offset):  # no parenthesis before it
                self.add(node, "* in what for goes through, without parentheses")
        self.generic_visit(node)

    def visit_decorated(self, node):
        for decorator in node.decorator_list:
            inner = decorator.func if isinstance(decorator, ast.Call) else decorator
            while isinstance(inner, ast.Attribute):
                inner = inner.value
            if not isinstance(inner, ast.Name):
                self.add(decorator, "a decorator that is no dotted name")
        self.generic_visit(node)

    visit_ClassDef = visit_decorated

    def visit_FunctionDef(self, node):
        if self.lazy:  # annotations are not evaluated
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
            node.returns = None
        self.visit_decorated(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node):
        for part in (node.target, node.value) if self.lazy else (node.target, node.annotation, node.value):
            if part is not None:
                self.visit(part)


def faults(text):
    """[(line, what is newer than OLDEST)] of a program."""
    try:
        tree = ast.parse(text, feature_version=OLDEST)
    except SyntaxError as error:
        return [(error.lineno, error.msg)]
    return sorted(Finder(tree).found)


def programs(folder):
    """(path, line before it, text) of each Python program; also of those that shell scripts hold: python -c '…'."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py" or re.match(r"#!.*\bpython", text):
            yield path, 0, text
        elif re.match(r"#!.*\b(ba)?sh\b", text) or path.suffix == ".sh":
            for found in re.finditer(r"\bpython3?\b[^\n']* -c '([^']*)'", text):
                yield path, text.count("\n", 0, found.start(1)), found[1]


NEWER = ["match x:\n  case 1: pass", "with (open(a) as b, open(c) as d): pass", "try: pass\nexcept* A: pass", "@a[0].b\ndef f(): pass", "x[*y]",
         "for x in *a, *b: pass", "text.removesuffix('a')", "path.is_relative_to(x)", "path.readlink()", "import os\nos.waitstatus_to_exitcode(1)",
         "from itertools import pairwise", "import functools as f\n@f.cache\ndef g(): pass", "zip(a, b, strict=True)", "Popen(a, process_group=0)",
         "tempfile.TemporaryDirectory(ignore_cleanup_errors=True)", "import tomllib", "{'a': 1} | b", "a = b | c", "import os\nx = os.environ | {}",
         "a |= {k: 1 for k in b}", "isinstance(x, int | str)", "def f(x: int | None): pass", "def f() -> list[int]: pass", "x: dict[str, int] = {}",
         "import datetime\ndatetime.UTC", "import contextlib\ncontextlib.chdir('/')", "path.write_text(a, newline='')", "raise ExceptionGroup('', [])"]
OLD_ENOUGH = ["if (x := f()): pass", "def f(a, /, *, b): pass", "print(f'{x=}')", "fcntl.flock(f, LOCK_EX | fcntl.LOCK_NB)", "a = {1} | set(b)", "x = 1 << 3 | 1",
              "import os\nos.readlink(a)\nos.walk(a)\nos.chdir(a)", "from __future__ import annotations\ndef f(x: int | None) -> list[int]: pass",
              "path.unlink(missing_ok=True)", "import shlex\nshlex.join(a)", "import math\nmath.prod(a)", "open(a, newline='')", "x[a, b]",
              "{**a, **b}"]


def main():
    for text in NEWER:
        assert faults(text), f"newer than {OLDEST} and not found: {text}"
    for text in OLD_ENOUGH:
        assert not faults(text), f"found though old enough: {text}: {faults(text)}"
    found = list(programs(pathlib.Path(sys.argv[1]) / "launch"))
    assert len({path for path, _, _ in found}) >= 7, "programs of launch/ are missing"
    assert any(line for _, line, _ in found), "programs within shell scripts are missing"
    wrong = [f"{path}:{before + line}: {what}" for path, before, text in found for line, what in faults(text)]
    for line in wrong:
        print(line)
    if wrong:
        print(f"newer than Python {OLDEST[0]}.{OLDEST[1]}, which launch/ supports\n  next: say it as that Python does")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
