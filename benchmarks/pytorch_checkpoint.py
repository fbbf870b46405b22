#!/usr/bin/env python3
"""The PyTorch side of checkpoint_vs_pytorch.py: holds a state of the given shapes, and saves and restores it on request.

Words on stdin, JSON on stdout, as `checkpoint_files --live`. A save is done when its files and their folder are synced; a
restore when every tensor of the state, allocated beforehand, holds the bytes again.
"""
import argparse
import json
import os
import pathlib
import shutil
import sys
import time

import torch
import torch.distributed.checkpoint as distributed_checkpoint
from safetensors.torch import load_file, save_file


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


class DistributedCheckpoint:
    """One process; its writer syncs its files itself (sync_files is its default)."""

    def save(self, state, folder):
        distributed_checkpoint.save(state, checkpoint_id=folder, no_dist=True)

    def restore(self, state, folder):
        distributed_checkpoint.load(state, checkpoint_id=folder, no_dist=True)


class Safetensors:
    def save(self, state, folder):
        folder.mkdir()
        save_file(state, folder / "state.safetensors")
        sync(folder / "state.safetensors")

    def restore(self, state, folder):
        for name, tensor in load_file(folder / "state.safetensors").items():  # views of the mapped file
            state[name].copy_(tensor)


FORMATS = {"dcp": DistributedCheckpoint, "safetensors": Safetensors}


def save(side, state, folder):
    shutil.rmtree(folder, ignore_errors=True)
    start = time.perf_counter()
    side.save(state, folder)
    sync(folder)
    sync(folder.parent)
    return time.perf_counter() - start


def forget(folder):
    """Drops the files below from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def restore(side, state, folder, cold):
    if cold:
        forget(folder)
    start = time.perf_counter()
    side.restore(state, folder)
    return time.perf_counter() - start


def check(state, first):
    for name, tensor in state.items():
        if not torch.equal(tensor.view(-1)[:1024], first[name]):
            sys.exit(f"pytorch_checkpoint: {name} was restored with other values")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=FORMATS, required=True)
    parser.add_argument("--shapes", type=pathlib.Path, required=True, help="JSON: name → sizes")
    parser.add_argument("--directory", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    shapes = json.loads(arguments.shapes.read_text(encoding="utf-8"))
    state = {f"{group}/{name}": torch.rand(sizes) for group in ("parameters", "first_moment", "second_moment")
             for name, sizes in shapes.items()}
    first = {name: tensor.view(-1)[:1024].clone() for name, tensor in state.items()}
    side, folder = FORMATS[arguments.format](), arguments.directory / arguments.format
    print(json.dumps({"bytes": sum(tensor.nbytes for tensor in state.values()), "version": torch.__version__}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words == ["save"]:
            seconds = save(side, state, folder)
        elif words in (["restore", "cold"], ["restore", "warm"]):
            for tensor in state.values():
                tensor.zero_()
            seconds = restore(side, state, folder, words[1] == "cold")
            check(state, first)
        else:
            sys.exit(f"pytorch_checkpoint: '{line.strip()}' is none of: save, restore cold, restore warm")
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
