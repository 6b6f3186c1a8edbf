"""A plugin of coverage.py: processes save what they counted before they are ended.

The sandbox of engines has a /dev/shm of its own, so they hand it over by a file that was opened
before. What they and tests start inherits it, whatever its environment is.
"""

import os
import signal
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from pathlib import Path

from coverage import Coverage, CoverageData

LONG = 3.0  # s
HANDED = "handed."
_INHERITED = "COVERAGE_HANDED"  # a variable: the file's descriptor
_MARK = b"what a process counted:"  # some are killed while they write
_GENTLY = ("close", "rest", "ready_process")

_handed: list[int] = []


def coverage_init(registry, options) -> None:
    if _handed:  # forked: all is there
        return
    folder = os.path.dirname(os.environ["COVERAGE_FILE"])
    _handed.append(_file(folder))
    killpg, save = os.killpg, Coverage.save
    start, kill = subprocess.Popen.__init__, subprocess.Popen.kill

    def saved(group: int, number: int) -> None:
        counted = Coverage.current()
        if group == 0 and counted:
            counted.save()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            killpg(0, signal.SIGTERM)
            _wait(_no_child)
        # What else is killed, is killed for a test's sake, and its status matters.
        elif number == signal.SIGKILL and sys._getframe(3).f_code.co_name in _GENTLY:
            killpg(group, signal.SIGTERM)  # coverage.py saves there, too
            _wait(lambda: _ended(group))
        killpg(group, number)

    def ended(self) -> None:
        if sys._getframe(1).f_globals["__name__"].startswith(("relascope.engine.", "tvm.")):
            self.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.wait(LONG)
        kill(self)

    def started(self, *args, **named) -> None:
        if named.get("close_fds", True):
            named["pass_fds"] = (*named.get("pass_fds", ()), _handed[0])
        if named.get("env") is not None:
            own = {n: v for n, v in os.environ.items() if n.startswith("COVERAGE_")}
            paths = (named["env"].get("PYTHONPATH"), os.path.dirname(__file__))
            own["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
            named["env"] = {**named["env"], **own}
        start(self, *args, **named)

    def handed_over(self) -> None:
        os.makedirs(folder, exist_ok=True)
        save(self)
        os.write(_handed[0], _MARK + self.get_data().dumps())

    os.killpg, Coverage.save = saved, handed_over
    subprocess.Popen.__init__, subprocess.Popen.kill = started, ended


def _file(folder: str) -> int:
    """The one that was inherited, else another."""
    number = os.environ.get(_INHERITED, "")
    with suppress(OSError):
        if HANDED in os.readlink(f"/proc/self/fd/{number}"):
            return int(number)
    how = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND
    made = os.open(f"{folder}/{HANDED}{os.getpid()}", how, 0o600)
    os.environ[_INHERITED] = str(made)
    return made


def _wait(done) -> None:
    until = time.monotonic() + LONG
    while time.monotonic() < until and not done():
        time.sleep(0.01)


def _no_child() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def _ended(process: int) -> bool:
    """Whether it is gone, or waits for its parent, which is the fork server."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


if __name__ == "__main__":
    time.sleep(LONG)  # engines whose tests have just ended are saving
    for path in Path(sys.argv[1]).glob(f"{HANDED}*"):
        # A forked process hands over what its parent counted before as well.
        for number, content in enumerate(path.read_bytes().split(_MARK)[1:]):
            data = CoverageData(str(path.with_name("data")), suffix=f"{path.name}.{number}")
            with suppress(zlib.error):
                data.loads(content)
                data.write()
        path.unlink()
