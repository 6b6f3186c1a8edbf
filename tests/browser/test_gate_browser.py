"""The gate before the page, in Chromium: by the link, by links of elsewhere, and without."""

import pytest

from app_in_browser import GATED, TOKEN
from browser import LONG

pytestmark = pytest.mark.browser


@pytest.fixture
def gated(streamlit_servers):
    return streamlit_servers(GATED, {"RELASCOPE_TOKEN": TOKEN})


@pytest.fixture
def context(chromium):
    made = chromium.new_context()
    made.set_default_timeout(LONG)
    yield made
    made.close()


def test_the_link_lets_a_browser_in_and_nothing_else_does(gated, context):
    page = context.new_page()
    assert page.goto(f"{gated.url}/?graph=layer").status == 403
    page.get_by_label("Or paste the token").fill("wrong")
    page.get_by_role("button", name="Open").click()
    page.get_by_text("This is not the token.").wait_for()
    page.get_by_label("Or paste the token").fill(TOKEN)
    page.get_by_role("button", name="Open").click()
    page.locator(".rs[data-ready]").wait_for()
    assert page.url == f"{gated.url}/?graph=layer"
    assert page.evaluate("document.cookie").count("relascope") == 0

    other = context.new_page()  # the browser is in: a page of another port is not
    other.route("http://127.0.0.1:9/", lambda r: r.fulfill(body="<p>x", content_type="text/html"))
    other.goto("http://127.0.0.1:9/")
    opened = other.evaluate(
        "u => new Promise(done => { const s = new WebSocket(u, ['streamlit']);"
        " s.onopen = () => done('open'); s.onclose = () => done('closed') })",
        gated.url.replace("http", "ws") + "/_stcore/stream",
    )
    assert opened == "closed"
    page.reload()
    page.locator(".rs[data-ready]").wait_for()


@pytest.mark.exhaustive
def test_a_link_of_another_site_asks_once_more(gated, context):
    page = context.new_page()
    link = f"<a href='{gated.url}/?token={TOKEN}'>in</a> <a href='{gated.url}/?x=1'>again</a>"
    page.route("http://elsewhere.test/", lambda r: r.fulfill(body=link, content_type="text/html"))
    page.goto("http://elsewhere.test/")
    page.get_by_text("in", exact=True).click()
    page.locator(".rs[data-ready]").wait_for()
    page.goto("http://elsewhere.test/")
    page.get_by_text("again").click()
    page.get_by_role("link", name="Open the page").click()
    page.locator(".rs[data-ready]").wait_for()
