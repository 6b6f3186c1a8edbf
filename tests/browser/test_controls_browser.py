"""What is typed or chosen is not lost while the page runs, nor while it is on its way there."""

import pytest

from app_in_browser import PAGE, settle
from page_session import BRIEF_REPEATS

pytestmark = pytest.mark.browser


def test_what_is_typed_while_the_page_runs_stays(streamlit_page):
    page = streamlit_page(PAGE)
    field = page.get_by_role("spinbutton", name="Batch")
    field.wait_for()
    settle(page)
    field.fill("7")
    page.get_by_role("tab", name="Passes").evaluate("tab => tab.click()")  # the focus stays
    page.get_by_text("Step").first.wait_for()
    settle(page)
    assert field.input_value() == "7"
    field.press("Enter")
    page.wait_for_function("() => location.search.includes('batch=7')")
    settle(page)
    assert (field.input_value(), page.problems) == ("7", [])


@pytest.mark.exhaustive
def test_a_click_stands_against_what_the_browser_sent_before_it_knew(streamlit_page):
    page = streamlit_page(PAGE)
    held, late = [], []

    def between(socket):
        server = socket.connect_to_server()
        server.on_message(lambda said: late.append((socket, said)) if held else socket.send(said))

    page.route_web_socket("**/_stcore/stream", between)
    page.reload()
    page.get_by_role("tab", name="Compile & time").click()
    repeats = page.get_by_role("spinbutton", name="Repeats")
    repeats.fill(str(BRIEF_REPEATS))
    repeats.press("Enter")
    page.wait_for_function(f"() => location.search.includes('repeats={BRIEF_REPEATS}')")
    settle(page)
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("button", name="Cancel").wait_for()
    page.get_by_role("tab", name="Gradient & cut").click()
    button = page.get_by_role("button", name="Switch to training")
    button.wait_for()
    held.append(True)
    button.click()
    page.wait_for_timeout(7000)  # the run ends by itself, and the page is drawn anew
    held.clear()
    for socket, said in late:
        socket.send(said)
    settle(page)
    page.get_by_text("kept for the backward").first.wait_for(timeout=20_000)
