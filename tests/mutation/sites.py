"""Finds all sites of mutations in src/ with libclang, from the commands of a build, and keeps them per file for the next run."""
import dataclasses
import hashlib
import itertools
import json
import multiprocessing
import pathlib
import re
import shlex

from bindings import CursorKind, Index, TranslationUnit
from rules import Rules, Site, Source

K = CursorKind
FUNCTIONS = {K.FUNCTION_DECL, K.CXX_METHOD, K.CONSTRUCTOR, K.DESTRUCTOR, K.CONVERSION_FUNCTION, K.FUNCTION_TEMPLATE}
# Constant expressions, types and assembly.
SKIPPED = {K.STATIC_ASSERT, K.ENUM_DECL, K.TYPE_REF, K.TEMPLATE_REF, K.NAMESPACE_REF, K.TEMPLATE_NON_TYPE_PARAMETER, K.TEMPLATE_TYPE_PARAMETER,
           K.TEMPLATE_TEMPLATE_PARAMETER, K.CXX_UNARY_EXPR, K.DECL_REF_EXPR, K.ASM_STMT, K.MS_ASM_STMT, K.USING_DECLARATION, K.TYPE_ALIAS_DECL,
           K.TYPEDEF_DECL}
# A header that more sources include, also indirectly, is left out: a sample with one of its sites recompiles most tests.
MOST_INCLUDERS = 12
# Inputs of tests, which the self-test runs too: a mutant would only ask another question.
INPUTS = {f"src/kernels/{name}.{suffix}" for name in ("all_cases", "kernel_cases", "kernel_call") for suffix in ("h", "cpp")}
# libclang 14 has no std::source_location, so the emulator's barriers and shuffles would be invalid, and calls of them no sites.
PLACE = """#include <source_location>
#ifndef __cpp_lib_source_location
namespace std { struct source_location { static constexpr source_location current() { return {}; } }; }
#endif
"""
TOGETHER = 6  # sources of a folder that are parsed at once, as in CMakeLists.txt


class ParseError(Exception):
    pass


