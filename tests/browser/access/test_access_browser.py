"""Without a mouse, and with eyes of every kind: all tabs by keyboard, contrast, narrow windows."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from app_in_browser import PAGE, click_named, settle
from relascope.viz.sessions.state import TABS

pytestmark = [pytest.mark.browser, pytest.mark.exhaustive]

# What is not the page's own: the list of steps has keys for what its rows' buttons do, and browsers
# let the Tab key into what scrolls by themselves.
_OTHERS = {r: {"enabled": False} for r in ("nested-interactive", "scrollable-region-focusable")}

# Every control that can be seen, whatever shadow it stands in.
_HELPERS = """
const everywhere = (root = document, found = []) => {
  for (const e of root.querySelectorAll('*')) {
    found.push(e);
    if (e.shadowRoot) everywhere(e.shadowRoot, found);
  }
  return found;
};
const up = (e) => e.parentElement ?? e.getRootNode().host ?? null;
const closest = (e, test) => { for (; e; e = up(e)) if (test(e)) return e; return null; };
const seen = (e) => {
  const r = e.getBoundingClientRect();
  return r.width > 0 && r.height > 0 && e.checkVisibility({ visibilityProperty: true })
    && !closest(e, (a) => a.inert || a.getAttribute('aria-hidden') === 'true'
      || a.hasAttribute('data-react-aria-hidden'));
};
const CONTROL = 'button, a[href], input:not([type=hidden]), select, textarea, canvas.main,'
  + '[role=tab], [role=radio], [role=option], [role=separator], [role=listbox], [role=switch],'
  + '[role=combobox], [role=slider], summary, [tabindex]:not([tabindex="-1"])';
// In these one is reached by Tab, and the others from it by arrow keys.
const GROUP = '[role=tablist], [role=radiogroup], [role=listbox], [role=menu], [role=slider]';
const named = (e) => `${e.tagName.toLowerCase()} ${e.getAttribute('role') ?? ''} `
  + (e.getAttribute('aria-label') || e.title || e.innerText || e.placeholder || e.className
    || '').toString().trim().slice(0, 60) + ` [${e.dataset.testid ?? e.dataset.act ?? ''}]`;
