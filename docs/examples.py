"""Writes the example of each pass into its section: `make docs`.

The block before a section's list is what the engine printed when it ran the pass on its small
program (`passes/relay/examples`, `passes/relax/examples`); the tests hold it against that.
"""

from __future__ import annotations

import re
from pathlib import Path

from relascope.commands import text as texts
from relascope.engine.client import EngineClient
from relascope.engine.protocol.plain import plain
from relascope.passes.catalogue import names

ROOT = Path(__file__).resolve().parents[1]


PAGES = {"relay": ROOT / "docs" / "passes.md", "relax": ROOT / "docs" / "passes-relax.md"}


def section(text: str, name: str) -> re.Match[str] | None:
    """A pass's section: the text up to its block, the block's lines, and the rest."""
    inside = r"(?:(?!^##).)*?"  # nothing of the next section
    pattern = rf"(^### {name}$" + inside + r"^```\n)(.*?)(^```$)"
    return re.search(pattern, text, re.MULTILINE | re.DOTALL)


def renewed(text: str, name: str, block: str) -> str:
    """A page with another block in the section of a pass.

    Raises:
        ValueError: it has no such section, or that has no block.
    """
    found = section(text, name)
    if found is None:
        raise ValueError(f"the page has no section {name!r} with a block to write into")
    return text[: found.start(2)] + block + "\n" + text[found.end(2) :]


def main() -> None:
    """Write the blocks of every pass that has an example."""
    for ir, page in PAGES.items():
        text = page.read_text(encoding="utf-8")
        client = EngineClient(ir)
        try:
            for name in names(ir):
                example = plain(client.call("example", name))
                if example is not None:
                    text = renewed(text, name, texts.example_block(example))
        finally:
            client.close()
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
