"""Writes mutants into sources, next to the original text, so that one build has them all; no line changes its number."""
import dataclasses
import hashlib
import os
import pathlib
import re

WEIGHTS = {folder: 3 for folder in ("src/model", "src/parallel", "src/kernels", "src/checkpoint")}  # others: 1
HEADER = "tests/mutation/mutation.h"


def folder_of(path):
    """src/NAME; main.cpp is in src."""
    return "/".join(path.split("/")[:2]) if path.count("/") > 1 else "src"


def sample(sites, count, seed):
    """`count` sites, drawn without replacement by their folder's weight. A site that is added or removed elsewhere changes nothing else:
    each has its own draw (Efraimidis and Spirakis: the largest u^(1/weight))."""

    def key(site):
        draw = int.from_bytes(hashlib.sha256(f"{seed} {site.name}".encode()).digest()[:8], "big")
        return ((draw + 1) / 2**64) ** (1 / WEIGHTS.get(folder_of(site.path), 1))

    return sorted(sorted(sites, key=key, reverse=True)[:count], key=lambda site: (site.path, site.begin, -site.end))


def guard(site, number):
    return f"::shiftron::mutation::{'is' if site.constexpr else 'is_now'}({number})"


def around(site, number):
    """The text in front of a site's original text, and the one that follows it."""
    selected = guard(site, number)
    return {"value": (f"({selected} ? ({site.alternative}) : (", "))"),
            "true": (f"({selected} || (", "))"),
            "false": (f"(!{selected} && (", "))"),
            "drop": (f"if ({selected}) {{}} else ", ""),
            "default": (f"if ({selected}) return {{}}; else ", "")}[site.form]


@dataclasses.dataclass
class Rewritten:
    data: bytes
    places: dict  # number: (begin, end) in data
    header: str

    def file(self):
        """What is compiled: the lines keep their numbers."""
        return b'#include "%s"\n#line 1\n' % self.header.encode() + self.data

    def numbers_at(self, line, column):
        """Mutants around a place, innermost first; without any: those of the line."""
        starts = [0] + [match.end() for match in re.finditer(b"\n", self.data)]
        if not 1 <= line <= len(starts):
            return []
        at = starts[line - 1] + column - 1
        end_of_line = self.data.find(b"\n", starts[line - 1])
        end_of_line = len(self.data) if end_of_line < 0 else end_of_line
        found = sorted((end - begin, number) for number, (begin, end) in self.places.items() if begin <= at <= end)
        if found:
            return [number for _, number in found]
        return [number for number, (begin, end) in self.places.items() if begin <= end_of_line and end >= starts[line - 1]]


def rewrite(data, mutants, header):
    """A file with its mutants, [(number, site)]; `header` is mutation.h."""
    insertions = []  # (offset, order, number, text)
    for rank, (number, site) in enumerate(sorted(mutants, key=lambda mutant: (mutant[1].begin, -mutant[1].end, mutant[0]))):
        before, after = around(site, number)
        insertions.append((site.begin, (1, rank), number, before.encode()))
        insertions.append((site.end, (0, -rank), number, after.encode()))
    parts, at, length, places = [], 0, 0, {}
    for offset, (is_begin, _), number, text in sorted(insertions):
        parts += [data[at:offset], text]
        length += offset - at + len(text)
        at = offset
        if is_begin:
            places[number] = (length - len(text), None)
        else:
            places[number] = (places[number][0], length)
    parts.append(data[at:])
    return Rewritten(b"".join(parts), places, header)


def write_if_changed(path, data):
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return True
    return False


def write_sources(root, copy, files, mutants):
    """Makes `copy` the files of root with the mutants, {number: site}; returns {file: Rewritten}. Unchanged files keep their time."""
    of_file = {}
    for number, site in mutants.items():
        of_file.setdefault(site.path, []).append((number, site))
    rewritten = {}
    for name in files:
        data = (root / name).read_bytes()
        if name in of_file:
            rewritten[name] = rewrite(data, of_file[name], str(copy / HEADER))
            data = rewritten[name].file()
        path = copy / name
        write_if_changed(path, data)
        path.chmod((root / name).stat().st_mode)
    wanted = set(files)
    for path in copy.rglob("*"):
        if path.is_file() and str(path.relative_to(copy)) not in wanted:
            path.unlink()
    return rewritten


MESSAGE = re.compile(r"(?P<file>[^\s:][^:\n]*\.\w+):(?P<line>\d+):(?P<column>\d+): ")


def faulty(log, copy, rewritten, folder):
    """Numbers of the mutants that a compiler's messages blame: of each error the innermost mutant at its place, otherwise those at the
    places of its notes, otherwise all of that file. `folder`: where the compiler ran; ccache makes its paths relative."""
    blamed, pending, files = set(), False, set()
    for line in log.splitlines():
        match = MESSAGE.match(line)
        if not match:
            continue
        is_error = " error:" in line
        if is_error and pending:
            blamed |= files
        path = pathlib.Path(os.path.normpath(folder / match["file"]))
        name = str(path.relative_to(copy)) if path.is_relative_to(copy) else None
        if is_error:
            pending, files = True, set()
        if pending and name in rewritten:
            found = rewritten[name].numbers_at(int(match["line"]), int(match["column"]))
            if found:
                blamed.add(found[0])
                pending = False
            files |= set(rewritten[name].places)
    if pending:
        blamed |= files
    return blamed
