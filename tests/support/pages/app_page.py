"""The app with the engines without a TVM (page_session.py), for tests in a browser."""

from engines import shared_fake
from relascope.viz.page import main
from relascope.viz.panels.shell import tab_engines

tab_engines.EngineClient = shared_fake
main()
