"""Where the checkout is."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
PAGES, SESSIONS = SUPPORT / "pages", SUPPORT / "sessions"
