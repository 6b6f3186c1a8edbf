"""A plugin of coverage.py: engines save what they counted before they are ended."""

import os
import signal
import sys
import time

from coverage import Coverage

LONG = 3.0  # s


def coverage_init(registry, options) -> None:
    kill = os.killpg

    def saved(group: int, number: int) -> None:
        counted = Coverage.current()
        if group == 0 and counted:
            counted.save()
        # What else is killed, is killed for a test's sake, and its status matters.
        elif number == signal.SIGKILL and sys._getframe(2).f_code.co_name in ("close", "rest"):
            kill(group, signal.SIGTERM)  # coverage.py saves there, too
            until = time.monotonic() + LONG
            while time.monotonic() < until and not _ended(group):
                time.sleep(0.01)
        kill(group, number)

    os.killpg = saved


def _ended(process: int) -> bool:
    try:
        return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True
