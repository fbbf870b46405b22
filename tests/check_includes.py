#!/usr/bin/env python3
"""Fails on an #include between folders of src/ that breaks the chain, on files that include each other in a circle (NAME.h and NAME.cpp count as
one), on a class that two headers define (the linker would silently mix their functions), on a third-party header outside its folder, on a CUDA
header outside *_cuda.cu and *_cuda.h, and on an axis of the layout that is named in the model: split_dim says where a parameter is, and Linear
gathers and sums rows, so that a new axis needs no `if` there."""
import pathlib
import re
import sys

USES = {  # a folder may include itself and what it uses, transitively
    "core": [], "kernels": ["core"], "parallel": ["kernels"], "model": ["parallel"], "checkpoint": ["model", "tokenizer"],
    "tokenizer": ["core"], "data": ["tokenizer"], "config": ["model", "data"], "run": ["config", "checkpoint"], "interchange": ["run"],
    "plan": ["run"], "train": ["plan"], "preflight": ["train"], "evaluate": ["train", "interchange"], "cli": ["evaluate", "preflight"],
}
FOREIGN = {  # header prefix -> folders that may name it
    "hdf5": ["core"], "H5": ["core"], "mpi.h": ["parallel"], "nccl": ["parallel"], "oneapi/": ["kernels"],
    "dnnl": ["kernels"], "cublas": ["kernels"], "cudnn": ["kernels"], "omp.h": ["kernels"], "cuda_bf16": ["kernels"],
    "sentencepiece": ["tokenizer"], "boost/program_options": ["cli"], "xxhash": ["core"], "spdlog": ["core"],
    "cuda_runtime": ["core", "kernels", "parallel"], "cuda_runtime.h": [], "cuda.h": [], "nvtx3": ["core"],
    "unicode/": ["tokenizer", "evaluate"], "pcre2": ["tokenizer"], "openssl/": ["evaluate"], "zlib": ["data"], "zstd": ["data"],
    "lzma": ["data"], "bzlib": ["data"],
}
OF_CUDA = re.compile(r"<(cuda|cublas|cudnn|nccl|nvtx)")  # only *_cuda.cu and *_cuda.h may name these: others are always built
SHIM = "cuda/device_shim.h"  # of the emulator in tests/, which src/kernels/device_cuda.h may name
INCLUDE = re.compile(r'\s*#\s*include\s*((["<])([^">]+)[">])')
OPENED = re.compile(r"namespace (\w+(?:::\w+)*) \{")
DEFINED = re.compile(r"(?:class|struct)(?: \[\[\w+\]\])? (\w+)(?: final)?(?: : .*)? \{")
AXES = re.compile(r"\b(tp|cp|dp|pp|zero|Axis|Coordinates|ParallelLayout|groups|gather_rows)\b")  # nothing of src/model/ may name these


def below(folder):
    found = {folder}
    for used in USES[folder]:
        found |= below(used)
    return found


def circles(source):
    """A circle of files that include each other, by the name that a header and its sources share."""
    used = {}
    for path in source.rglob("*"):
        if path.suffix in {".h", ".cpp", ".cu", ".cuh"}:
            name = str(path.relative_to(source).with_suffix(""))
            matches = filter(None, map(INCLUDE.match, path.read_text().splitlines()))
            used.setdefault(name, set()).update({match.group(3).removesuffix(".h") for match in matches if match.group(2) == '"'} - {name})
    while ends := {name for name, names in used.items() if not names & used.keys()}:  # they are in no circle
        used = {name: names for name, names in used.items() if name not in ends}
    if used:
        way = [min(used)]
        while way[-1] not in way[:-1]:
            way.append(min(used[way[-1]] & used.keys()))
        yield "files include each other in a circle: " + ", ".join(way[way.index(way[-1]):])


def twice_named(source):
    """Classes of a namespace that two headers define."""
    defined = {}
    for path in sorted(source.rglob("*.h")):
        namespace = ""
        for line in path.read_text().splitlines():
            namespace = OPENED.match(line).group(1) if OPENED.match(line) else namespace
            if match := DEFINED.match(line):
                defined.setdefault(f"{namespace}::{match.group(1)}", set()).add(str(path.relative_to(source)))
    for name, paths in defined.items():
        if len(paths) > 1:
            yield f"{' and '.join(sorted(paths))} both define {name}; rename one"


def needs_cuda(source):
    """Headers of src/ that name one of CUDA, or a header that does."""
    named = {}
    for path in source.rglob("*.h"):
        matches = map(INCLUDE.match, path.read_text().splitlines())
        named[str(path.relative_to(source))] = [match.group(1) for match in matches if match]
    found = set()
    while True:
        more = {header for header, includes in named.items()
                if any(OF_CUDA.match(name) or name.strip('"') in found for name in includes)} - found
        if not more:
            return found
        found |= more


def faults(root):
    source = root / "src"
    yield from circles(source)
    yield from twice_named(source)
    cuda_headers = needs_cuda(source)
    for path in sorted(source.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        if path.suffix in {".cu", ".cuh"} and not path.name.endswith("_cuda.cu"):
            yield f"{path.relative_to(root)}: a file of CUDA is named *_cuda.cu, or *_cuda.h"
        folder = path.relative_to(source).parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            named = AXES.search(re.sub(r'//.*|"[^"]*"', "", line)) if folder == "model" else None
            if named:
                yield f"{path.relative_to(root)}:{number}: the model names the axis {named.group()!r}"
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, header = match.group(2), match.group(3)
            where = f"{path.relative_to(root)}:{number}"
            if (OF_CUDA.match(match.group(1)) or header in cuda_headers) and not path.stem.endswith("_cuda"):
                yield f"{where}: {header} needs CUDA; only *_cuda.cu and *_cuda.h may include it"
            if header == SHIM and path.name == "device_cuda.h":
                continue
            if path.parent == source:  # main.cpp stands on top
                continue
            if quote == '"':
                target = header.split("/")[0]
                if target not in USES:
                    yield f"{where}: include {header!r} must start with a folder of src/"
                elif target not in below(folder):
                    yield f"{where}: {folder} may not include {target} ({header})"
            for prefix, allowed in FOREIGN.items():
                if quote == "<" and header.startswith(prefix) and folder not in allowed:
                    yield f"{where}: only {', '.join(allowed) or 'nobody'} may include <{header}>"


if __name__ == "__main__":
    found = list(faults(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
    print("\n".join(found) or "include chain: no fault")
    sys.exit(bool(found))
