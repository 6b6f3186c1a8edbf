"""The fleet that measures in place of this machine."""

import streamlit as st

from relascope.engine.protocol.tuning import Fleet


def chosen_fleet() -> Fleet | None:
    """Draw the controls; whose devices measure, or None for this machine.

    Raises:
        EngineError: kind "usage"; what was typed is no tracker, or half of what it takes.
    """
    state = st.session_state
    named = bool(state.get("keep_tracker") or state.get("keep_fleet_key"))
    with st.expander("Measure on a fleet", expanded=named, icon=":material/lan:"):
        st.caption(
            "Devices that registered with TVM's RPC tracker, each with a key: what is timed and "
            "tuned here runs there, without PyTorch beside it. `docs/tuning.md` says how to start "
            "them."
        )
        where, which = st.columns(2)
        tracker = where.text_input(
            "Tracker",
            key="keep_tracker",
            placeholder="host:port",
            help="The machine and port that the tracker listens on.",
        )
        key = which.text_input("Key", key="keep_fleet_key", placeholder="of the devices to take")
    return Fleet(tracker.strip(), key.strip()) if tracker.strip() or key.strip() else None