class Walk:
    """Applies the rules to the syntax tree of one file."""

    def __init__(self, source):
        self.source, self.rules = source, Rules(source)

    def visit(self, node):
        kind = node.kind
        if kind in SKIPPED or kind.is_attribute():
            return
        if kind in FUNCTIONS:
            self.function(node)
            return
        children = list(node.get_children())
        if kind in (K.VAR_DECL, K.FIELD_DECL, K.PARM_DECL):
            if not re.search(r"\bconst(expr|init|eval)\b", self.before(node)):
                outer = self.rules.function
                if kind == K.FIELD_DECL:
                    self.rules.function = node.spelling
                self.visit_all(self.after_name(node, children))
                self.rules.function = outer
            return
        handler = getattr(self, kind.name.lower(), None)
        if handler:
            handler(node, children)
        else:
            self.visit_all(children)

    def visit_all(self, children):
        template = None  # where the name of a type's template ends
        for child in children:
            if child.kind == K.TEMPLATE_REF:
                template = template or child.extent.end.offset
            elif template is None or not self.is_open(template, child.extent.start.offset):
                self.visit(child)

    def is_open(self, begin, end):
        """Whether `end` is among the template arguments that follow a name."""
        between = self.source.data[begin:end].replace(b"->", b"")
        return between.count(b"<") > between.count(b">")

    def before(self, node):
        """A declaration's text up to its name."""
        begin = node.extent.start.offset
        return self.source.text(begin, max(begin, node.location.offset))

    def after_name(self, node, children):
        """The initializer, without the extents of an array, which are constant expressions. In `T name(a + b)` the constructor's call begins at the
        name: its arguments."""
        after = []
        for child in children:
            start = child.extent.start.offset
            if start == node.location.offset:
                after += child.get_children()
            elif start > node.location.offset and not self.source.data[max(0, start - 9):start].rstrip().endswith(b"["):
                after.append(child)
        return after

    def function(self, node):
        outer = self.rules.function, self.rules.constexpr
        self.rules.function = node.spelling
        self.rules.constexpr = bool(re.search(r"\bconst(expr|eval)\b", self.before(node)))
        self.visit_all(self.after_name(node, list(node.get_children())))
        self.rules.function, self.rules.constexpr = outer

    def body(self, node):
        """A statement."""
        self.rules.macro_statement(node.extent.start.offset)
        if node.kind.is_expression():
            self.rules.statement(node)
        self.visit(node)

    def compound_stmt(self, _, children):
        for child in children:
            self.body(child)

    def if_stmt(self, node, children):
        where = self.source.range(node)
        if where is None or len(children) < 2:
            return
        ends = [child.extent.end.offset for child in children]
        starts = [child.extent.start.offset for child in children]
        has_else = len(children) > 2 and re.search(rb"\belse\b", self.source.data[ends[-2]:starts[-1]]) is not None
        branch = len(children) - (2 if has_else else 1)
        head, text = children[:branch], self.source.data[where[0]:where[0] + 40]
        if not re.match(rb"if\s+(constexpr|consteval)\b", text):
            whole = where if text.startswith(b"if") and not has_else else None
            self.rules.condition(head[-1], (starts[branch], ends[branch]), whole)
            self.visit_all(head)
        for child in children[branch:]:
            self.body(child)

    def while_stmt(self, _, children):
        self.rules.condition(children[0])
        self.visit_all(children[:-1])
        self.body(children[-1])

    def for_stmt(self, node, children):
        begin = node.extent.start.offset
        line = self.source.place(begin)[0]
        previous = self.source.data[:self.source.starts[line - 1]].rstrip().rpartition(b"\n")[2]
        if not re.match(rb"\s*#\s*pragma omp", previous):  # its loops must have a certain form
            self.visit_all(children[:-1])
        self.body(children[-1])

    def cxx_for_range_stmt(self, _, children):
        self.visit_all(child for child in children[:-1] if child.kind.is_expression())
        self.body(children[-1])

    def do_stmt(self, node, children):
        if self.source.range(node):  # otherwise a macro
            self.body(children[0])
            self.visit_all(children[1:])

    def case_stmt(self, _, children):
        self.body(children[-1])

    def default_stmt(self, _, children):
        self.body(children[-1])

    def return_stmt(self, node, children):
        self.rules.leave(node, children)
        self.visit_all(children)

    def break_stmt(self, node, _):
        self.rules.leave(node, [])

    def continue_stmt(self, node, _):
        self.rules.leave(node, [])

    def binary_operator(self, node, children):
        if len(children) == 2:
            self.rules.binary(node, children)
        self.visit_all(children)

    compound_assignment_operator = binary_operator

    def unary_operator(self, node, children):
        self.rules.unary(node, children)
        self.visit_all(children)

    def call_expr(self, node, children):
        self.rules.call(node)
        self.visit_all(children)

    def array_subscript_expr(self, _, children):
        if len(children) == 2:
            self.rules.step(children[1], "index")
        self.visit_all(children)

    def init_list_expr(self, _, children):
        for child in children:
            if child.kind.is_expression():
                self.rules.step(self.without_name(child), "index")
        self.visit_all(children)

    def without_name(self, node):
        """The value of `.name = value`."""
        begin = node.extent.start.offset
        if self.source.data[begin:begin + 1] != b"." or self.source.data[begin + 1:begin + 2].isdigit():
            return node
        return next((child for child in node.get_children() if child.kind.is_expression()), node)

    def conditional_operator(self, _, children):
        if len(children) == 3:
            then = self.source.range(children[1])
            if then:
                self.rules.condition(children[0], then)
        self.visit_all(children)

    def member_ref_expr(self, _, children):
        self.visit_all(child for child in children[:1] if child.kind.is_expression())

    def integer_literal(self, node, _):
        self.rules.literal(node)

    floating_literal = cxx_bool_literal_expr = integer_literal


def parse(paths, arguments):
    """One translation unit of all these sources."""
    text = PLACE + "".join(f'#include "{path}"\n' for path in paths)
    return Index.create().parse("all.cpp", args=arguments, unsaved_files=[("all.cpp", text)], options=TranslationUnit.PARSE_INCOMPLETE)


def has_errors(unit):
    return any(message.severity >= message.Error for message in unit.diagnostics)


def sites_of(unit, root, files):
    """{file: its sites} of a translation unit; files are relative to root."""
    walks = {str(root / name): Walk(Source(name, (root / name).read_bytes())) for name in files}
    for node in unit.cursor.get_children():
        file = node.location.file
        walk = walks.get(file.name) if file else None
        if walk:
            walk.visit(node)
    return {walk.source.path: sorted(walk.rules.sites, key=lambda site: (site.begin, -site.end)) for walk in walks.values()}


def is_cuda(name):
    """Whether it is a CUDA source. Every build compiles scratch_cuda.cpp, which is none."""
    return name.endswith(("_cuda.cu", "_cuda.h"))


def includes(root, cuda):
    """{file: the files of src/ and tests/ that it includes, also indirectly}."""
    direct = {}
    patterns = ["src/**/*.h", "src/**/*.cpp", "tests/**/*.cpp", "tests/**/*.h"] + ["src/**/*.cu"] * cuda
    folders = ["src", "tests"] + ["tests/machine"] * cuda
    for path in itertools.chain.from_iterable(map(root.glob, patterns)):
        names = re.findall(r'^#include "([^"]+)"', path.read_text(), re.M)
        direct[str(path.relative_to(root))] = [f"{folder}/{name}" for name in names for folder in folders if (root / folder / name).exists()]

    def follow(name, seen):
        for other in direct.get(name, ()):
            if other not in seen:
                seen.add(other)
                follow(other, seen)
        return seen

    return {name: follow(name, set()) for name in direct}


