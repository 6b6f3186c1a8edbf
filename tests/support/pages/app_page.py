"""The app with the engines without a TVM (page_session.py), for tests in a browser."""

import runpy

from engines import shared_fake
from place import ROOT
from relascope.viz.panels.shell import spare

spare.REFILL_AFTER = 1e6
spare.EngineClient = shared_fake
runpy.run_path(str(ROOT / "app.py"))
