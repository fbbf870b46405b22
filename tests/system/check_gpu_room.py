#!/usr/bin/env python3
"""Runs that need more memory than a GPU has are refused before they train; ranks that share a GPU get a part of its memory each,
whatever each is shown."""
import os
import re
import unittest
import unittest.mock

import harness
from harness import SystemTest

LIMITS = ("SHIFTRON_MACHINE_DEVICES", "SHIFTRON_MACHINE_MEMORY", "SHIFTRON_MACHINE_NCCL_MEMORY", "NCCL_RUNTIME_CONNECT")
CONNECTION = (512 << 10) + 4_915_200 + (4 << 20)  # bytes of NCCL's buffers for one channel
WRAPPER = """#!/bin/sh
CUDA_VISIBLE_DEVICES={visible} exec "{program}" "$@"
"""


class GpuRoom(SystemTest):
    def tearDown(self):
        for name in LIMITS:
            os.environ.pop(name, None)
        super().tearDown()

    def train_on(self, devices, memory, ranks, code, connection=CONNECTION, **more):
        """What the run says on a host with so many GPUs of so many bytes, of which NCCL takes some for a connection; it must end with `code`."""
        os.environ.update(zip(LIMITS, (str(devices), str(memory), str(connection))))
        run = self.folder / f"run-{self.jobs}"
        settings = self.settings(run, device__kind="cuda", train__steps=1, train__global_batch=2, train__sequence_length=16, model__layers=1, **more)
        return self.expect(code, self.train(ranks, settings), 120)

    def planned(self, ranks=1, **more):
        text = self.train_on(ranks, 1 << 35, ranks, 0, **more)
        return int(re.search(" free, ([0-9,]+) planned", text)[1].replace(",", ""))

    def test_what_is_planned_must_fit(self):
        planned = self.planned()
        for devices, memory, ranks, code in ((1, planned, 1, 0), (1, planned - 1, 1, 76), (2, planned * 3 // 2, 2, 0), (1, planned * 3 // 2, 2, 76)):
            with self.subTest(devices=devices, memory=memory, ranks=ranks):
                text = self.train_on(devices, memory, ranks, code)
                if code:
                    self.assert_printed_once(text, "not enough memory on the device of rank ")

    def test_memory_of_communicators_is_planned_and_reported(self):
        reserve = 40
        planned = self.planned(2, device__reserve=reserve)
        text = self.train_on(2, planned, 2, 0, device__reserve=reserve)
        expected = f"{(32 + 1) * 2 * CONNECTION:,}"  # rings and trees, of the sums over dp and of the numbers of all
        self.assertIn(f"communicators use {expected} bytes of this rank's device ({expected} expected)", text)
        self.assertRegex(text, rf"NCCL +{(32 + 1) * 2 * CONNECTION / 1e6:.3f} MB")
        text = self.train_on(2, planned, 2, 76, connection=CONNECTION * 11 // 10, device__reserve=reserve)
        self.assertIn("its communicators use 0.699 GB, 0.636 GB expected", text)
        self.assertIn("set device.reserve=", text)
        text = self.train_on(2, planned, 2, 76, connection=planned, device__reserve=reserve)
        self.assertIn("the plan reserves an estimate for NCCL and device.reserve", text)

    def test_connecting_all_at_once_takes_more_than_is_planned(self):
        reserve = 40
        planned = self.planned(2, device__reserve=reserve)
        os.environ["NCCL_RUNTIME_CONNECT"] = "0"
        text = self.train_on(2, planned, 2, 76, device__reserve=reserve)
        self.assertIn("unset NCCL_RUNTIME_CONNECT", text)

    def test_ranks_that_are_shown_one_gpu_each_share_it_if_it_is_the_same(self):
        memory = self.planned() * 3 // 2
        wrapper = self.folder / "wrapper"
        for visible, code in (("$OMPI_COMM_WORLD_LOCAL_RANK", 0), ("1", 76)):
            wrapper.write_text(WRAPPER.format(visible=visible, program=harness.PROGRAM))
            wrapper.chmod(0o755)
            with self.subTest(visible=visible), unittest.mock.patch.object(harness, "PROGRAM", str(wrapper)):
                text = self.train_on(2, memory, 2, code)
                self.assertEqual("shared by 2 ranks" in text, code != 0, text[-3000:])
                self.assertEqual(text.count("2 ranks share 1 GPU)"), int(code != 0), text[-3000:])


if __name__ == "__main__":
    unittest.main(verbosity=2)
