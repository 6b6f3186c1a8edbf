"""The app with the engines without a TVM (page_session.py), for tests in a browser."""

import runpy

from page_session import session_of
from place import ROOT
from relascope.engine.client import EngineClient
from relascope.viz.panels.shell import spare

spare.EngineClient = lambda ir: EngineClient(ir, session=session_of(ir))
runpy.run_path(str(ROOT / "app.py"))
