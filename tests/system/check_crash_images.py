#!/usr/bin/env python3
"""Power loss at every point of a save and of a conversion: strace records what they do to the disk, and for each prefix of that
the test rebuilds the disks that a crash could leave. Synced data exists; other data is missing, zero, torn or complete; the creation,
change or removal of a name since its folder was synced has happened or not. On every such disk a step that counts as valid is whole and one of
the two, and there is one; after the end it is the new one."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import PROGRAM, SystemTest, environment, losses, main, options, scaled, shiftron

CALLS = ("open,openat,creat,close,dup,dup2,dup3,lseek,write,pwrite64,writev,pwritev,pwritev2,ftruncate,truncate,fallocate,copy_file_range,"
         "sendfile,fsync,fdatasync,sync_file_range,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat")
SECTOR = 512
DATA = ("dropped", "zeroed", "torn", "cut", "written")  # what becomes of data that was not synced


def unescaped(text):
    return re.sub(rb"\\x([0-9a-f]{2})", lambda match: bytes([int(match[1], 16)]), text.encode())


class Log:
    """The operations of a command below `root`, in their order, on inodes (numbers; 0 is the root):
    link FOLDER NAME INODE, rename FOLDER NAME FOLDER NAME INODE, unlink FOLDER NAME, write INODE OFFSET BYTES, truncate INODE SIZE,
    sync INODE."""

    def __init__(self, root):
        self.root = os.fsencode(os.path.realpath(root))
        self.folders, self.files = {}, {}  # as they stood before: {inode: {name: inode}}, {inode: bytes}
        self.operations = []
        self.read(pathlib.Path(root), 0)
        self.names = {inode: dict(entries) for inode, entries in self.folders.items()}  # while the command runs
        self.sizes = {inode: len(data) for inode, data in self.files.items()}
        self.inodes = len(self.folders) + len(self.files)
        self.open = {}  # descriptor: [inode, position, appends]

    def read(self, path, inode):
        self.folders[inode] = {}
        for entry in sorted(path.iterdir()):
            number = len(self.folders) + len(self.files)
            self.folders[inode][entry.name] = number
            if entry.is_dir():
                self.read(entry, number)
            else:
                self.files[number] = entry.read_bytes()

    def record(self, command):
        with tempfile.NamedTemporaryFile(prefix="shiftron-strace-") as log:
            ran = subprocess.run(["strace", "-f", "-y", "-xx", "-s", "100000000", "-e", f"trace={CALLS}", "-o", log.name, *map(str, command)],
                                 capture_output=True, text=True, env=environment(), timeout=scaled(120), check=False,
                                 stdin=subprocess.DEVNULL)
            if ran.returncode != 0:
                raise AssertionError(f"{command} gave {ran.returncode}: {ran.stdout}{ran.stderr}")
            with open(log.name, encoding="ascii") as stream:
                for call, text, result in calls(stream):
                    self.take(call, text, result)
        return self

    # Of strace's lines.
    def place(self, folder, path):
        """(inode of the folder, name) of a path as it stands in a call, or None where it is not below the root."""
        match = re.search(r"<(.*)>", folder)
        path = os.path.normpath(os.path.join(unescaped(match[1]) if match else os.fsencode(os.getcwd()), unescaped(path.strip('"'))))
        if path != self.root and not path.startswith(self.root + b"/"):
            return None
        *folders, name = ["."] if path == self.root else os.fsdecode(path[len(self.root) + 1:]).split("/")
        inode = 0
        for part in folders:
            inode = self.names[inode][part]
        return inode, name

    def take(self, call, text, result):
        parts = text.split(", ")
        if call in ("open", "creat", "rename", "unlink", "rmdir", "mkdir"):  # as those with a folder in front
            if call == "rename":
                parts.insert(1, "AT_FDCWD")
            parts = ["AT_FDCWD", *parts, "O_CREAT|O_WRONLY|O_TRUNC"] if call == "creat" else ["AT_FDCWD", *parts]
            call = {"open": "openat", "creat": "openat", "rename": "renameat", "mkdir": "mkdirat"}.get(call, "unlinkat")
        descriptor = int(parts[0].split("<")[0]) if parts[0][0].isdigit() else None
        if call == "openat":
            self.open.pop(result, None)
            if place := self.place(parts[0], parts[1]):
                self.opened(place, parts[2], result)
        elif call == "mkdirat":
            if place := self.place(parts[0], parts[1]):
                self.link(place, {})
        elif call == "unlinkat":
            if place := self.place(parts[0], parts[1]):
                del self.names[place[0]][place[1]]
                self.operations.append(("unlink", *place))
        elif call in ("renameat", "renameat2"):
            old, new = self.place(parts[0], parts[1]), self.place(parts[2], parts[3])
            if old and new:
                inode = self.names[old[0]].pop(old[1])
                self.names[new[0]][new[1]] = inode
                self.operations.append(("rename", *old, *new, inode))
            elif old or new:
                raise AssertionError(f"a rename out of {self.root!r}: {text}")
        elif call == "close":
            self.open.pop(descriptor, None)
        elif descriptor in self.open:
            self.changed(call, text, parts, result, self.open[descriptor])
        elif self.root in unescaped(parts[0] if descriptor is not None else text):
            raise AssertionError(f"a call that is not followed: {call}({text[:300]})")

    def opened(self, place, flags, result):
        folder, name = place
        inode = folder if name == "." else self.names[folder].get(name)
        if inode is None:
            inode = self.link(place, b"")
        if "O_TRUNC" in flags and self.sizes[inode]:
            self.operations.append(("truncate", inode, 0))
            self.sizes[inode] = 0
        self.open[result] = [inode, 0, "O_APPEND" in flags]

    def link(self, place, content):
        inode = self.inodes
        self.inodes += 1
        self.names[place[0]][place[1]] = inode
        if content == {}:
            self.names[inode] = {}
        else:
            self.sizes[inode] = 0
        self.operations.append(("link", *place, inode))
        return inode

    def changed(self, call, text, parts, result, entry):
        inode, position, appends = entry
        if call == "lseek":
            entry[1] = result
        elif call in ("fsync", "fdatasync"):
            self.operations.append(("sync", inode))
        elif call == "ftruncate":
            self.sizes[inode] = int(parts[1])
            self.operations.append(("truncate", inode, int(parts[1])))
        elif call == "fallocate" and parts[1] == "0":
            self.sizes[inode] = max(self.sizes[inode], int(parts[2]) + int(parts[3]))
            self.operations.append(("truncate", inode, self.sizes[inode]))
        elif call in ("write", "writev", "pwrite64"):
            data = b"".join(unescaped(part) for part in re.findall(r'"([^"]*)"', text))[:result]
            offset = int(parts[-1]) if call == "pwrite64" else self.sizes[inode] if appends else position
            if call != "pwrite64":
                entry[1] = offset + result
            self.sizes[inode] = max(self.sizes[inode], offset + result)
            self.operations.append(("write", inode, offset, data))
        elif call != "sync_file_range":  # which promises nothing
            raise AssertionError(f"a call that is not followed: {call}({text[:300]})")


def calls(lines):
    """(name, arguments, result) of the calls that succeeded, in the order in which they ended."""
    begun = {}
    for line in lines:
        process, rest = line.rstrip("\n").split(None, 1)
        if rest.endswith("<unfinished ...>"):
            begun[process] = rest.removesuffix("<unfinished ...>")
            continue
        if resumed := re.match(r"<\.\.\. \w+ resumed>", rest):
            rest = begun.pop(process) + rest[resumed.end():]
        if match := re.match(r"(\w+)\((.*)\)\s+= (\d+)", rest):
            yield match[1], match[2], int(match[3])


class Data:
    """A file: what a sync has made sure of, what stands there, and the ranges written in between."""

    def __init__(self, content=b""):
        self.synced, self.now, self.written = content, bytearray(content), []

    def change(self, operation, *values):
        if operation == "sync":
            self.synced, self.written = bytes(self.now), []
        elif operation == "truncate":
            self.now = self.now[:values[0]].ljust(values[0], b"\0")
            self.written.append((0, 0))
        else:
            offset, data = values
            self.now = self.now.ljust(offset, b"\0")
            self.now[offset:offset + len(data)] = data
            self.written.append((offset, offset + len(data)))

    def left(self, how, draw):
        if not self.written or how == "written":
            return bytes(self.now)
        if how == "dropped":
            return self.synced
        if how == "cut":
            return bytes(self.now[:draw.randint(min(len(self.synced), len(self.now)), len(self.now))])
        content = self.now.copy()
        for begin, end in self.written:
            for at in range(begin // SECTOR * SECTOR, end, SECTOR):
                if how == "zeroed" or draw.random() < 0.5:
                    a, b = max(at, begin), min(at + SECTOR, end, len(content))
                    content[a:b] = b"\0" * (b - a) if a >= len(self.synced) or draw.random() < 0.5 else self.synced[a:b].ljust(b - a, b"\0")
        return bytes(content)


class Disk:
    """What is on a disk, and what of it is certain, while a log is replayed."""

    def __init__(self, log):
        self.log = log
        self.sure = {inode: dict(entries) for inode, entries in log.folders.items()}
        self.data = {inode: Data(content) for inode, content in log.files.items()}
        self.pending = []  # of names

    def apply(self, operation):
        kind = operation[0]
        if kind in ("link", "rename", "unlink"):
            self.pending.append(operation)
            if kind == "link":
                inode = operation[3]
                if inode in self.log.names:
                    self.sure[inode] = {}
                else:
                    self.data[inode] = Data()
        elif operation[1] in self.data:
            self.data[operation[1]].change(kind, *operation[2:])
        else:  # of a folder
            for name in [name for name in self.pending if operation[1] in (name[1], name[3] if name[0] == "rename" else None)]:
                self.change(self.sure, name)
                self.pending.remove(name)

    @staticmethod
    def change(folders, operation):
        kind, folder, name, *more = operation
        if kind == "link":
            folders[folder][name] = more[0]
        elif kind == "unlink":
            folders[folder].pop(name, None)
        else:
            folders[folder].pop(name, None)
            folders[more[0]][more[1]] = more[2]

    def image(self, done, how, draw):
        """{path: bytes, or None of a folder}: of the pending names those in `done` have been changed."""
        folders = {inode: dict(entries) for inode, entries in self.sure.items()}
        for index, operation in enumerate(self.pending):
            if index in done:
                self.change(folders, operation)
        found = {}

        def walk(inode, path):
            for name, child in folders[inode].items():
                found[path + name] = None if child in folders else self.data[child].left(how, draw)
                if child in folders:
                    walk(child, path + name + "/")
        walk(0, "")
        return found

    def images(self, draw, samples):
        every = range(len(self.pending))
        choices = [(every, how) for how in DATA] + [((), "dropped"), ((), "written")]
        for index in every:
            if self.pending[index][0] == "rename":
                choices += [([one for one in every if one != index], "written"), ([index], "written"), ([index], "zeroed"),
                            (range(index + 1), "dropped")]
        for _ in range(samples):
            choices.append(([index for index in every if draw.random() < 0.5], draw.choice(DATA)))
        for done, how in choices:
            yield self.image(set(done), how, draw)


def read_tree(root):
    return {str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in sorted(root.rglob("*"))}


def write_tree(root, tree):
    root.mkdir()
    for path, content in tree.items():
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)


def part(tree, folder):
    """What of `tree` lies in `folder`."""
    return {path[len(folder) + 1:]: content for path, content in tree.items() if path.startswith(folder + "/")}


def digest(tree):
    return hashlib.sha256(repr(sorted(tree.items())).encode()).digest()


@unittest.skipUnless(shutil.which("strace"), "strace is missing\n  next: launch/install-deps")
class CrashImages(SystemTest):
    FEW = 12  # disks that are resumed from

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.memory = pathlib.Path(tempfile.mkdtemp(prefix="shiftron-crash-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        cls.addClassCleanup(shutil.rmtree, cls.memory, True)
        cls.images = 0

    def tiny(self, run, **more):
        small = {"model__layers": 1, "model__hidden": 8, "model__heads": 2, "model__ffn": 8, "train__global_batch": 1,
                 "train__sequence_length": 8, "train__steps": 4, "checkpoint__every": 2, "checkpoint__keep": 1}
        return self.settings(run, **{**small, **more})

    def listed(self, tree):
        """{step: valid} of `checkpoint list` where `tree` is the folder of checkpoints."""
        type(self).images += 1
        root = self.memory / f"image-{self.images}"
        write_tree(root, tree)
        rows = json.loads(self.must(shiftron("checkpoint", "list", root, "--json")))
        shutil.rmtree(root)
        return {row["step"]: row["valid"] for row in rows}

    def disks(self, log, operations, samples=2):
        """(operations before the crash, disk) of a log; of many writes one after the other, some."""
        disk, draw = Disk(log), random.Random(5)
        for count, operation in enumerate(operations, 1):
            disk.apply(operation)
            last = count == len(operations)
            if operation[0] == "write" and not last and operations[count][0] == "write" and draw.random() < 0.9:
                continue
            for tree in disk.images(draw, samples):
                yield count, tree

    def check(self, log, folder, whole, old, new):
        """Of every disk: steps that count as valid are those of `whole` ({step: its files}), and one is there; `old` is None where the
        command begins without any. Returns trees of disks to resume from."""
        seen, kept, answers = set(), {}, []
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for count, tree in self.disks(log, log.operations):
                checkpoints = part(tree, folder)
                last = count == len(log.operations)
                key = digest(checkpoints), last
                kept.setdefault(key[0], tree)
                if key not in seen:
                    seen.add(key)
                    answers.append((count, last, checkpoints, pool.submit(self.listed, checkpoints)))
        states = set()
        for count, last, checkpoints, answer in answers:
            valid = {number for number, good in answer.result().items() if good}
            what = f"crash after operation {count} of {len(log.operations)}, {log.operations[count - 1][:3]}: {sorted(checkpoints)}"
            for number in valid:
                self.assertTrue(part(checkpoints, f"step-{number:08d}") == whole[number], f"step {number} counts as valid, and is not whole; {what}")
            self.assertTrue(valid or not old, f"no valid step; {what}")
            if last:
                self.assertIn(new, valid, what)
            states.add(tuple(sorted(valid)))
        print(f"{len(answers)} disks, {len(log.operations)} operations; steps that were valid: {sorted(states)}", flush=True)
        self.assertGreaterEqual(len(states), 2)
        self.assertGreaterEqual(len(answers), 150)
        return list(kept.values())

    def lost(self, log, operations, folder, new, files):
        """Whether a disk after the end of `operations` lacks the new step or has an incomplete one."""
        disk, draw = Disk(log), random.Random(6)
        for operation in operations:
            disk.apply(operation)
        return any(part(part(tree, folder), f"step-{new:08d}") != files for tree in disk.images(draw, 8))

    def check_syncs(self, log, folder, new, files):
        """No sync may be missing: without the last one of any file of the step, of its folder or of the folder above, a crash after
        the end loses the step."""
        above = 0
        for name in folder.split("/"):
            above = log.names[above][name]
        step = log.names[above][f"step-{new:08d}"]
        commit = max(index for index, one in enumerate(log.operations) if one[0] == "rename" and one[5] == step)
        self.assertFalse(self.lost(log, log.operations, folder, new, files))
        for inode in [above, step, *log.names[step].values()]:
            # of the folder above: those after the commit, also of removals
            without = {index for index, one in enumerate(log.operations) if one == ("sync", inode) and (inode != above or index > commit)}
            self.assertTrue(without, f"inode {inode} is never synced")
            self.assertTrue(self.lost(log, [one for index, one in enumerate(log.operations) if index not in without], folder, new, files),
                            f"inode {inode} of {log.names[step]} need not be synced: these disks show nothing")

    def test_a_first_save(self):
        place = self.folder / "new"
        place.mkdir()
        log = Log(place).record([PROGRAM, "train", *options(self.tiny(place / "some" / "run", train__steps=2, checkpoint__keep=2))])
        first, files = (part(read_tree(place), f"some/run/checkpoints/step-0000000{number}") for number in (0, 2))
        self.check(log, "some/run/checkpoints", {0: first, 2: files}, None, 2)
        self.check_syncs(log, "some/run/checkpoints", 2, files)

    def test_a_save(self):
        run = self.folder / "saved"
        self.expect(75, self.train(1, self.tiny(run, train__stop_at=2)))
        before = read_tree(run)
        log = Log(run).record([PROGRAM, "train", *options(self.tiny(run))])
        after = read_tree(run)
        disk = Disk(log)
        for operation in log.operations:
            disk.apply(operation)
        self.assertTrue(disk.image(set(range(len(disk.pending))), "written", random) == after, "the log is not all that was done")
        files = part(after, "checkpoints/step-00000004")
        trees = self.check(log, "checkpoints", {2: part(before, "checkpoints/step-00000002"), 4: files}, 2, 4)
        self.check_syncs(log, "checkpoints", 4, files)

        expected = losses(run)
        shutil.rmtree(run)
        unremoved = next(tree for tree in trees if {"checkpoints/step-00000002", "checkpoints/step-00000004"} <= set(tree))
        for number, tree in enumerate([unremoved, *self.random.sample(trees, self.FEW)]):
            write_tree(run, tree)
            self.expect(0, self.train(1, self.tiny(run)))
            self.assertEqual(losses(run), expected, f"disk {number}")
            self.assertTrue(part(read_tree(run), "checkpoints/step-00000004") == files, f"disk {number}")
            self.assertEqual([path.name for path in (run / "checkpoints").iterdir()], ["step-00000004"], f"disk {number}")
            shutil.rmtree(run)

    def test_a_conversion(self):
        run, place = self.folder / "source", self.folder / "converted"
        self.expect(75, self.train(1, self.tiny(run, train__stop_at=2)))
        source = run / "checkpoints" / "step-00000002"
        before = read_tree(run)
        place.mkdir()
        log = Log(place).record([PROGRAM, "checkpoint", "convert", source, "--layout", "tp=2", "--output", place / "some" / "run"])
        self.assertTrue(read_tree(run) == before, "the converted run has changed")
        files = part(read_tree(place), "some/run/checkpoints/step-00000002")
        self.check(log, "some/run/checkpoints", {2: files}, None, 2)
        self.check_syncs(log, "some/run/checkpoints", 2, files)


if __name__ == "__main__":
    main()
