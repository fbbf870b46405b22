#!/usr/bin/env python3
"""`shiftron preflight` of ranks on the emulator: it passes, and names a host whose GPU is absent or fails."""
import os
import unittest
import unittest.mock

from harness import SystemTest, options


# Stands in for the driver's program, on a host whose GPU of rank 1 has been given less power.
NVIDIA_SMI = """#!/bin/sh
case "$*" in
nvlink*) printf '\\t Link 0: 26.562 GB/s\\n' ;;
*{odd}*) echo "Machine, 580.1, 81559 MiB, 1980 MHz, 500.00 W, Enabled, {errors}, 5, 16" ;;
*) echo "Machine, 580.1, 81559 MiB, 1980 MHz, 700.00 W, Enabled, 0, 5, 16" ;;
esac
"""


class GpuPreflight(SystemTest):
    def preflight(self, ranks, code, **more):
        """What it says, and the hosts that it calls unfit."""
        run = self.folder / f"run-{self.jobs}"
        bad = self.folder / f"bad-hosts-{self.jobs}"
        settings = self.settings(run, device__kind="cuda", train__precision="bf16", **more)
        job = self.start(ranks, ["preflight", *options(settings), "--ranks", ranks, "--bad-hosts", bad, "--deadline", 600])
        text = self.expect(code, job, 240)
        return text, bad.read_text().split() if bad.exists() else None

    def on(self, name, value, *arguments, **more):
        with unittest.mock.patch.dict(os.environ, {name: value}):
            return self.preflight(*arguments, **more)

    def test_hosts_that_are_fit(self):
        for ranks, more in ((1, {}), (4, {"parallel__tp": 2, "parallel__pp": 2})):
            with self.subTest(ranks=ranks):
                text, bad = self.preflight(ranks, 0, **more)
                self.assertIn(f"preflight: {ranks} ranks fit", text)
                self.assertEqual(bad, [])

    def test_a_host_without_a_gpu_is_unfit(self):
        text, bad = self.on("SHIFTRON_MACHINE_DEVICES", "0", 2, 70)
        self.assertIn("no GPU found on", text)
        self.assertEqual(bad, [os.uname().nodename])

    def test_a_gpu_that_fails_makes_its_host_unfit(self):
        for fault in ("1/product:1", "1/kernel:1", "1/stream:1"):
            with self.subTest(fault=fault):
                text, bad = self.on("SHIFTRON_MACHINE_FAIL", fault, 2, 70)
                self.assertIn("on its rank 1: ", text)
                self.assertEqual(bad, [os.uname().nodename])

    def test_a_differing_gpu_is_named(self):
        for errors, code in ((0, 0), (2, 70)):
            with self.subTest(errors=errors):
                program = self.folder / "nvidia-smi"
                program.write_text(NVIDIA_SMI.format(odd="0000:01:00.0", errors=errors))
                program.chmod(0o755)
                text, bad = self.on("PATH", f"{self.folder}:{os.environ['PATH']}", 4, code)
                self.assertIn("the GPU of its rank 1: power.limit is 500.00 W, most have 700.00 W", text)
                self.assertEqual("the GPU of its rank 1 has had 2 uncorrectable ECC memory errors" in text, errors > 0, text)
                self.assertEqual(bad, [os.uname().nodename] if errors else [])

    def test_more_ranks_than_gpus_are_reported(self):
        text, bad = self.on("SHIFTRON_MACHINE_DEVICES", "1", 2, 0)
        self.assertIn("2 ranks share 1 GPU", text)
        self.assertEqual(bad, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