const at = () => {
  let e = document.activeElement;
  while (e?.shadowRoot?.activeElement) e = e.shadowRoot.activeElement;
  return e;
};
const look = (e) => {
  const parts = [];
  for (let a = e, k = 0; a && k < 24; a = up(a), k++) {
    for (const one of [a, ...(k < 2 ? a.children : [])]) {
      for (const which of [null, '::before', '::after']) {
        const s = getComputedStyle(one, which);
        parts.push(s.outlineStyle !== 'none' ? s.outlineWidth + s.outlineColor : '', s.boxShadow,
          s.borderColor, s.backgroundColor, s.opacity);
      }
    }
  }
  return parts.join();
};
"""


@pytest.fixture
def opened(streamlit_page):
    def start(**more):
        page = streamlit_page(PAGE, query="mode=training&tab=Graph", sidebar=False, **more)
        page.locator(".rs[data-ready]:visible").wait_for()
        settle(page)
        return page

    return start


def open_tab(page, tab):
    click_named(page, tab, "tab")
    if tab == "Compile & time":
        run = page.get_by_role("button", name="Run", exact=True)
        if not page.get_by_text("threads", exact=True).count():
            run.click()
            settle(page)
    page.wait_for_timeout(300)


_WALK = (
    "() => {"
    + _HELPERS
    + """
  const reached = window.reached = new Set(), looks = new Map();
  const first = () => [...reached][0];
  // Where the focus is now: its name, "" for nothing, null where the way has come round.
  const frame = () => new Promise(requestAnimationFrame);
  window.noted = async () => {
    await frame(); await frame(); // what is drawn by React is drawn a little later
    const e = at();
    if (!e || e === document.body) return '';
    if (reached.size > 3 && e === first()) return null;
    if (!reached.has(e)) { reached.add(e); looks.set(e, look(e)); }
    return named(e);
  };
  // In a group one is reached by Tab and the rest by arrow keys; a list's arrow and a number's
  // steps are keys of their fields.
  const group = (e) => closest(e, (a) => a.matches(GROUP));
  const field = (e) => e.matches('[data-testid^=stNumberInputStep]')
    || e.getAttribute('aria-haspopup') === 'listbox' && e.tabIndex < 0
    || closest(e, (a) => a.querySelector?.(':scope > input[role=combobox]'));
  window.missed = () => everywhere().filter((e) => e.matches(CONTROL) && seen(e) && !e.disabled
    && !e.matches('[aria-disabled=true]') && !closest(e, (a) => reached.has(a)) && !field(e)
    && !(group(e) && [...reached].some((r) => group(r) === group(e)))).map(named);
  window.unmarked = async () => {
    at()?.blur();
    await frame(); await frame();
    return [...looks].filter(([e, was]) => e.isConnected && look(e) === was).map(([e]) => named(e));
  };
}"""
)
_STILL = "*, *::before, *::after { transition: none !important; animation: none !important; }"


def walk(page, most=250):
    """Press Tab until the way comes round; what was not reached, what does not show its focus."""
    page.add_style_tag(content=_STILL)
    page.evaluate("document.activeElement?.blur()")
    page.evaluate(_WALK)
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("window.noted()") is None:
            break
    else:
        raise AssertionError("the Tab key never comes round")
    return page.evaluate("window.missed()"), page.evaluate("window.unmarked()")


@pytest.mark.parametrize("tab", TABS)
def test_the_tab_key_reaches_every_control_and_shows_where_it_is(opened, tab):
    page = opened()
    open_tab(page, tab)
    assert walk(page) == ([], [])
    assert page.evaluate("window.reached.size") > 10


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_of_all_tabs_has_enough_contrast(opened, dark):
    page = opened(dark=dark)
    wrong = []
    for tab in TABS:
        open_tab(page, tab)
        options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"], "rules": _OTHERS}
        for found in Axe().run(page, options=options).response["violations"]:
            nodes = found["nodes"]
            wrong += [(tab, found["id"], n["html"][:200], n["failureSummary"]) for n in nodes]
    assert wrong == []


# What is cut off, stands over something else, or leaves the window.
_FAULTS = (
    "() => {"
    + _HELPERS
    + """
  const all = everywhere().filter((e) => e.matches(CONTROL) && seen(e)
    && !e.matches('[data-testid^=stTabsScroll]') // more tabs go under them
    && !e.matches('[role=listbox], [tabindex="0"]:not(button, canvas), input[type=checkbox]'));
  const inside = (e) => { // what of it no scrolling box around it hides
    let { left, top, right, bottom } = e.getBoundingClientRect();
    for (let a = up(e); a; a = up(a)) {
      const { overflowX, overflowY } = getComputedStyle(a);
      if (overflowX === 'visible' && overflowY === 'visible') continue;
      const r = a.getBoundingClientRect();
      left = Math.max(left, r.left); right = Math.min(right, r.right);
      top = Math.max(top, r.top); bottom = Math.min(bottom, r.bottom);
    }
    return { left, top, right, bottom };
  };
  const within = (a, b) => closest(a, (e) => e === b) || closest(b, (e) => e === a);
  const faults = [], boxes = all.map((e) => [e, inside(e)])
    .filter(([, r]) => r.right - r.left > 2 && r.bottom - r.top > 2);
  for (const [e, r] of boxes) {
    if (r.left < -1 || r.right > innerWidth + 1) faults.push(`leaves the window: ${named(e)}`);
    const words = [e, ...e.querySelectorAll('*')].find((w) => w.scrollWidth > w.clientWidth + 1
      && getComputedStyle(w).overflowX !== 'visible' && w.clientWidth > 0
      && !w.matches('input, canvas, select, .sr, .icon'));
    if (words && e.matches('button, [role=tab], [role=radio]')) faults.push(`cut off: ${named(e)}`);
    if (e.matches('select')) {
      const pen = document.createElement('canvas').getContext('2d');
      pen.font = getComputedStyle(e).font;
      const wide = pen.measureText(e.selectedOptions[0]?.text ?? '').width;
      if (wide > e.clientWidth - 20) faults.push(`cut off: ${e.selectedOptions[0].text}`);
    }
    for (const [o, q] of boxes) {
      if (o === e || within(e, o) || closest(e, (a) => a.matches('canvas.main'))
        || o.matches('canvas') || e.matches('canvas')) continue;
      const w = Math.min(r.right, q.right) - Math.max(r.left, q.left);
      const h = Math.min(r.bottom, q.bottom) - Math.max(r.top, q.top);
      if (w > 3 && h > 3 && named(e) < named(o)) faults.push(`${named(e)} over ${named(o)}`);
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) faults.push('a horizontal scroll');
  return faults;
}"""
)


@pytest.mark.parametrize("width", [1280, 800, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_cut_off_or_stands_over_another(opened, width, dark):
    page = opened(width=width, height=844, dark=dark)
    wrong = {}
    for tab in TABS:
        open_tab(page, tab)
        if faults := page.evaluate(_FAULTS):
            wrong[tab] = faults
        for name in ("Fit", "Full screen", "Keys"):
            buttons = page.get_by_role("button", name=name, exact=True)
            assert all(b.is_visible() for b in buttons.all()), (tab, name)
    assert wrong == {}
