#!/usr/bin/env python3
"""Fails on any #include between folders of src/ that is not on the chain, on a foreign header outside its folder, and on an
axis of the layout that is named in the model: where a parameter lies is said by its split_dim, where rows lie by
gather_rows and reduce_rows, so that a further axis needs no `if` there."""
import pathlib
import re
import sys

USES = {  # a folder may include itself and what it uses, transitively
    "core": [], "kernels": ["core"], "parallel": ["kernels"], "model": ["parallel"], "checkpoint": ["model"],
    "data": ["core"], "train": ["checkpoint", "data"], "evaluate": ["train"], "plan": ["train"],
    "cli": ["evaluate", "plan"],
}
FOREIGN = {  # header prefix -> folders that may name it
    "hdf5": ["core"], "H5": ["core"], "mpi.h": ["parallel"], "nccl": ["parallel"], "oneapi/": ["kernels"],
    "dnnl": ["kernels"], "cublas": ["kernels"], "cudnn": ["kernels"], "omp.h": ["kernels"],
    "sentencepiece": ["data"], "boost/program_options": ["cli"], "xxhash": ["core"], "spdlog": ["core"],
    "cuda_runtime": ["core", "kernels"],
}
AXES = re.compile(r"\b(tp|cp|dp|pp|zero|Axis|Coordinates|ParallelLayout|groups)\b")  # nothing of src/model/ may name these


def below(folder):
    found = {folder}
    for used in USES[folder]:
        found |= below(used)
    return found


def faults(root):
    source = root / "src"
    for path in sorted(source.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        folder = path.relative_to(source).parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            named = AXES.search(re.sub(r'//.*|"[^"]*"', "", line)) if folder == "model" else None
            if named:
                yield f"{path.relative_to(root)}:{number}: the model names the axis {named.group()!r}"
            match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
            if not match:
                continue
            header = match.group(2)
            where = f"{path.relative_to(root)}:{number}"
            if path.parent == source:  # main.cpp stands on top
                continue
            if match.group(1) == '"':
                target = header.split("/")[0]
                if target not in USES:
                    yield f"{where}: include {header!r} must start with a folder of src/"
                elif target not in below(folder):
                    yield f"{where}: {folder} may not include {target} ({header})"
            for prefix, allowed in FOREIGN.items():
                if match.group(1) == "<" and header.startswith(prefix) and folder not in allowed:
                    yield f"{where}: only {', '.join(allowed)} may include <{header}>"


if __name__ == "__main__":
    found = list(faults(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
    print("\n".join(found) or "include chain: no fault")
    sys.exit(bool(found))
