"""In the tab of the graph: every module of the whole model, each to be opened alone."""

from dataclasses import replace

from relascope.viz.panels.shell.frame import boundary, section
from relascope.viz.panels.shell.screen import Screen, look_at
from relascope.viz.panels.shell.table import table
from relascope.viz.rows import tables

_ABOUT = (
    "The tree of modules: class, parameters, shapes and time of each, from one run of the whole "
    "model in PyTorch. A row opens its module alone, on the inputs that it gets there; so does the "
    "arrow at a module's frame in the graph."
)


def show(screen: Screen) -> None:
    """Draw the table, once it is asked for."""
    whole = replace(screen.source, module="", call=1)
    if not section("Modules", "List the modules", "modules", _ABOUT, (screen.ir, whole)):
        return
    with boundary(screen.cache):
        found = tables.module_rows(screen.cache.ask("modules", whole))

        def pick(row: int | None) -> None:
            if row is not None:
                look_at(found[row]["path"])

        key = f"modules_{screen.label}"
        table(tables.modules_table(found)["rows"], key=key, on_pick=pick)
