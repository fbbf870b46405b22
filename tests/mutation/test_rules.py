#!/usr/bin/env python3
"""The rules of tests/mutation: the mutants of example.cpp compile together, and each one changes what the program prints."""
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
try:
    import sites as finder
except ImportError:
    print("skipped: Python has no module clang; launch/install-deps --mutation installs it")
    sys.exit(77)
import rewrite  # noqa: E402
import rules  # noqa: E402
import running  # noqa: E402


def example_sites():
    unit = finder.parse([HERE / "example.cpp"], ["-std=c++20"])
    return finder.sites_of(unit, HERE, ["example.cpp"])["example.cpp"]


class Rules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.sites = dict(enumerate(example_sites(), 1))
        cls.text = (HERE / "example.cpp").read_bytes()
        cls.rewritten = rewrite.rewrite(cls.text, list(cls.sites.items()), str(HERE / "mutation.h"))
        cls.source = pathlib.Path(cls.folder.name, "example.cpp")
        cls.source.write_bytes(cls.rewritten.file())
        cls.program = pathlib.Path(cls.folder.name, "example")
        cls.log = subprocess.run(["g++", "-std=c++20", "-O0", cls.source, HERE / "state.cpp", "-o", cls.program], capture_output=True, text=True,
                                 check=False).stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_as(self, mutant, **more):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SHIFTRON_")}
        if mutant is not None:
            environment["SHIFTRON_MUTANT"] = str(mutant)
        ran = subprocess.run([self.program], capture_output=True, text=True, env={**environment, **more}, check=False, timeout=5)
        return ran.returncode, ran.stdout

    def test_every_rule_has_a_site(self):
        self.assertEqual({site.rule for site in self.sites.values()}, set(rules.RULES))

    def test_arguments_of_a_declared_variable_have_sites(self):
        self.assertIn("count + 2", {site.original for site in self.sites.values()})

    def test_names_differ(self):
        self.assertEqual(len({site.name for site in self.sites.values()}), len(self.sites))

    def test_no_line_moves(self):
        self.assertEqual(self.rewritten.data.count(b"\n"), self.text.count(b"\n"))

    def test_without_a_mutant_nothing_changes(self):
        original = pathlib.Path(self.folder.name, "original")
        subprocess.run(["g++", "-std=c++20", "-O0", HERE / "example.cpp", "-o", original], check=True)
        plain = subprocess.run([original], capture_output=True, text=True, check=True).stdout
        self.assertTrue(self.program.exists(), self.log)
        self.assertEqual(self.run_as(None), (0, plain))

    def test_each_mutant_changes_the_output(self):
        plain = self.run_as(None)
        for number, site in self.sites.items():
            if site.function == "main":  # another argument need not give another result
                continue
            with self.subTest(site.name, original=site.original, mutated=site.alternative or site.form):
                self.assertNotEqual(self.run_as(number), plain)

    def test_reached_mutants_are_recorded(self):
        reached = pathlib.Path(self.folder.name, "reached")
        reached.write_bytes(bytes(len(self.sites) + 1))
        self.assertEqual(self.run_as("record", SHIFTRON_MUTATION_REACHED=str(reached)), self.run_as(None))
        self.assertEqual([number for number, byte in enumerate(reached.read_bytes()) if byte], list(self.sites))


