"""The app with the real engines and a narrow BERT layer (narrow_bert.py), in a browser."""

from engines import shared
from relascope.viz.page import main
from relascope.viz.panels.shell import tab_engines

tab_engines.EngineClient = lambda ir: shared(ir, f"narrow_bert:{ir}")
main()
