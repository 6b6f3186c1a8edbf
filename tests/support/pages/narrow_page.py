"""The app with the real engines and a narrow BERT layer (narrow_bert.py), in a browser."""

import runpy

from engines import shared
from place import ROOT
from relascope.viz.panels.shell import spare

spare.REFILL_AFTER = 1e6
spare.EngineClient = lambda ir: shared(ir, f"narrow_bert:{ir}")
runpy.run_path(str(ROOT / "app.py"))