def commands(build):
    """{source: arguments for clang} of a build's compile_commands.json."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        kept = [word for word in words if re.match(r"-[DI]|-std=|-m", word)]
        for flag in ("-isystem", "-include"):
            kept += [part for i, word in enumerate(words) if word == flag for part in (flag, words[i + 1])]
        found[entry["file"]] = kept
    return found


def parse_one(job):
    root, jobs, arguments, entry = job
    together = [(list(jobs), [name for files in jobs.values() for name in files])]
    unit = parse([root / source for source in jobs], arguments)
    if has_errors(unit) and len(jobs) > 1:  # names of these sources clash
        together = [([source], files) for source, files in jobs.items()]
    found = {}
    for sources, files in together:
        if len(together) > 1:
            unit = parse([root / source for source in sources], arguments)
        if is_cuda(sources[0]) and has_errors(unit):  # what the emulator declares is not understood: sites would be lost
            error = next(message for message in unit.diagnostics if message.severity >= message.Error)
            raise ParseError(f"libclang cannot parse {sources[0]}: {error.location.file}:{error.location.line}: {error.spelling}")
        found.update({name: [dataclasses.asdict(site) for site in sites] for name, sites in sites_of(unit, root, files).items()})
    entry.with_suffix(".new").write_text(json.dumps(found))
    entry.with_suffix(".new").rename(entry)
    return found


def plan(root, build, cuda):
    """[({source: files whose sites it gives}, arguments, files that they include)], a list entry per translation unit. A header belongs to the
    source of its name, otherwise to the first that includes it. As in the build, several sources of a folder are parsed together."""
    sources = {str(pathlib.Path(name).relative_to(root)): arguments for name, arguments in commands(build).items()
               if pathlib.Path(name).is_relative_to(root / "src") and is_cuda(name) == cuda}
    sources = {name: arguments for name, arguments in sources.items() if name not in INPUTS}
    of = includes(root, cuda)
    suffix = ".cu" if cuda else ".cpp"
    jobs = {name: [name] for name in sorted(sources)}
    for header in sorted(name for name in of if name.startswith("src/") and name.endswith(".h") and is_cuda(name) == cuda and name not in INPUTS):
        includers = [name for name, seen in of.items() if header in seen and name.endswith(suffix)]
        mine = [name for name in sorted(includers) if name in sources]
        if mine and (cuda or len(includers) <= MOST_INCLUDERS):
            own = header[:-2] + suffix
            jobs[own if own in mine else mine[0]].append(header)
    batches = []
    for name in sorted(sources):
        folder = name.split("/")[1]
        last = batches[-1] if batches else None
        together = last and folder not in ("kernels", "parallel") and len(last[0]) < TOGETHER and next(iter(last[0])).split("/")[1] == folder
        if not together or last[1] != sources[name]:
            batches.append(({}, sources[name], set()))
        batches[-1][0][name] = jobs[name]
        batches[-1][2].update(of[name], {name})
    return batches


def find(root, build, cache, processes, folders=("src",), cuda=False):
    """All sites of these folders, of CUDA sources or of the others, ordered by file and position. `build` has compile_commands.json of
    `root`."""
    cache.mkdir(parents=True, exist_ok=True)
    here = pathlib.Path(__file__).parent
    tool = b"".join((here / name).read_bytes() for name in ("sites.py", "rules.py"))
    texts = {}

    def text(name):
        if name not in texts:
            texts[name] = hashlib.sha256((root / name).read_bytes()).digest()
        return texts[name]

    found, jobs = {}, []
    wanted = tuple(folder.rstrip("/") + "/" for folder in folders)
    for files, arguments, seen in plan(root, build, cuda):
        if not any(name.startswith(wanted) for names in files.values() for name in names):
            continue
        key = hashlib.sha256(tool + repr((files, arguments)).encode() + b"".join(map(text, sorted(seen)))).hexdigest()[:24]
        entry = cache / f"{key}.json"
        if entry.exists():
            found.update(json.loads(entry.read_text()))
        else:
            jobs.append((root, files, arguments, entry))
    if jobs:
        with multiprocessing.Pool(processes) as pool:
            for part in pool.imap_unordered(parse_one, jobs):
                found.update(part)
    return [Site(**site) for name in sorted(found) if name.startswith(wanted) for site in found[name]]
