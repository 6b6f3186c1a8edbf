"""Which engines there are. Nothing of theirs is imported here."""

from __future__ import annotations

SESSIONS = {
    "relay": "relascope.engine.relay.session:RelaySession",
    "relax": "relascope.engine.relax.session:RelaxSession",
}
"""The session class of each IR, as "module:Class"; imported only in the child."""


ENGINES = ("relay", "relax")
