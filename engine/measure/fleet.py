"""Devices of a fleet: finding one through TVM's RPC tracker, whichever TVM this process has.

The tracker is asked over a socket with a limit of time, because TVM's own client waits without one.
"""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from relascope.core.errors import EngineError, lines_of
from relascope.engine.protocol.session import Progress
from relascope.engine.protocol.tuning import Fleet

PATIENCE = 30.0
"""Seconds to wait for a device that others use."""

_ANSWER = 5.0  # s; a tracker that is there answers at once
_HANDSHAKE = 20.0  # s; a server starts a process first
SESSION = 600.0
"""Seconds after which a server ends what it was given to do."""


def check(fleet: Fleet) -> int:
    """How many devices with its key a fleet's tracker knows; at least 1.

    Raises:
        EngineError: kind "target"; there is no tracker or no such device.
    """
    keys = [str(s.get("key", "")).partition(":")[2] for s in _summary(fleet)["server_info"]]
    if fleet.key not in keys:
        known = f"The tracker has devices with: {', '.join(sorted(set(keys)))}."
        none = "The tracker has no devices at all: start a server with this key on one."
        message = f"No device has registered with the key {fleet.key!r}."
        raise EngineError("target", message, fleet.tracker, known if keys else none)
    return keys.count(fleet.key)


@contextmanager
def connected(fleet: Fleet, progress: Progress, seconds: float = PATIENCE) -> Iterator[Any]:
    """A session on a free device, an `RPCSession` of this process's TVM; frees it at the end.

    Args:
        seconds: to wait for a device to be free.

    Raises:
        EngineError: kind "target"; there is none, or it does not understand this TVM.
    """
    session = connect(fleet, progress, seconds)
    try:
        yield session
    finally:
        # What is on the device may outlive this in Python; the device is not to wait for that.
        with suppress(Exception):  # the device may be gone
            session.get_function("CloseRPCConnection")()


def connect(
    fleet: Fleet, progress: Progress, seconds: float = PATIENCE, lasts: float = SESSION
) -> Any:
    """A session that is not ended here; see `connected`.

    Args:
        lasts: seconds after which the server ends what it was given to do.
    """
    count, until = check(fleet), time.monotonic() + seconds
    while not int(_summary(fleet)["queue_info"].get(fleet.key, {}).get("free", 0)):
        if time.monotonic() >= until:
            message = f"All devices with the key {fleet.key!r} are in use ({count})."
            hint = "Wait until others are done, or add a device."
            raise EngineError("target", message, fleet.tracker, hint)
        progress(0.0, f"waiting for a device with the key {fleet.key}")
        time.sleep(0.5)
    found: list[Any] = []
    wrong: list[Exception] = []

    def request() -> None:
        from tvm import rpc

        try:
            tracker = rpc.connect_tracker(fleet.host, fleet.port)
            session = tracker.request(fleet.key, session_timeout=lasts, max_retry=1)
            # A server of another TVM is often only noticed at the first call.
            session.get_function("runtime.config_threadpool")
            found.append(session)
        except Exception as error:  # whatever TVM makes of what it did not understand
            wrong.append(error)

    # What hangs in TVM's C++ cannot be ended, but it need not be waited for.
    thread = threading.Thread(target=request, daemon=True)
    thread.start()
    thread.join(_HANDSHAKE)
    if not found:
        reason = f" ({lines_of(wrong[0])[-1][:120]})" if wrong else ""
        message = f"The device with the key {fleet.key!r} does not understand this TVM{reason}."
        hint = (
            "Its server must run the same TVM as the engine: start it with "
            "`python -m relascope.engine.serve relay server` or `relax server`."
        )
        raise EngineError("target", message, fleet.tracker, hint)
    return found[0]


def _summary(fleet: Fleet) -> Any:
    from tvm.rpc import base

    def fail(problem: str) -> EngineError:
        message = f"There is no tracker at this address: {problem}."
        start = "python -m relascope.engine.serve relax tracker --host 0.0.0.0 --port 9190"
        hint = f"Start one with `{start}`, or give another address."
        return EngineError("target", message, fleet.tracker, hint)

    try:
        with socket.create_connection((fleet.host, fleet.port), timeout=_ANSWER) as connection:
            connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
            answer = base.recvall(connection, 4)
            if struct.unpack("<i", answer)[0] != base.RPC_TRACKER_MAGIC:
                raise fail("what listens there is something else")
            base.sendjson(connection, [base.TrackerCode.SUMMARY])
            code, summary = base.recvjson(connection)
    except TimeoutError:
        raise fail(f"nothing answers within {_ANSWER:.0f} s") from None
    except ConnectionRefusedError:
        raise fail("nothing listens there") from None
    except OSError as wrong:
        if "reset" in str(wrong):  # also what TVM says where the other side hangs up
            raise fail("what listens there is something else") from None
        raise fail((wrong.strerror or str(wrong)).rstrip(".").lower()) from wrong
    if code != base.TrackerCode.SUCCESS:
        raise fail("it refuses to say what it has")
    return summary
