"""How much longer than on an idle, current machine the tests wait before they call something a hang."""
import os

SCALE = float(os.environ.get("SHIFTRON_TEST_TIME_SCALE", "1"))


def scaled(seconds):
    return seconds * SCALE
