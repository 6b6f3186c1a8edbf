"""Access control: only browsers with the token of the printed link may open the page.

`Gate` is in front of all that the server serves, its websocket too. The link's token is exchanged
for a cookie, as in Jupyter; without either, one plain page says how to get in. Host names and
origins of requests are always checked, because another site could point its name here.
"""

import hashlib
import logging
import os
import secrets
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import cli_util, config
from streamlit.web.server.server_util import get_url

from relascope.viz.drawing import palette
from relascope.viz.panels.shell import settings

VARIABLE = "RELASCOPE_TOKEN"  # the user's own token, or `off`
LOCAL = ("localhost", "*.localhost", "127.0.0.1", "::1")
_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'self'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_PLAIN = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"
_log = logging.getLogger("relascope.page")
_standing: list[str] = []  # the token of this process's gate, if any


def token() -> str:
    """The token; "" if it is off. It is `RELASCOPE_TOKEN`, or made once and kept in a file that
    only the user can read, so that open tabs keep access when the app restarts."""
    if given := os.environ.get(VARIABLE, "").strip():
        return "" if given == "off" else given
    made = secrets.token_hex(24)
    with suppress(OSError, RuntimeError):
        file = settings.path().with_name("token")
        about = file.lstat()
        mine = stat.S_ISREG(about.st_mode) and about.st_uid == os.getuid()
        if mine and not about.st_mode & 0o077 and (kept := file.read_text("ascii").strip()):
            return kept
    try:
        _write(settings.path().with_name("token"), made)
    except (OSError, RuntimeError) as error:
        _log.warning("the token is valid until the app ends: %s", error)
    return made


def _write(file: Path, text: str) -> None:
    """Write a file that only the user can read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)


class Gate:
    """Passes allowed requests to the app, and answers others with a plain page. The link's token ""
    allows all; `hosts` are host names besides this machine's own, as in `server.allowedHosts`; the
    port names the cookie, because browsers keep cookies by host only."""

    def __init__(self, app: ASGIApp, token: str, hosts: Sequence[str] = (), port: int = 0) -> None:
        self.app, self._token = app, token
        self._hosts = tuple(h.strip().strip("[]").lower() for h in (*LOCAL, *hosts))
        self._cookie = f"relascope-{port}"
        self._pass = hashlib.sha256(f"relascope cookie {token}".encode()).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = [(k.lower().encode(), v.encode()) for k, v in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *named]}
            await send(message)

        answer = self._answer(HTTPConnection(scope), scope["type"] == "http")
        if answer is None:
            await self.app(scope, receive, sealed)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await answer(scope, receive, send)

    def _answer(self, asked: HTTPConnection, page: bool) -> HTMLResponse | None:
        """The answer to a refused request; None for an allowed one."""
        host, origin = asked.headers.get("host", ""), asked.headers.get("origin")
        if not self._called(host):
            return _plain(
                "Unknown host name",
                f"relascope is not served as <code>{escape(host)}</code>. Open the link that it "
                "printed, or name the host when you start it: <code>STREAMLIT_SERVER_"
                "ALLOWED_HOSTS</code>.",
            )
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return _plain("Request from another site", "Another site's page sent this request.")
        said = asked.query_params.get("token")
        known = not self._token or _same(asked.cookies.get(self._cookie, ""), self._pass)
        if page and said is not None and (known or _same(said, self._token)):
            return self._let_in(asked)  # so that the address, which people copy, has no token
        if known:
            return None
        hidden = "".join(
            f"<input type='hidden' name='{escape(k)}' value='{escape(v)}'>"
            for k, v in _others(asked)
        )
        wrong = "" if said is None else "<p class='wrong'>This is not the token.</p>"
        return _plain(
            "This page is private",
            "Open the link that <code>relascope</code> printed in the terminal where it was "
            "started; it ends in <code>?token=…</code> and lets this browser in.",
            f"{wrong}<form>{hidden}<label for='token'>Or paste the token</label><div>"
            "<input id='token' name='token' type='password' autocomplete='off' required autofocus>"
            "<button>Open</button></div></form><p class='small'>Already let in, and following a "
            f"link from another site? <a href='{escape(_rest(asked), quote=True)}'>Open "
            "the page</a>.</p>",
        )

    def _called(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        return any(
            name == h or h == "*" or (h.startswith("*.") and name.endswith(h[1:]))
            for h in self._hosts
        )

    def _let_in(self, asked: HTTPConnection) -> HTMLResponse:
        """Set the cookie and make the browser request the page without the token; after a redirect
        from another site, it would not send the cookie."""
        there = escape(_rest(asked), quote=True)
        answer = _plain("relascope", f"<a href='{there}'>Open the page</a>", refresh=there)
        answer.status_code = 200
        secure = asked.url.scheme in ("https", "wss")
        answer.set_cookie(self._cookie, self._pass, httponly=True, samesite="strict", secure=secure)
        return answer


def _same(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode("utf-8", "replace"), other.encode())


def _others(asked: HTTPConnection) -> list[tuple[str, str]]:
    return [(k, v) for k, v in asked.query_params.multi_items() if k != "token"]


def _rest(asked: HTTPConnection) -> str:
    """The requested address without the token; always on this server."""
    pairs = _others(asked)
    path = "/" + quote(asked.url.path.lstrip("/\\"), safe="/")
    return path + ("?" + urlencode(pairs) if pairs else "")


def _plain(title: str, text: str, more: str = "", refresh: str = "") -> HTMLResponse:
    jump = f"<meta http-equiv='refresh' content='0; url={refresh}'>" if refresh else ""
    page = _PAGE.format(title=title, text=text, more=more, jump=jump, colours=palette.page_css())
    headers = {**_HEADERS, "Content-Security-Policy": _PLAIN, "Cache-Control": "no-store"}
    return HTMLResponse(page, status_code=403, headers=headers)


_PAGE = """<!doctype html><html lang='en'><head><meta charset='utf-8'>
<meta name='viewport' content='width=device-width, initial-scale=1'>{jump}
<meta name='color-scheme' content='light dark'><title>{title}</title><style>
{colours}body {{ margin: 0; background: var(--st-background-color); color: var(--st-text-color);
  font: 16px/1.55 "Source Sans 3", "Source Sans Pro", system-ui, sans-serif }}
