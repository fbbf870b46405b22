"""Parquet files that pyarrow writes from JSONL, for tests of launch/benchmarks-data."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARROW = ROOT / "build" / "benchmarks-data" / "bin" / "python"
# Each JSONL below a folder as Parquet of another, in groups of two rows, those with "train" in their names in two parts.
WRITE = """
import json, pathlib, sys
import pyarrow, pyarrow.parquet
source, made = map(pathlib.Path, sys.argv[1:])
for path in source.rglob("*.jsonl"):
    table = pyarrow.Table.from_pylist([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()])
    middle = table.num_rows // 2 if path.stem == "train" else table.num_rows
    for number, part in enumerate([table[:middle], table[middle:]][: 1 + (path.stem == "train")]):
        to = made / path.relative_to(source).parent / f"{path.stem}-{number:05d}.parquet"
        to.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(part, to, row_group_size=2)
"""


def python_with_arrow():
    """One that has pyarrow, or None."""
    for python in (sys.executable, ARROW):
        try:
            if subprocess.run([python, "-c", "import pyarrow.parquet"], capture_output=True, check=False).returncode == 0:
                return python
        except OSError:
            pass
    return None


def write(python, source, made):
    subprocess.run([python, "-c", WRITE, source, made], check=True)


def parts(made, place):
    """The files below `made` of the JSONL `place`, in order."""
    return sorted((made / place.parent).glob(f"{place.stem}-*.parquet"))