class Sources(unittest.TestCase):
    def test_constant_expressions_are_left_alone(self):
        text = (b"// A file.\n#include <array>\ntemplate <int n> int size() { if constexpr (n > 1) { return n; } return 1; }\n"
                b"static_assert(1 + 1 == 2);\nconstexpr int kTwo = 1 + 1;\nenum Kind { one = 1 + 0 };\nstd::array<int, 2 + 1> a;\n"
                b"int use(float* x, int n) {\n#pragma omp simd\n  for (int i = 0; i < n; ++i) x[i] = 0;\n  switch (n) { case 1: return size<3>(); }\n"
                b"  return sizeof(int[4]);\n}\n")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "file.cpp")
            path.write_bytes(text)
            found = finder.sites_of(finder.parse([path], ["-std=c++20"]), pathlib.Path(folder), ["file.cpp"])["file.cpp"]
        self.assertEqual({site.line for site in found} & {4, 5, 6, 7}, set())
        self.assertEqual([(site.rule, site.original) for site in found if site.line == 10], [("call", "x[i] = 0"), ("index", "i"), ("constant", "0")])
        self.assertEqual({site.original for site in found if site.line == 11}, {"size<3>()"})

    def test_the_innermost_mutant_at_an_error_is_blamed(self):
        text = b"// A file.\nint f(int a) { return a + 1; }\nint g(int b) { return b * 2; }\n"
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            (copy / "file.cpp").write_bytes(text)
            found = dict(enumerate(finder.sites_of(finder.parse([copy / "file.cpp"], []), copy, ["file.cpp"])["file.cpp"], 1))
            rewritten = {"file.cpp": rewrite.rewrite(text, list(found.items()), "mutation.h")}
        factor = next(number for number, site in found.items() if site.rule == "factor")
        begin, _ = rewritten["file.cpp"].places[factor]
        column = begin - rewritten["file.cpp"].data.rindex(b"\n", 0, begin) + 1
        build = copy.parent / "build"
        for name in (f"{copy}/file.cpp", f"../{copy.name}/file.cpp"):
            self.assertEqual(rewrite.faulty(f"{name}:3:{column}: error: no", copy, rewritten, build), {factor})
        self.assertEqual(rewrite.faulty("/usr/include/a.h:3:1: error: no", copy, rewritten, build), set())

    def test_samples_are_stable(self):
        every = example_sites()
        some = rewrite.sample(every, 10, "ab")
        self.assertEqual(some, rewrite.sample(every[::-1], 10, "ab"))
        self.assertNotEqual(some, rewrite.sample(every, 10, "cd"))
        kept = [site for site in every if site not in some[:1]]
        self.assertLess(set(site.name for site in some[1:]), {site.name for site in rewrite.sample(kept, 10, "ab")})

    def test_folders_have_weights(self):
        base = example_sites()[0]
        every = [dataclasses.replace(base, path=f"src/{folder}/a.cpp", line=line) for folder in ("model", "cli") for line in range(1000)]
        model = sum(site.path.startswith("src/model") for site in rewrite.sample(every, 200, "0"))
        self.assertTrue(130 < model < 170, model)


class Cuda(unittest.TestCase):
    HEADER = """// A file.
#include <source_location>
enum cudaError_t { cudaSuccess };
cudaError_t cudaStreamWaitEvent(int stream, void* event);
cudaError_t cudaStreamSynchronize(void* stream);
void check_call(cudaError_t status, const char* call);
inline void __syncthreads(const std::source_location& place = std::source_location::current()) {}
int __shfl_sync(unsigned mask, int value, int source, const std::source_location& place = std::source_location::current());
struct Grid { int x; };
void launch(Grid grid, int block);
template <int kCount> struct Piece { int parts[kCount - 1]; };
template <typename T> void use(T piece) {}
template <int kCount> void wait_for(void* event) { check_call(cudaStreamWaitEvent(kCount, event), "wait"); }
"""
    SOURCE = """// A file.
#include "kernels/a_cuda.h"
constexpr int kBlock = 2 * 32;
void kernel() { __syncthreads(); asm("" : : "r"(1)); use(Piece<kBlock / 2>{}); }
int of_first(int own) { return __shfl_sync(~0u, own, 0); }
void start(int n, void* stream) { launch({.x = n / kBlock}, kBlock); cudaStreamSynchronize(stream); }
"""

    def test_kernels_their_launches_and_waits_have_sites(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "src/kernels").mkdir(parents=True)
            (root / "src/kernels/a_cuda.h").write_text(self.HEADER)
            (root / "src/kernels/a_cuda.cu").write_text(self.SOURCE)
            (root / "src/kernels/b.cpp").write_text("// A file.\nint b(int c) { return -c; }\n")
            entries = [{"file": f"{root}/src/kernels/{file}", "command": f"c++ -I{root}/src -std=c++20"} for file in ("a_cuda.cu", "b.cpp")]
            (root / "compile_commands.json").write_text(json.dumps(entries))
            with unittest.mock.patch.object(finder, "MOST_INCLUDERS", 0):  # which is a limit for other headers
                found = finder.find(root, root, root / "sites", 1, cuda=True)
        sites = {}
        for site in found:
            sites.setdefault((site.path[-2:], site.line), []).append((site.rule, site.original))
        self.assertEqual(sites.pop(("cu", 4)), [("wait", "__syncthreads()"), ("call", "use(Piece<kBlock / 2>{})")])
        self.assertIn(("bypass", "__shfl_sync(~0u, own, 0)"), sites.pop(("cu", 5)))
        self.assertEqual(sites.pop(("cu", 6)), [("call", "launch({.x = n / kBlock}, kBlock)"), ("index", "n / kBlock"), ("factor", "n / kBlock"),
                                                ("index", "kBlock"), ("wait", "cudaStreamSynchronize(stream)")])
        waiting = "cudaStreamWaitEvent(kCount, event)"
        self.assertEqual(sites.pop((".h", 13)), [("check", f'check_call({waiting}, "wait")'), ("wait", waiting), ("index", "kCount")])
        self.assertEqual(sites, {})
        self.assertEqual([site.alternative for site in found if site.rule == "check"], [f"static_cast<void>({waiting})"])


