"""Choices that outlive the server, in a small JSON file in the user's configuration folder."""

import json
import logging
from pathlib import Path

from relascope.core.place import user_folder

_log = logging.getLogger("relascope.page")


def path() -> Path:
    """The file: `relascope/settings.json` below XDG_CONFIG_HOME, or below `~/.config`."""
    return user_folder("XDG_CONFIG_HOME", ".config") / "settings.json"


def recall(name: str) -> str | None:
    """The value saved under a name, or None; an unreadable file counts as empty."""
    value = _read().get(name)
    return value if isinstance(value, str) else None


def remember(name: str, value: str) -> None:
    """Save a choice; if the file cannot be written, log that and continue."""
    settings = _read()
    if settings.get(name) == value:
        return
    file = path()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({**settings, name: value}, indent=1), encoding="utf-8")
    except OSError as error:
        _log.warning("the choice of %s is not remembered: %s", name, error)


def _read() -> dict[str, object]:
    try:
        settings = json.loads(path().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.warning("%s is not read: %s", path(), error)
        return {}
    return settings if isinstance(settings, dict) else {}
