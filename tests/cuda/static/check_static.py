#!/usr/bin/env python3
"""Checks what ptxas and the machine code say of our CUDA kernels against rules and the table of docs/gpu-kernels.md.

    tests/cuda/static/check_static.py [ROOT] [--cache DIRECTORY]     checks
    tests/cuda/static/check_static.py [ROOT] --write                 updates the table

Compiles src/kernels/*_cuda.cu for every architecture, two at a time, and keeps what it learns by the hash of the sources (default
ROOT/build/cuda-static). Needs no GPU. Returns 77, and says why, if nvcc or nvdisasm is missing; looks for them in PATH,
CUDA_HOME, NVIDIA_WHEELS, build/cuda-tools (launch/install-deps --cuda) and /usr/local/cuda. Rules, which hold for any version of nvcc:
nothing spills, no local memory, registers of a block fit into a multiprocessor, and a kernel's variant for packs moves its rows by
accesses of 16 bytes, and from compute capability 9.0 on nothing of global memory is touched before the kernels before it have ended
(it may be launched while they run). The table is of one version of nvcc; another one is only checked against the rules.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BEGIN, END = "<!-- kernels: written by tests/cuda/static/check_static.py --write -->", "<!-- end of kernels -->"
SKIPPED = 77
FLAGS = ["-std=c++20", "-O3", "-DNDEBUG", "-DSHIFTRON_CUDA", "--expt-relaxed-constexpr"]
# Of a multiprocessor: warps, blocks, bytes of shared memory. All have 65,536 registers.
ARCHITECTURES = {80: (64, 32, 164 << 10), 90: (64, 32, 228 << 10), 100: (64, 32, 228 << 10), 120: (48, 24, 100 << 10)}
REGISTERS, WARP = 65536, 32
LOCAL_MEMORY = {"rope_kernel": "angles beyond 10⁵ in float64; runs once, at a run's start"}
NO_ROWS_WRITTEN = {"statistics_kernel", "first_maximum_kernel", "square_partials_kernel"}  # a number for each block
SINGLE_ELEMENTS = {"statistics_kernel": 1, "gradient_kernel": 2, "whole_kernel": 3}  # of the target, that a variant for packs accesses in addition to its rows
BOTH_WAYS = {"adamw_kernel", "square_partials_kernel"}  # in packs where a tensor of a list lets them, else element by element

OWN_WIDTHS = ("forward_rows", "backward_queries", "backward_keys")  # of attention that cuDNN does not serve: elements of a lane


def skip(why):
    print(f"static evidence of the kernels is skipped: {why}")
    sys.exit(SKIPPED)


def tool(name, root):
    places = [pathlib.Path(os.environ[key]) for key in ("CUDA_HOME", "NVIDIA_WHEELS") if os.environ.get(key)]
    folders = [folder / "bin" for place in places for folder in (place, place / "cu13")]
    folders += sorted((root / "build/cuda-tools").glob("lib/python3*/site-packages/nvidia/cu13/bin"))
    found = shutil.which(name, path=os.pathsep.join(map(str, [os.environ.get("PATH", ""), *folders, "/usr/local/cuda/bin"])))
    return found or skip(f"no {name}; launch/install-deps --cuda brings nvdisasm, the CUDA toolkit the others")


def run(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"failed: {' '.join(map(str, words))}\n{done.stderr}")
    return done.stdout + done.stderr


def included(path, source, found):
    """`found` and the files of src/ that `path` is made of."""
    if path not in found and path.exists():
        found.add(path)
        for header in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.M):
            included(source / header, source, found)
    return found


def resources(text):
    """{kernel: numbers} of what ptxas -v says."""
    found = {}
    for part in text.split("Compiling entry function '")[1:]:
        def number(pattern, of=part):
            match = re.search(pattern, of)
            return int(match.group(1)) if match else 0
        found[part[:part.index("'")]] = {
            "registers": number(r"Used (\d+) registers"), "shared": number(r"(\d+) bytes smem"),
            "stack": number(r"(\d+) bytes stack frame"),
            "spills": number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads")}
    return found


def accesses(code):
    """Numbers of accesses to memory by kind and width in each kernel of what nvdisasm prints."""
    found = {}
    for part in re.split(r"^\.text\.", code, flags=re.M)[1:]:
        waits, touches = re.search(r"\bACQBULK\b", part), re.search(r"\b(LDG|STG|LD|ST|ATOMG?|REDG?)(\.\w+)*\s", part)
        count = {"early": not waits or bool(touches and touches.start() < waits.start()), "wide_loads": 0, "loads": 0, "half_loads": 0, "wide_stores": 0, "stores": 0, "half_stores": 0, "local": 0}
        for kind, rest in re.findall(r"\b(LDG|STG|LD|ST|LDL|STL)((?:\.[A-Z0-9_]+)*)\s", part):
            if kind in ("LDL", "STL"):
                count["local"] += 1
                continue
            widths = rest.split(".")
            width = "wide_" if {"128", "256"} & set(widths) else "half_" if {"U16", "S16", "U8", "S8"} & set(widths) else ""
            count[width + ("loads" if kind in ("LDG", "LD") else "stores")] += 1
        found[part[:part.index(":")]] = count
    return found


def plain_names(mangled):
    lines = run("c++filt", *mangled).splitlines()
    names = []
    for line in lines:
        line = re.sub(r"\(anonymous namespace\)::|shiftron::|cuda::|^void ", "", line).replace("__nv_bfloat16", "bf16")
        depth, end = 0, len(line)
        for i in range(len(line) - 1, -1, -1):  # without the list of arguments at its end
            depth += (line[i] == ")") - (line[i] == "(")
            if line[i] == "(" and depth == 0:
                end = i
                break
        names.append(line[:end])
    return names


def state_of(path, source, *others):
    """Of what `path` is made of, and of `others`."""
    state = hashlib.sha256(repr((FLAGS, *others)).encode())
    for part in sorted(included(path, source, set())):
        state.update(part.read_bytes())
    return state.hexdigest()[:32]


def kernel_files(source):
    return [path for path in sorted((source / "kernels").glob("*_cuda.cu"))
            if re.search(r"__global__|for_each_piece\(", path.read_text())]


def ptx_of(path, architecture, nvcc, source, cache):
    """Where the PTX of `path` lies: DIRECTORY/STEM.ptx, with nothing else that ends so in its directory but that of other files."""
    kept = cache / f"ptx-{architecture}" / f"{path.stem}.ptx"
    state = state_of(path, source, architecture, run(nvcc, "--version"))
    known = kept.with_suffix(".state")
    if not (kept.exists() and known.exists() and known.read_text() == state):
        kept.parent.mkdir(parents=True, exist_ok=True)
        made = kept.with_suffix(".part")
        run(nvcc, "-ptx", f"-arch=compute_{architecture}", *FLAGS, "-I", source, path, "-o", made)
        made.rename(kept)
        known.write_text(state)
    return kept


def compiled(path, architecture, tools, source, cache):
    with tempfile.TemporaryDirectory() as folder:
        ptx, cubin = ptx_of(path, architecture, tools["nvcc"], source, cache), pathlib.Path(folder, "kernels.cubin")
        found = resources(run(tools["ptxas"], "-v", f"-arch=sm_{architecture}", ptx, "-o", cubin))
        for name, counts in accesses(run(tools["nvdisasm"], "-c", cubin)).items():
            found[name].update(counts)
        for name, threads in re.findall(r"\.entry (\w+)\((?:.|\n)*?\n\)\n(?:\.maxntid (\d+))?", ptx.read_text()):
            found[name]["threads"] = int(threads or 0)
    return dict(zip(plain_names(found), found.values()))


def kernels(root, cache, tools):
    """{file: {kernel: {architecture: numbers}}}, compiled where the cache has it not."""
    source = root / "src"
    cache.mkdir(parents=True, exist_ok=True)
    version = run(tools["nvcc"], "--version") + run(tools["nvdisasm"], "--version")
    own = pathlib.Path(__file__).read_text()

    def learn(job):
        path, architecture = job
        kept = cache / f"{path.stem}-{architecture}-{state_of(path, source, version, architecture, own)}.json"
        if not kept.exists():
            for old in cache.glob(f"{path.stem}-{architecture}-*.json"):
                old.unlink()
            kept.write_text(json.dumps(compiled(path, architecture, tools, source, cache)))
        return job, json.loads(kept.read_text())

    jobs = [(path, architecture) for path in kernel_files(source) for architecture in ARCHITECTURES]
    found = {}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for (path, architecture), learned in pool.map(learn, jobs):
            for name, numbers in learned.items():
                found.setdefault(path.name, {}).setdefault(name, {})[architecture] = numbers
    return found


def occupancy(numbers, architecture):
    """Percent of a multiprocessor's warps that can be there at a time."""
    warps, blocks, shared = ARCHITECTURES[architecture]
    of_block = numbers["threads"] // WARP
    by_registers = REGISTERS // (-(-numbers["registers"] * WARP // 256) * 256) // 4 * 4 // of_block
    by_shared = shared // (-(-(numbers["shared"] + 1024) // 128) * 128)  # a KiB of each block is the system's
    return 100 * min(warps // of_block, blocks, by_registers, by_shared) * of_block // warps


def faults_of(name, architecture, numbers):
    """What breaks a rule, in words."""
    stem = re.match(r"\w+", name).group()
    if not numbers["threads"]:
        yield "has no __launch_bounds__"
        return
    if numbers["spills"]:
        yield f"spills {numbers['spills']} bytes"
    if (numbers["local"] or numbers["stack"]) and stem not in LOCAL_MEMORY:
        yield f"has {numbers['local']} accesses to local memory, a stack of {numbers['stack']} bytes"
    if architecture >= 90 and numbers["early"]:
        yield "touches global memory before earlier kernels have ended, or does not wait for them (await_earlier_kernels)"
    if numbers["registers"] * numbers["threads"] > REGISTERS:
        yield f"has {numbers['registers']} registers in {numbers['threads']} threads"
    if numbers["shared"] > 48 << 10:
        yield f"has {numbers['shared']} bytes of shared memory"
    if not packed(name):
        return
    if not numbers["wide_loads"]:
        yield "goes in packs, and loads nothing by 16 bytes"
    if not numbers["wide_stores"] and stem not in NO_ROWS_WRITTEN:
        yield "goes in packs, and stores nothing by 16 bytes"
    halves = numbers["half_loads"] + numbers["half_stores"]
    if halves > SINGLE_ELEMENTS.get(stem, 0) and stem not in BOTH_WAYS:
        yield f"goes in packs, and accesses elements of 2 bytes in {halves} places"


def packed(name):
    """Whether this kernel has a variant for packs or is one: its first number says how many elements it reads at once."""
    width = re.search(r"[<,] ?(\d+)[,>]", name)
    return re.match(r"\w+", name).group() in BOTH_WAYS or (width is not None and int(width.group(1)) > 1 and not name.startswith(OWN_WIDTHS))


def each(values):
    """One value for all architectures, or one for each."""
    return str(values[0]) if len(set(values)) == 1 else " · ".join(map(str, values))


def table(found, version):
    rows = [f"Of nvcc {version}, for " + ", ".join(f"sm_{a}" for a in ARCHITECTURES) + "; one number where all are alike.", "",
            "| kernel | threads | shared, bytes | registers | warps, % of most | loads: 16 bytes, fewer | stores: 16 bytes, fewer |",
            "|---|---|---|---|---|---|---|"]
    for path, of_file in found.items():
        rows.append(f"| **{path}** | | | | | | |")
        for name, by_architecture in sorted(of_file.items()):
            numbers = [by_architecture[a] for a in ARCHITECTURES]
            cells = [f"`{name}`", *(each([n[key] for n in numbers]) for key in ("threads", "shared", "registers")),
                     each([occupancy(by_architecture[a], a) for a in ARCHITECTURES])]
            for kind in ("loads", "stores"):
                cells.append(each([f"{n['wide_' + kind]}, {n[kind] + n['half_' + kind]}" for n in numbers]))
            rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("root", nargs="?", default=".", type=pathlib.Path)
    words.add_argument("--cache", type=pathlib.Path)
    words.add_argument("--write", action="store_true")
    given = words.parse_args()
    root = given.root.resolve()
    tools = {name: tool(name, root) for name in ("nvcc", "ptxas", "nvdisasm")}
    found = kernels(root, given.cache or root / "build/cuda-static", tools)
    version = re.search(r"V([\d.]+)", run(tools["nvcc"], "--version")).group(1)

    faults = [f"{path}: {name} for sm_{architecture} {fault}" for path, of_file in found.items()
              for name, by_architecture in of_file.items() for architecture, numbers in by_architecture.items()
              for fault in faults_of(name, architecture, numbers)]
    page = root / "docs/gpu-kernels.md"
    text = page.read_text()
    head, tail = text[:text.index(BEGIN) + len(BEGIN)], text[text.index(END):]
    if faults:
        pass
    elif given.write:
        page.write_text(f"{head}\n{table(found, version)}\n{tail}")
    elif f"Of nvcc {version}," not in text:
        print(f"the table of docs/gpu-kernels.md is of another nvcc than {version}: only the rules are held")
    elif f"{head}\n{table(found, version)}\n{tail}" != text:
        stated = set(text.splitlines())
        missing = [line for line in table(found, version).splitlines() if line not in stated]
        faults += [f"docs/gpu-kernels.md does not state: {line}" for line in missing]
        faults.append("docs/gpu-kernels.md states other numbers: run tests/cuda/static/check_static.py . --write")
    print("\n".join(faults) or f"static evidence: {sum(map(len, found.values()))} kernels, no fault")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
