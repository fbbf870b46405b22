#!/usr/bin/env python3
"""Reads a step directory of a run into whole tensors, with only h5py, json and numpy, as anyone else could:

    python read_checkpoint.py RUN/checkpoints/step-00000100      lists the tensors
    read_step(directory) -> Step                                 Step.tensors["parameters/final_norm.weight"] is an array

manifest.json names files, logical tensors and boxes. A box is a range of a tensor in every dimension, stored contiguously
and row-major as one HDF5 dataset; boxes of a tensor cover it exactly once. Names of tensors begin with parameters/,
first_moment/ or second_moment/ (of AdamW). It does not check hashes: `shiftron checkpoint verify` does.
"""
import dataclasses
import json
import pathlib
import sys

import h5py
import numpy


class Fault(Exception):
    pass


def require(condition, *what):
    if not condition:
        raise Fault(" ".join(map(str, what)))


@dataclasses.dataclass
class Step:
    manifest: dict
    tensors: dict  # path -> array

    @property
    def configuration(self):  # section -> key -> value, as the run had them
        return self.manifest["state"]["configuration"]

    @property
    def parameters(self):  # name -> array
        begin = "parameters/"
        return {path[len(begin):]: array for path, array in self.tensors.items() if path.startswith(begin)}


def read_box(files, box, tensor, path):
    """The box's elements; the dataset must have the shape, the type and the place that the manifest states."""
    file, extent = files[box["file"]], tuple(box["extent"])
    require(box["dataset"] in file, path, "is not in", file.filename, "as", box["dataset"])
    dataset = file[box["dataset"]]
    require(dataset.shape == extent and dataset.dtype == numpy.dtype(tensor["dtype"]), file.filename, box["dataset"], "is",
            dataset.shape, dataset.dtype, "and stated as", extent, tensor["dtype"])
    require(dataset.chunks is None and dataset.id.get_offset() == box["byte_offset"], file.filename, box["dataset"],
            "begins at byte", dataset.id.get_offset(), "and is stated at", box["byte_offset"])
    return dataset[...]


def read_step(directory):
    directory = pathlib.Path(directory)
    manifest = json.loads((directory / "manifest.json").read_text())
    require(manifest["format"] == "shiftron-checkpoint" and manifest["version"] == 1, directory, "has another format")
    for file in manifest["files"]:
        size = (directory / file["name"]).stat().st_size
        require(size == file["bytes"], directory / file["name"], "has", size, "bytes and is stated with", file["bytes"])
    tensors = {f"{tensor['group']}/{tensor['name']}": tensor for tensor in manifest["tensors"]}
    require(len(tensors) == len(manifest["tensors"]), directory, "names a tensor twice")
    arrays = {path: numpy.zeros(tensor["shape"], tensor["dtype"]) for path, tensor in tensors.items()}
    written = {path: numpy.zeros(tensor["shape"], numpy.uint8) for path, tensor in tensors.items()}
    paths = list(tensors)
    files = {index: h5py.File(directory / file["name"], "r") for index, file in enumerate(manifest["files"])
             if file["name"].endswith(".h5")}
    try:
        for box in manifest["boxes"]:
            path = paths[box["tensor"]]
            where = tuple(slice(begin, begin + count) for begin, count in zip(box["offset"], box["extent"]))
            require(all(part.stop <= size for part, size in zip(where, arrays[path].shape)), path, "has a box outside")
            arrays[path][where] = read_box(files, box, tensors[path], path)
            written[path][where] += 1
    finally:
        for file in files.values():
            file.close()
    for path, times in written.items():
        require((times == 1).all(), path, "has", int((times != 1).sum()), "elements that lie in no box or in several")
    return Step(manifest, arrays)


if __name__ == "__main__":
    try:
        step = read_step(sys.argv[1])
    except (Fault, OSError, KeyError, ValueError) as error:
        sys.exit(f"read_checkpoint: {error}\n  next: shiftron checkpoint verify {sys.argv[1]}")
    for path, array in step.tensors.items():
        print(f"{path} {list(array.shape)} {array.dtype} |x| {numpy.linalg.norm(array.astype(numpy.float64)):.6g}")
