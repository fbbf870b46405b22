#!/usr/bin/env python3
"""tests/on_one_processor.py PROGRAM [arguments]: runs it on one of the processors it may use.

For threads that take turns: across two processors each turn has to wake the other one, which doubles the run time.
"""
import os
import sys

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.execvp(sys.argv[1], sys.argv[1:])
