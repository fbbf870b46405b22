#!/usr/bin/env python3
"""launch/benchmarks-data converts Parquet files, which pyarrow writes from JSONL of tests/evaluate/data/hub, back to the same bytes, and says what it
cannot read. Without pyarrow it is skipped (77), except for the errors that need none."""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/system"))
import parquet  # noqa: E402

HUB = ROOT / "tests/evaluate/data/hub"
CASES = [pathlib.Path(path) for path in ("arc/ARC-Easy/test.jsonl", "cmmlu/agronomy/test.jsonl", "lambada_standard/test.jsonl",
                                         "hellaswag/train.jsonl")]  # in two parts


def convert(*arguments):
    done = subprocess.run([ROOT / "launch/benchmarks-data", *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    faults = []

    def expect(is_so, what):
        if not is_so:
            faults.append(what)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for arguments, part in (((), "an output and at least one input"), ((folder / "a.jsonl", folder / "none.parquet"), "is not a file"),
                                ((folder / "same", __file__, folder / "same"), "is both the output and an input")):
            (folder / "same").write_text("a dataset")
            code, output = convert(*arguments)
            expect(code == 76 and part in output and "next: " in output, f"{arguments}: {code} {output}")
            expect((folder / "same").read_text() == "a dataset", "an input was replaced")
        os.mkfifo(folder / "pipe")
        code, output = convert(folder / "pipe", __file__)
        expect(code == 76 and "is not a regular file" in output and (folder / "pipe").is_fifo(), f"a pipe: {code} {output}")
        python = parquet.python_with_arrow()
        if python is None:
            code, output = convert(folder / "x/a.jsonl", __file__)
            expect(code == 76 and "has no pyarrow" in output and "next: " in output, f"without pyarrow: {code} {output}")
            print("\n".join(faults) or output)
            return 1 if faults else 77
        written = folder / "parquet"
        parquet.write(python, HUB, written)
        for place in CASES:
            made = folder / place
            code, output = convert(made, *parquet.parts(written, place))
            expect(code == 0 and made.exists() and made.read_bytes() == (HUB / place).read_bytes(), f"{place}: {code} {output}")
        mixed = [part for place in CASES[:2] for part in parquet.parts(written, place)]
        broken = folder / "broken.parquet"
        broken.write_bytes(mixed[0].read_bytes()[:-9])
        for inputs, part in (([broken], "check that this is a complete Parquet file"), (mixed, "name only the parts of one split")):
            made = folder / "refused.jsonl"
            code, output = convert(made, *inputs)
            expect(code == 76 and part in output and not list(folder.glob("refused*")), f"{inputs}: {code} {output}")
    print("\n".join(faults) or "benchmarks-data: no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
