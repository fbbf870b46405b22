#!/usr/bin/env python3
"""tests/on_one_processor.py PROGRAM [arguments]: runs it on one of the processors it may use.

For threads that take turns: between two processors each turn wakes the other one, which costs twice the time of the whole.
"""
import os
import sys

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.execvp(sys.argv[1], sys.argv[1:])
