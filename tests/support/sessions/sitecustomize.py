"""Python runs this first in every process that tests start. The collector looks as rarely as in
engines: while a process imports torch and TVM, and when it ends, that is a third of its time."""

import atexit
import gc

gc.set_threshold(50_000, 20, 20)
atexit.register(gc.freeze)