class Recorded(unittest.TestCase):
    def test_what_is_reached_between_cases_belongs_to_their_suite(self):
        cases, broken = running.read_cases("*\t0\tother\t1\nA.*\t0\tother\t2\nA.x\t0.5\tpassed\t3 4\nA.y\t0\tfailed\t\n"
                                           "B.x\t0\tpassed\t\nB.z\t0\tskipped\t\n")
        self.assertEqual((cases, broken), ({"A.x": [0.5, [1, 2, 3, 4]], "B.x": [0.0, [1]]}, ["A.y"]))

    def recorded(self, script):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "tests").mkdir()
            (folder / "a_tests").write_text(f"#!/bin/sh\n{script}\n")
            (folder / "a_tests").chmod(0o755)
            return running.Tests(folder, {"a_tests": folder / "a_tests"}, folder, "").record_program("a_tests", 3)

    def test_a_program_that_does_not_end_is_no_recording(self):
        self.assertEqual(self.recorded("printf 'A.x\\t0\\tpassed\\t2\\n' > \"$SHIFTRON_MUTATION_CASES\""), ("a_tests", {"A.x": [0.0, [2]]}, []))
        with self.assertRaises(running.RecordError):
            self.recorded("kill -9 $$")

    def test_whole_programs_are_recorded_and_run(self):
        script = ('#!/bin/sh\nif [ "$SHIFTRON_MUTANT" = record ]; then\n'
                  '  printf "\\001" | dd of="$SHIFTRON_MUTATION_REACHED" bs=1 seek=2 conv=notrunc\nfi\n[ "$SHIFTRON_MUTANT" != 2 ]\n')
        with tempfile.TemporaryDirectory() as name:
            build = pathlib.Path(name)
            (build / "shiftron").write_text(script)
            (build / "shiftron").chmod(0o755)
            (build / "CTestTestfile.cmake").write_text(f'add_test(system "{build}/shiftron")\nadd_test(other "true")\n'
                                                       f'add_test(broken "sh" "-c" "{build}/shiftron; false")\n')
            tests = running.Tests(build, {}, build, "")
            tests.record_system(3, tests.all_system())
            self.assertEqual({test: numbers for test, (_, numbers) in tests.system.items()}, {"system": [2], "broken": []})
            self.assertEqual(tests.broken, ["broken"])
            self.assertEqual(tests.run_programs(2, 100).killer, "system")
            self.assertEqual((tests.run_programs(3, 100).tests, tests.run_programs(2, 0).tests), (0, 0))
            self.assertEqual(running.Tests(build, {}, build, "").system, tests.system)
            self.assertEqual(running.Tests(build, {}, build, "another build").system, {})

    def test_the_failed_case_is_named(self):
        self.assertEqual(running.blamed_case("[ RUN      ] A.x\n[  FAILED  ] A.x (0 ms)\n"), "A.x")
        self.assertEqual(running.blamed_case("[ RUN      ] A.x\n[       OK ] A.x\n[ RUN      ] A.y\nSegmentation"), "A.y")


if __name__ == "__main__":
    unittest.main()
