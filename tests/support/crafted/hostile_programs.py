"""Honest files with programs of TVM's. Needs no TVM: they were written by it."""

import io
import tarfile
from functools import cache
from pathlib import Path

_SAVED = Path(__file__).resolve().parent
_NAMES = {".relay": "mod.relay", ".relay.json": "mod.relay.json", ".py": "mod.script"}
_NAMES |= {".relax.json": "mod.relax.json"}


@cache
def honest(kind):
    """The bytes of an honest file of a kind; ".relay.tar" and ".relax.tar" have parameters, too."""
    if not kind.endswith(".tar"):
        return (_SAVED / _NAMES[kind]).read_bytes()
    json = kind.replace(".tar", ".json")
    params = "relax.params" if "relax" in kind else "mod.params"
    return packed({f"mod{json}": honest(json), "mod.params": (_SAVED / params).read_bytes()})


def packed(parts):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return data.getvalue()
