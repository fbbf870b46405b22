#!/usr/bin/env python3
"""Which safetensors files are accepted, here and by the reference implementation, over the seeds of the fuzz target and mutations of them:
what the reference refuses is refused here. Other refusals here are those in which this reader is stricter on purpose.

check_safetensors.py SAFETENSORS_FUZZ
"""
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from safetensors import SafetensorError, deserialize

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fuzz"))
import binary_seeds  # noqa: E402

STRICTER = re.compile("|".join((
    "has more than 8 dims", "is longer than 512 bytes", "has the unknown dtype", "__metadata__ is too long", "a tensor has no name",
    "appears twice",  # the last one counts there, and a name may appear twice with the same place
    "does not begin with {",  # as the format says; there it may begin with spaces
    "its header holds .* at ",  # keys that the format does not have; null for __metadata__; a tensor as the list of its fields
)))
CHANGES = 40  # of each file


def taken_there(data):
    try:
        deserialize(data)
        return True
    except SafetensorError:
        return False


def changed(data, draw):
    data = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(data)) if data else 0
        change = draw.randrange(4)
        if change == 0 and data:
            data[at] ^= 1 << draw.randrange(8)
        elif change == 1 and data:
            data[at] = draw.choice(b"0123456789[]{},:\" ")
        elif change == 2:
            del data[at:at + draw.randint(1, 4)]
        else:
            data[at:at] = draw.choice((b"0", b" ", b",", b"-", b"1", b"\\u0061", b"[]", b"{}", b"\0"))
    if draw.random() < 0.5 and len(data) >= 8:  # a length that fits the header
        end = data.rfind(b"}") + 1
        if end > 8:
            data[:8] = (end - 8).to_bytes(8, "little")
    return bytes(data)


def main():
    draw = random.Random(3)
    inputs = binary_seeds.safetensors()
    for name, data in list(inputs.items()):
        inputs.update({f"{name}, change {number}": changed(data, draw) for number in range(CHANGES)})
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, data in enumerate(inputs.values()):
            paths.append(pathlib.Path(folder) / str(number))
            paths[-1].write_bytes(data)
        result = subprocess.run([sys.argv[1], "--verdicts", *paths], capture_output=True, text=True, check=True, errors="replace")
    verdicts = result.stdout.splitlines()
    assert len(verdicts) == len(inputs), (len(verdicts), len(inputs))
    faults, both, neither, stricter = [], 0, 0, 0
    for (name, data), verdict in zip(inputs.items(), verdicts):
        here, there = verdict == "taken", taken_there(data)
        both, neither = both + (here and there), neither + (not here and not there)
        if here and not there:
            faults.append(f"{name}: taken here alone: {data[:200]}")
        elif there and not here:
            stricter += 1
            if not STRICTER.search(verdict):
                faults.append(f"{name}: taken there alone: {verdict}: {data[:200]}")
    for fault in faults:
        print(fault)
    print(f"{len(inputs)} files: {both} taken by both, {neither} by neither, {stricter} where this reader is stricter, {len(faults)} faults")
    return 1 if faults or min(both, neither, stricter) == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
