"""The store of sessions: SQLite and the models' files in the user's data folder."""

import secrets
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from relascope.core.errors import refusing
from relascope.core.place import user_folder
from relascope.viz.sessions.state import Session, from_text

OPEN, OF_SESSION = "RELASCOPE_OPEN", "session:"
"""The variable that names a file to open, or a session after this prefix."""
UNNAMED = 100  # unnamed sessions that are kept; older ones are deleted
_SCHEMA = """CREATE TABLE IF NOT EXISTS session (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, about TEXT NOT NULL, digest TEXT NOT NULL,
  changed REAL NOT NULL, text TEXT NOT NULL)"""


@dataclass(frozen=True)
class Entry:
    """A session in the list: id, name or "", description, and when it changed (Unix time)."""

    id: str
    name: str
    about: str
    changed: float

    @property
    def title(self) -> str:
        return self.name or self.about

    @property
    def when(self) -> str:
        """When it changed, in local time: `05 Mar, 14:30`."""
        return f"{datetime.fromtimestamp(self.changed):%d %b, %H:%M}"


def folder() -> Path:
    """`relascope` below XDG_DATA_HOME, or below `~/.local/share`."""
    return user_folder("XDG_DATA_HOME", ".local/share")


def new_id() -> str:
    return secrets.token_hex(6)


def put(ident: str, session: Session, about: str, needed: Iterable[tuple[str, str]] = ()) -> None:
    """Save a session under its id, with the files that it needs (`keep_model`). Like all functions
    here, raises EngineError of kind "session" if the folder cannot be used."""
    for file in needed:
        keep_model(*file)
    values = (ident, about, session.model.digest, time.time(), session.text())
    with _database() as base:
        base.execute(
            "INSERT INTO session (name, id, about, digest, changed, text)"
            " VALUES ('', ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
            " SET about = excluded.about, digest = excluded.digest,"
            " changed = excluded.changed, text = excluded.text",
            values,
        )
        base.execute(
            "DELETE FROM session WHERE name = '' AND id NOT IN"
            " (SELECT id FROM session WHERE name = '' ORDER BY changed DESC LIMIT ?)",
            (UNNAMED,),
        )


def get(ident: str) -> Session | None:
    """The session of an id, or None. Raises EngineError if another version saved it."""
    with _database() as base:
        row = base.execute("SELECT text FROM session WHERE id = ?", (ident,)).fetchone()
    return None if row is None else from_text(row[0])


def entries() -> list[Entry]:
    with _database() as base:
        found = base.execute("SELECT id, name, about, changed FROM session ORDER BY changed DESC")
        return [Entry(*row) for row in found]


def files(most: int) -> list[tuple[str, str, str]]:
    """The files of sessions, the last opened first: hash, id of the last session, and name."""
    with _database() as base:
        found = base.execute(
            "SELECT digest, id, json_extract(text, '$.model.name'), MAX(changed) AS last"
            " FROM session WHERE digest != '' GROUP BY digest ORDER BY last DESC LIMIT ?",
            (most,),
        )
        return [(digest, ident, name) for digest, ident, name, _ in found]


def rename(ident: str, name: str) -> None:
    """Give a session a name, or remove it ("")."""
    with _database() as base:
        base.execute("UPDATE session SET name = ? WHERE id = ?", (name.strip()[:120], ident))


def delete(ident: str) -> None:
    """Delete a session, and the files that no other session has."""
    with _database() as base:
        base.execute("DELETE FROM session WHERE id = ?", (ident,))
        texts = [row[0] for row in base.execute("SELECT text FROM session")]
    models = folder() / "models"
    for kept in models.iterdir() if models.is_dir() else ():
        # Other names are files being copied.
        if len(kept.name) == 32 and not any(kept.name in t for t in texts):
            shutil.rmtree(kept, ignore_errors=True)


def model_file(digest: str) -> Path | None:
    """The kept file of a model, by its hash, or None."""
    return next((folder() / "models" / digest).glob("*"), None) if digest else None


def keep_model(path: str, digest: str) -> None:
    """Copy a model's file beside the sessions."""
    if model_file(digest) is not None:
        return
    with _refusing():
        models = folder() / "models"
        folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        models.mkdir(exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=models))
        try:
            shutil.copyfile(path, made / Path(path).name)
            made.rename(models / digest)
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _refusing() -> AbstractContextManager[None]:
    hint = "Set XDG_DATA_HOME to another folder. Everything else works without."
    about = "session", "Sessions cannot be kept: {}.", str(folder()), hint
    return refusing(*about, OSError, sqlite3.Error)


@contextmanager
def _database() -> Iterator[sqlite3.Connection]:
    with _refusing():
        folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        with closing(sqlite3.connect(folder() / "sessions.db", timeout=5)) as base, base:
            base.execute("PRAGMA journal_mode = WAL")
            base.execute("PRAGMA synchronous = NORMAL")
            base.execute(_SCHEMA)
            yield base
