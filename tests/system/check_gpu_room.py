#!/usr/bin/env python3
"""Runs that a GPU has no room for are refused before they train; ranks that share one have a part of its memory each."""
import os
import re
import unittest

from harness import SystemTest

LIMITS = ("SHIFTRON_MACHINE_DEVICES", "SHIFTRON_MACHINE_MEMORY")


class GpuRoom(SystemTest):
    def tearDown(self):
        for name in LIMITS:
            os.environ.pop(name, None)
        super().tearDown()

    def train_on(self, devices, memory, ranks, code):
        """What the run says on a host with so many GPUs of so many bytes; it must end with `code`."""
        os.environ.update(zip(LIMITS, (str(devices), str(memory))))
        run = self.folder / f"{ranks}-on-{devices}-of-{memory}"
        settings = self.settings(run, device__kind="cuda", train__steps=1, train__global_batch=2, train__sequence_length=16, model__layers=1)
        return self.expect(code, self.train(ranks, settings), 120)

    def test_what_is_planned_must_fit(self):
        text = self.train_on(1, 1 << 35, 1, 0)
        planned = int(re.search("are free, ([0-9,]+) are planned", text)[1].replace(",", ""))
        for devices, memory, ranks, code in ((1, planned, 1, 0), (1, planned - 1, 1, 76), (2, planned * 3 // 2, 2, 0), (1, planned * 3 // 2, 2, 76)):
            with self.subTest(devices=devices, memory=memory, ranks=ranks):
                text = self.train_on(devices, memory, ranks, code)
                if code:
                    self.assert_told_once(text, "not enough memory on the device of rank ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
