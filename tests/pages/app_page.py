"""The app with the engines without a TVM (tests/page_session.py), for tests in a browser."""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

from engine.client import EngineClient  # noqa: E402
from tests.page_session import session_of  # noqa: E402
from viz.panels import spare  # noqa: E402

spare.EngineClient = lambda ir: EngineClient(ir, session=session_of(ir))
runpy.run_path(str(ROOT / "app.py"))
