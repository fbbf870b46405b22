"""Builds a copy of the sources that has the sampled mutants, without those that do not compile."""
import hashlib
import json
import pathlib
import subprocess

import rewrite
from rules import Site

MOST_ATTEMPTS = 12
HERE = "tests/mutation"
BUILT = ("CMakeLists.txt", "src/", "tests/", "cmake/", "launch/", "configs/")  # what the programs and their tests depend on


class BuildError(Exception):
    pass


def checked(command, log, what):
    with open(log, "wb") as output:
        if subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode:
            raise BuildError(f"{what} failed: {log}\n  next: {' '.join(map(str, command))}")


def files_of(root):
    """Tracked files and new ones that are not ignored."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard"], capture_output=True, check=True).stdout
    return sorted({name for name in listed.decode().split("\0") if name and (root / name).is_file() and "__pycache__" not in name})


class Builder:
    """The folder work/ has: source (the copy), build, commands (for libclang), manifest.json (the mutants of the build)."""

    def __init__(self, root, work, jobs, programs=None, cuda=False):
        self.root, self.work, self.jobs, self.wanted = root, work, jobs, programs
        self.options = ["-DCMAKE_BUILD_TYPE=Release", "-DSHIFTRON_BENCHMARKS=OFF"] + ["-DSHIFTRON_CUDA=machine"] * cuda
        self.cuda = cuda
        self.copy, self.build = work / "source", work / "build"
        self.files = files_of(root)
        work.mkdir(parents=True, exist_ok=True)

    def commands(self):
        """A build folder with compile_commands.json of the original sources; nothing is compiled."""
        folder = self.work / "commands"
        tests = "ON" if self.cuda else "OFF"  # the emulator is one of them
        checked(["cmake", "-S", self.root, "-B", folder, "-G", "Ninja", *self.options, "-DSHIFTRON_UNITY=OFF", f"-DSHIFTRON_TESTS={tests}",
                 "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"],
                self.work / "commands.log", "the configuration")
        return folder

    def manifest(self):
        """(fingerprint, {number: site}) of what is built; (None, {}) if nothing is."""
        path = self.work / "manifest.json"
        if not path.exists():
            return None, {}
        data = json.loads(path.read_text())
        return data["fingerprint"], {int(number): Site(**site) for number, site in data["mutants"].items()}

    def is_current(self):
        known, mutants = self.manifest()
        return known is not None and known == self.fingerprint(mutants)

    def fingerprint(self, mutants):
        """Of what is built; another choice of programs is another build."""
        numbered = [[number, site.name, site.alternative] for number, site in mutants.items()]
        digest = hashlib.sha256(json.dumps([numbered, self.wanted]).encode())
        for name in self.files:
            folder, suffix = name.rpartition("/")[0], pathlib.Path(name).suffix
            if name.startswith(BUILT) and folder != "tests/mutants" and (folder != HERE or suffix in (".h", ".cpp", ".cmake")):
                digest.update(name.encode() + hashlib.sha256((self.root / name).read_bytes()).digest())
        return digest.hexdigest()

    def uncompilable(self):
        path = self.work / "uncompilable.json"
        return set(json.loads(path.read_text())) if path.exists() else set()

    @staticmethod
    def key(site):
        return f"{site.name} | {site.original} | {site.alternative}"

    def make(self, sites):
        """Builds the sites as mutants 1, 2, …; returns {number: site} of those that compile."""
        refused = self.uncompilable()
        mutants = {number: site for number, site in enumerate(sites, 1) if self.key(site) not in refused}
        path = self.work / "manifest.json"
        path.unlink(missing_ok=True)
        for attempt in range(MOST_ATTEMPTS):
            rewritten = rewrite.write_sources(self.root, self.copy, self.files, mutants)
            self.configure()
            log = self.work / "build.log"
            command = ["cmake", "--build", self.build, "-j", str(self.jobs), "--target", *(self.wanted or ["mutation_programs"]), "--", "-k", "0"]
            with open(log, "wb") as output:
                code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode
            if code == 0:
                break
            blamed = rewrite.faulty(log.read_text(errors="replace"), self.copy, rewritten, self.build) & mutants.keys()
            if not blamed:
                raise BuildError(f"the build failed, not because of a mutant: {log}\n  next: {' '.join(map(str, command))}")
            print(f"build {attempt + 1}: {len(blamed)} mutants do not compile", flush=True)
            refused |= {self.key(mutants.pop(number)) for number in sorted(blamed)}
            (self.work / "uncompilable.json").write_text(json.dumps(sorted(refused), indent=1))
        else:
            raise BuildError(f"after {MOST_ATTEMPTS} builds there are still mutants that do not compile: {log}")
        data = {"fingerprint": self.fingerprint(mutants), "mutants": {number: vars(site) for number, site in mutants.items()}}
        path.write_text(json.dumps(data, indent=1))
        return mutants

    def configure(self):
        if not (self.build / "build.ninja").exists():
            checked(["cmake", "-S", self.copy, "-B", self.build, "-G", "Ninja", *self.options, "-DCMAKE_CXX_FLAGS=-Werror=vla",
                     f"-DCMAKE_PROJECT_INCLUDE={self.copy / HERE / 'mutation.cmake'}"],
                    self.work / "configure.log", "the configuration")

    def programs(self):
        return {path.name: path for path in sorted((self.build / "tests").glob("*_tests"))
                if path.is_file() and (not self.wanted or path.name in self.wanted)}
