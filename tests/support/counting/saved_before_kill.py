"""A plugin of coverage.py: engines save what they counted before they are ended.

Their sandbox has a /dev/shm of its own, so they hand it over by a file that was opened before.
"""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from coverage import Coverage, CoverageData

LONG = 3.0  # s
HANDED = "handed."
_LENGTH = 8  # bytes


_handed: list[int] = []


def coverage_init(registry, options) -> None:
    folder = os.path.dirname(os.environ["COVERAGE_FILE"])
    how = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND
    _handed.append(os.open(f"{folder}/{HANDED}{os.getpid()}", how, 0o600))
    if len(_handed) > 1:  # forked: all but the file is there
        os.close(_handed.pop(0))
        return
    kill, save = os.killpg, Coverage.save

    def saved(group: int, number: int) -> None:
        counted = Coverage.current()
        if group == 0 and counted:
            counted.save()
        # What else is killed, is killed for a test's sake, and its status matters.
        elif number == signal.SIGKILL and sys._getframe(3).f_code.co_name in ("close", "rest"):
            kill(group, signal.SIGTERM)  # coverage.py saves there, too
            until = time.monotonic() + LONG
            while time.monotonic() < until and not _ended(group):
                time.sleep(0.01)
        kill(group, number)

    def handed_over(self) -> None:
        os.makedirs(folder, exist_ok=True)
        save(self)
        data = self.get_data().dumps()
        os.write(_handed[0], len(data).to_bytes(_LENGTH, "big") + data)

    os.killpg, Coverage.save = saved, handed_over


def _ended(process: int) -> bool:
    """Whether it is gone, or waits for its parent, which is the fork server."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


if __name__ == "__main__":
    for path in Path(sys.argv[1]).glob(f"{HANDED}*"):
        # A forked process hands over what its parent counted before as well.
        with path.open("rb") as file:
            for number, length in enumerate(iter(partial(file.read, _LENGTH), b"")):
                data = CoverageData(str(path.with_name("data")), suffix=f"{path.name}.{number}")
                data.loads(file.read(int.from_bytes(length, "big")))
                data.write()
        path.unlink()
