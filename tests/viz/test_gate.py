"""What the gate before the page lets through, asked of it without a server."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from relascope.viz import gate

TOKEN = "a b;c"
LINK = "token=a+b%3Bc"


def asked(path="/", *, host="127.0.0.1:8501", kind="http", token=TOKEN, hosts=(), **headers):
    """The status, headers and text of the answer; 101 for a websocket that is let through."""
    sent = []

    async def app(scope, receive, send):
        status = {"type": "http.response.start", "status": 204, "headers": []}
        await send(status if kind == "http" else {"type": "websocket.accept"})

    async def send(message):
        sent.append(message)

    path, _, query = path.partition("?")
    named = {"host": host, **headers}.items()
    scope = {
        "type": kind,
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": [(k.lower().encode(), v.encode()) for k, v in named],
    }
    answered = gate.Gate(app, token, hosts, 8501)(scope, None, send)
    with ThreadPoolExecutor(1) as other:  # a browser's test may have left a loop in this one
        other.submit(asyncio.run, answered).result()
    if kind == "websocket":
        return {"websocket.accept": 101, "websocket.close": 403}[sent[0]["type"]], {}, ""
    heads = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    return sent[0]["status"], heads, sent[1]["body"].decode() if len(sent) > 1 else ""


def let_in():
    return asked(f"/?{LINK}")[1]["set-cookie"].partition(";")[0]


@pytest.mark.parametrize("path", ["/", "/_stcore/health", "/media/a.png", "/static/js/index.js"])
def test_without_the_token_there_is_a_page_of_words(path):
    status, heads, text = asked(path)
    assert status == asked(path, kind="websocket")[0] == 403
    assert "default-src 'none'" in heads["content-security-policy"]
    assert "Open the link" in text and TOKEN not in text


def test_the_link_sets_a_cookie_that_scripts_do_not_see_and_goes_on_without_the_token():
    status, heads, text = asked(f"/?model=mlp&{LINK}&name=%22%3E%3Cb%3E")
    assert status == 200
    assert re.search("; HttpOnly; .*SameSite=strict", heads["set-cookie"])
    assert TOKEN not in heads["set-cookie"]
    assert "url=/?model=mlp&amp;name=%22%3E%3Cb%3E'" in text
    for kind, passed in (("http", 204), ("websocket", 101)):
        assert asked(kind=kind, cookie=let_in())[0] == passed
        assert asked(kind=kind, cookie=let_in()[:-1] + "!")[0] == 403


@pytest.mark.parametrize("token", [TOKEN, ""])
def test_no_token_stays_in_the_address_of_who_is_in_already(token):
    status, _, text = asked("/?token=of+yesterday&ir=relax", token=token, cookie=let_in())
    assert (status, "url=/?ir=relax'" in text, "yesterday" in text) == (200, True, False)


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example/", "/a%22'><script>"])
def test_it_goes_on_nowhere_else(path):
    jump = re.search("content='0; url=([^']*)'", asked(f"{path}?{LINK}")[2]).group(1)
    assert re.fullmatch(r"/[\w.%/]*", jump)
    assert not jump.startswith("//")


def test_a_wrong_token_is_said_to_be_one():
    status, heads, text = asked("/?token=b&model=mlp")
    assert (status, "set-cookie" in heads) == (403, False)
    # What the address says is kept.
    assert "This is not the token." in text and "name='model' value='mlp'" in text


OURS = ("localhost:8501", "relascope.localhost", "[::1]:8501", "LOCALHOST.")
OTHERS = ("evil.example", "127.0.0.1.evil.example", "notlocalhost", "", "[", "box.lan")


@pytest.mark.parametrize("token", [TOKEN, ""])
@pytest.mark.parametrize("host", [*OURS, *OTHERS])
def test_the_page_is_served_under_names_of_this_machine(host, token):
    for kind, let in (("http", 204), ("websocket", 101)):
        status, *_ = asked(host=host, token=token, cookie=let_in(), kind=kind)
        assert status == (let if host in OURS else 403)


def test_further_names_are_allowed_by_streamlits_setting_and_without_a_token_all_from_here():
    for host in ("box.lan:8501", "a.lab.example"):
        assert asked(host=host, hosts=["box.lan", "*.lab.example"], token="")[0] == 204
    for kind, passed in (("http", 204), ("websocket", 101)):
        assert asked(kind=kind, token="", origin="http://127.0.0.1:8501")[0] == passed


@pytest.mark.parametrize("token", [TOKEN, ""])
@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:9999", "null"])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_pages_of_elsewhere_are_refused_whatever_they_have(kind, origin, token):
    assert asked(kind=kind, origin=origin, token=token, cookie=let_in())[0] == 403


def test_the_token_is_kept_where_nobody_else_reads_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(gate.VARIABLE)
    kept, file = gate.token(), tmp_path / "relascope" / "token"
    assert len(kept) == 48
    assert file.stat().st_mode & 0o777 == 0o600
    assert gate.token() == kept
    file.chmod(0o644)  # somebody may have read it
    assert gate.token() not in (kept, "")
    assert file.stat().st_mode & 0o777 == 0o600
    file.unlink()
    (tmp_path / "else").write_text("known")
    file.symlink_to(tmp_path / "else")
    assert gate.token() != "known"
    assert (tmp_path / "else").read_text() == "known"


def test_the_token_is_what_the_variable_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for said, meant in (("mine", "mine"), ("off", "")):
        monkeypatch.setenv(gate.VARIABLE, said)
        assert gate.token() == meant
    assert list(tmp_path.iterdir()) == []
    monkeypatch.delenv(gate.VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    assert gate.token() != gate.token()  # one for each start