main {{ max-width: 34rem; margin: 18vh auto 2rem; padding: 0 1.25rem }}
h1 {{ font-size: 1.5rem; font-weight: 650; margin: 0 0 .75rem }} p {{ margin: 0 0 1.25rem }}
code {{ font: .9em "Source Code Pro", ui-monospace, monospace; padding: .1em .35em;
  background: var(--st-secondary-background-color); border-radius: 4px; overflow-wrap: anywhere }}
label {{ display: block; font-size: .9rem; margin-bottom: .35rem }}
form div {{ display: flex; gap: .5rem; margin-bottom: 1.5rem }}
input {{ flex: 1; min-width: 0 }} input, button {{ font: inherit; padding: .45rem .75rem;
  border: 1px solid var(--st-border-color); border-radius: 6px; color: inherit;
  background: var(--st-background-color) }}
button {{ background: var(--st-primary-color); border-color: var(--st-primary-color);
  color: var(--st-background-color); cursor: pointer }}
:focus-visible {{ outline: 2px solid var(--st-primary-color); outline-offset: 2px }}
a {{ color: var(--st-primary-color) }}
.small {{ font-size: .9rem; color: var(--st-gray-text-color) }}
.wrong {{ color: var(--st-red-color) }}
</style></head><body><main><h1>{title}</h1><p>{text}</p>{more}</main></body></html>
"""


def stands() -> bool:
    """Whether this process's pages are behind a gate, or need none."""
    return bool(_standing) or not token()


def gated() -> dict[str, Any]:
    """Arguments of `streamlit.starlette.App` for a gate that prints its link."""
    secret = token()
    _standing[:] = [secret]
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # prints a link without token
    named = [config.get_option(o) for o in ("server.address", "browser.serverAddress")]
    hosts = [*config.get_option("server.allowedHosts"), *filter(None, named)]
    port = int(config.get_option("server.port"))
    return {
        "middleware": [Middleware(Gate, token=secret, hosts=hosts, port=port)],
        "lifespan": _greeting,
    }


@asynccontextmanager
async def _greeting(_app: Any) -> AsyncIterator[None]:
    """Print the link, and open it in a browser if configured."""
    secret = _standing[0]
    address = config.get_option("server.address")
    link = get_url("127.0.0.1" if address in (None, "0.0.0.0", "::") else address)
    link += f"/?token={quote(secret, safe='')}" if secret else ""
    with suppress(OSError):  # nobody reads the output
        print(f"\n  relascope is open at\n\n    {link}\n", flush=True)
        if not secret:
            print("  without a token: anyone who can reach this port can use it.\n", flush=True)
    door = None
    if not config.get_option("server.headless"):
        jump = f"<meta http-equiv='refresh' content='0; url={escape(link, quote=True)}'>"
        try:  # not on the browser's command line, where others can read it
            door = settings.path().with_name(f"open-{config.get_option('server.port')}.html")
            _write(door, f"<!doctype html><title>relascope</title>{jump}")
            cli_util.open_browser(door.as_uri())
        except (OSError, RuntimeError) as error:
            _log.warning("no browser is opened: %s", error)
    try:
        yield
    finally:
        if door is not None:
            with suppress(OSError):
                door.unlink()
