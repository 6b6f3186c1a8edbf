"""Where a machine has CUDA's libraries: in the system, the CUDA toolkit or Python packages."""

import ctypes
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_WANTED = re.compile(r"(lib[\w-]+\.so[.\d]*): cannot open shared object file")


def places(name: str, search: Iterable[str] = ()) -> Iterator[str]:
    """Paths at which the loader may find a CUDA library, by its soname, such as "libcudart.so.12";
    folders in `search` come first."""
    yield name  # loaded already, or known to the system
    folders = [Path(s) for s in search if os.path.isabs(s)]
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folders += sorted(Path(place).glob("*/lib"))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            folders.append(Path(os.environ[variable]) / "lib64")
    folders += sorted(Path("/usr/local").glob("cuda*/lib64"), reverse=True)
    # Where containers and WSL put the driver.
    folders += [Path("/usr/local/nvidia/lib64"), Path("/usr/lib/wsl/lib")]
    for folder in dict.fromkeys(folders):
        if (folder / name).exists():
            yield str(folder / name)


def load_library(path: str) -> str:
    """Load a library after the CUDA libraries that it needs. Returns the loader's error, or ""."""
    tried: set[str] = set()
    while True:
        try:
            ctypes.CDLL(path)
        except OSError as error:
            match = _WANTED.match(str(error))
            if match is None or match[1] in tried or not _found(match[1]):
                return str(error)
            tried.add(match[1])
        else:
            return ""


def _found(name: str) -> bool:
    for place in places(name):
        try:
            ctypes.CDLL(place, ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return True
    return False
