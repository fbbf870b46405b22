#!/usr/bin/env python3
"""Calls of CUDA that fail in the program, on the emulator of a GPU: what it says, its exit code, what it gives back, whether its last
saved step is whole, and whether the same command resumes. SHIFTRON_FULL_WALK=1: more calls of each kind."""
import json
import os
import socket
import unittest

from harness import SystemTest, events, losses, shiftron, step

FULL = "SHIFTRON_FULL_WALK" in os.environ
NO_MEMORY = {"cudaMalloc", "cudaMallocHost", "cudaStreamCreateWithPriority", "cudaEventCreateWithFlags", "cudnnBackendCreateDescriptor",
             "cublasLtMatmulDescCreate", "cublasLtMatrixLayoutCreate", "cublasLtMatmulPreferenceCreate"}
BAD_INPUT = NO_MEMORY | {"cudaGetDeviceCount"}


class GpuAccidents(SystemTest):
    STEPS = 3
    OF_INITIAL_WEIGHTS = 25  # a copy of a fresh start among those of its parameters

    def tearDown(self):
        for name in ("SHIFTRON_MACHINE_FAIL", "SHIFTRON_MACHINE_REPORT"):
            os.environ.pop(name, None)
        super().tearDown()

    def settings_of(self, run):
        return self.settings(run, device__kind="cuda", train__steps=self.STEPS, train__precision="bf16", train__deterministic="repeat", train__global_batch=2,
                             train__sequence_length=16, model__layers=1, checkpoint__every=1)

    def start_failing(self, run, fault, ranks=1, **more):
        """The job, of which the call that `fault` names is to fail, and where rank 0's report will be."""
        report = self.folder / f"report-{run.name}"
        os.environ["SHIFTRON_MACHINE_REPORT"] = str(report)
        if fault:
            os.environ["SHIFTRON_MACHINE_FAIL"] = fault
        job = self.train(ranks, {**self.settings_of(run), **more})
        os.environ.pop("SHIFTRON_MACHINE_FAIL", None)
        os.environ.pop("SHIFTRON_MACHINE_REPORT", None)
        return job, report.with_name(report.name + ".0")

    def saved_steps(self, run):
        return sorted(path for path in run.glob("checkpoints/step-????????") if (path / "manifest.json").exists())

    def check_failure(self, fault, whole):
        run = self.folder / fault.replace(":", "-")
        job, report = self.start_failing(run, fault)
        code, text = job.wait(), job.text()
        answer = json.loads(report.read_text())
        call = answer["failed"]
        self.assertEqual(answer["left"], {}, "not given back")
        if code == 0:  # a plan that the library does not make is replaced; a step that was not saved is reported
            unsaved = "could not be saved" in text
            last = call in ("", "cudaStreamSynchronize", "cudaEventSynchronize")  # of who leaves
            self.assertTrue(call == "cudnnBackendFinalize" or unsaved or last, f"{call} failed unnoticed:\n{text[-2000:]}")
        else:
            self.assertEqual(code, 76 if call in BAD_INPUT else 70, text[-2000:])
            errors = [line for line in text.splitlines() if line.startswith("error: ")]
            self.assertTrue(errors, text[-2000:])
            if call not in ("an operation of a stream", "cudaStreamSynchronize", "cudaEventQuery"):  # which the next call may tell
                self.assertTrue(any(call in line or "not enough memory" in line for line in errors), f"{call}: {errors}")
            self.assertEqual(events(run, "exit")[-1]["code"], code)
            self.assertIn("[rank 0] " + errors[-1], (run / "logs" / "rank-00000.log").read_text())
        if steps := self.saved_steps(run):
            result = shiftron("checkpoint", "verify", steps[-1])
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.expect(0, self.train(1, self.settings_of(run)))
        self.assertTrue(step(run, self.STEPS).exists())
        if call != "cudnnBackendFinalize":  # whose replacement has other bits
            self.assertEqual(losses(run), losses(whole))

    def test_calls_of_every_kind(self):
        whole = self.folder / "whole"
        job, report = self.start_failing(whole, "")
        self.expect(0, job)
        answer = json.loads(report.read_text())
        self.assertEqual((answer["failed"], answer["left"]), ("", {}))
        for kind, count in answer["calls"].items():
            if kind == "collective":  # one rank has none
                continue
            self.assertGreater(count, 0, kind)
            parts = 8 if FULL else 1
            for number in sorted({1 + count * (2 * part + 1) // (2 * parts) for part in range(parts)} | ({1, count} if FULL else set())):
                with self.subTest(kind=kind, number=number):
                    self.check_failure(f"{kind}:{number}", whole)

    def test_a_load_that_fails_rejects_no_step(self):
        run = self.folder / "load"
        self.expect(0, self.start_failing(run, "")[0])
        job, report = self.start_failing(run, "")  # has nothing to do
        self.expect(0, job)
        calls = json.loads(report.read_text())["calls"]
        for kind in ("copy", "event", "kernel"):  # refused at once, or reported late with the device lost
            with self.subTest(kind=kind):
                job, report = self.start_failing(run, f"{kind}:{calls[kind] * 3 // 10}")
                text = self.expect(70, job)
                self.assert_printed_once(text, f"step-{self.STEPS:08d} could not be read, but its content may be valid: rank 0 on {socket.gethostname()}: ")
                self.assertNotIn("cannot be used", text)
                self.assertEqual(json.loads(report.read_text())["left"], {})
                self.assertEqual(events(run, "exit")[-1]["code"], 70)
        self.assertIn(f"resuming after step {self.STEPS}\n", self.expect(0, self.train(1, self.settings_of(run))))

    def test_a_rank_that_fails_alone_says_why(self):
        run = self.folder / "alone"
        job, _ = self.start_failing(run, f"1/copy:{self.OF_INITIAL_WEIGHTS}", 2)
        self.assertIn("[rank 1] error: upload of ", self.expect(70, job))
        self.assertIn("cudaMemcpyAsync", next(event["error"] for event in events(run, "exit") if event["rank"] == 1))
        job, _ = self.start_failing(run, "1/event:1", 2)
        self.assertIn("[rank 1] error: cudaEventCreateWithFlags: out of memory", self.expect(76, job))
        self.expect(0, self.train(2, self.settings_of(run)))
        job, _ = self.start_failing(run, f"1/copy:{self.OF_INITIAL_WEIGHTS}", 2)  # of the step's, of which all ranks hear
        self.assert_printed_once(self.expect(70, job),
                              f"could not be read, but its content may be valid: rank 1 on {socket.gethostname()}: upload of ")

    def test_a_rank_that_fails_alone_in_decoding_says_why(self):
        run = self.folder / "decoding"
        self.expect(0, self.train(2, {**self.settings_of(run), "parallel.tp": 2}))
        words = ["generate", "--checkpoint", step(run, self.STEPS), "--prompt", "The", "--tokens", "4"]
        os.environ["SHIFTRON_MACHINE_REPORT"] = str(self.folder / "report-decoding")
        self.expect(0, self.start(2, words))
        launches = json.loads((self.folder / "report-decoding.1").read_text())["calls"]["launch"]
        os.environ["SHIFTRON_MACHINE_FAIL"] = f"1/launch:{launches * 9 // 10}"
        self.assertIn("too many resources requested for launch", self.expect(70, self.start(2, words)))

    def test_a_wish_that_names_no_kind_is_refused(self):
        job, _ = self.start_failing(self.folder / "misspelt", "kernels:1")
        self.assertIn("no call is of kind kernels", self.expect(76, job))


if __name__ == "__main__":
    unittest.main(verbosity=2)
