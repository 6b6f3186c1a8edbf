"""Clicks, keys and typed values at random moments, also while the page runs: each is done once.

What was done is held against the address, which says what the page took."""

import random
from urllib.parse import parse_qs, urlsplit

import pytest

from app_in_browser import PAGE, ask, settle
from page import INFERENCE, TRAINING
from relascope.passes.catalogue import info
from relascope.passes.cuts.cut import DEFAULT, STRATEGIES
from relascope.passes.pipeline import Step
from relascope.samples import SAMPLES

pytestmark = pytest.mark.browser

MODEL = "mlp"
ADDED = "cse"


class Hand:
    def __init__(self, page, seed):
        self.page, self.draw = page, random.Random(seed)
        self.batch, self.seed, self.tab, self.mode = None, 0, "Graph", "inference"
        self.strategy, self.keep, self.log = DEFAULT, True, []
        self.pipelines = {"inference": INFERENCE, "training": TRAINING}
        self.steps = {"inference": None, "training": None}

    @property
    def pipeline(self):
        return self.pipelines[self.mode]

    @property
    def step(self):
        step = self.steps[self.mode]
        return len(self.pipeline) - 1 if step is None else min(step, len(self.pipeline) - 1)

    def act(self):
        ways = [self.type_batch, self.type_seed, self.open_tab, self.choose_mode]
        if self.tab == "Passes":
            ways += 2 * [self.walk, self.choose_row, self.press_keys, self.switch, self.keep_layout]
            ways += [self.add, self.remove, self.move]
        if self.tab == "Gradient & cut" and self.mode == "training":
            ways += 3 * [self.choose_strategy]
        way = self.draw.choice(ways)
        pause = self.draw.choice((0, 0, 30, 100, 250, 600))
        self.log.append(f"{way.__name__} in {self.mode}, {self.tab}")
        way()
        self.log[-1] += f", to {self.step}; {pause} ms"
        self.page.wait_for_timeout(pause)

    def type_batch(self):
        self.batch = self.draw.randrange(1, 9)
        field = self.page.get_by_role("spinbutton", name="Batch")
        field.fill(str(self.batch))
        field.press("Enter")

    def type_seed(self):
        self.seed = self.draw.randrange(100, 1000)  # of smaller ones some fail
        field = self.page.get_by_role("spinbutton", name="Seed")
        field.fill(str(self.seed))
        field.press("Tab")

    def open_tab(self):
        self.tab = self.draw.choice(("Graph", "Passes", "Passes", "Gradient & cut"))
        tab = self.page.get_by_role("tab", name=self.tab)
        tab.click()
        if tab.get_attribute("aria-selected") != "true":
            tab.click()  # Streamlit ignores a click in the moment in which it draws the bar again
        self._drawn()

    def choose_mode(self):
        other = "training" if self.mode == "inference" else "inference"
        self.mode = other
        self.page.get_by_text(other.capitalize(), exact=True).first.click()
        self._drawn()

    def _drawn(self):
        """Wait for the list of this mode: a click before means the other's, maybe as long."""
        if self.tab == "Passes":
            self.page.wait_for_function(
                "titles => [...document.querySelectorAll('*')].some(e => titles === ["
                "...e.shadowRoot?.querySelectorAll('.list .row:not(:first-child) .title') ?? []"
                "].map(e => e.textContent).join())",
                arg=",".join(info("relay", step).title for step in self.pipeline.steps),
            )
        elif self.tab == "Gradient & cut":
            text = "Strategy" if self.mode == "training" else "Switch to training"
            self.page.get_by_text(text, exact=True).first.wait_for()

    def walk(self):
        on = self.draw.random() < 0.5 if 0 <= self.step < len(self.pipeline) - 1 else self.step < 0
        name = "Next" if on else "Previous"
        self.page.get_by_role("button", name=name, exact=True).click()
        self.steps[self.mode] = self.step + (1 if on else -1)

    def choose_row(self):
        row = self.draw.randrange(1, len(self.pipeline) + 1)
        self.page.locator(".row").nth(row).locator(".title").click()
        self.steps[self.mode] = row - 1

    def press_keys(self):
        self.page.locator(".list").focus()
        self.page.keyboard.press("Home")
        down = self.draw.randrange(1, 5)
        for _ in range(down):
            self.page.keyboard.press("ArrowDown")
        self.steps[self.mode] = down - 1

    def switch(self):
        free = [i for i, s in enumerate(self.pipeline.steps) if not self._fixed(i)]
        index = self.draw.choice(free)
        on = self.pipeline.steps[index].enabled
        knob = self.page.locator(".row").nth(index + 1).locator(".switch")
        knob.click()
        self.pipelines[self.mode] = self.pipeline.switched(index, not on)

    def _fixed(self, index):
        return self.page.locator(".row").nth(index + 1).locator(".fixed").count() > 0

    def move(self):
        step = self.step
        to = step + 1 if step + 1 < len(self.pipeline) else step - 1
        if step < 0 or to < 0:
            return
        self.page.locator(".list").focus()
        self.page.keyboard.press("Alt+ArrowDown" if to > step else "Alt+ArrowUp")
        self.pipelines[self.mode] = self.pipeline.moved(step, to)
        self.steps[self.mode] = to

    def keep_layout(self):
        self.keep = not self.keep
        self.page.get_by_text("Keep the layout", exact=True).click()

    def add(self):
        index = self.step
        field = self.page.get_by_role("combobox", name="Add a pass")
        field.fill(ADDED)
        field.press("Enter")
        self.pipelines[self.mode] = self.pipeline.inserted(index + 1, Step(ADDED))
        self.steps[self.mode] = index + 1

    def remove(self):
        added = [i for i, s in enumerate(self.pipeline.steps) if s.name == ADDED]
        if not added:
            return
        index = self.draw.choice(added)
        row = self.page.locator(".row").nth(index + 1)
        row.hover()
        row.locator(".out").click()
        step = self.step
        self.pipelines[self.mode] = self.pipeline.without(index)
        self.steps[self.mode] = step - (index <= step)

    def choose_strategy(self):
        """A list closes when what it stands in scrolls, as it does until it is in sight."""
        self.strategy = self.draw.choice(("keep_all", "min_cut", "recompute_pointwise"))
        field = self.page.get_by_role("combobox", name="Strategy")
        field.scroll_into_view_if_needed()
        self.page.wait_for_timeout(200)
        field.click()
        self.page.get_by_role("option", name=STRATEGIES[self.strategy].title, exact=True).click()

    def look(self):
        """What the page took is what was done, once it says that it is done, also to a busy
        browser."""
        for _ in range(20):
            settle(self.page)
            said, expected = self._said()
            if said == expected:
                break
            self.page.wait_for_timeout(500)
        assert said == expected
        if self.tab != "Gradient & cut" or self.mode == "training":
            assert ask(self.page, 0, "d.node.id.length") > 0

    def _said(self):
        query = {n: v[-1] for n, v in parse_qs(urlsplit(self.page.url).query).items()}
        default = {"inference": INFERENCE, "training": TRAINING}[self.mode]
        usual = {"batch": SAMPLES[MODEL].default_batch, "seed": 0, "tab": "Graph"}
        usual |= {"mode": "inference", "pipeline": str(default), "strategy": DEFAULT}
        expected = {name: getattr(self, name) or usual[name] for name in usual}
        expected["pipeline"] = str(self.pipeline)
        said = {name: type(v)(query.get(name, v)) for name, v in usual.items()}
        if self.steps[self.mode] is not None:
            expected["step"] = self.step
            said["step"] = int(query.get("step", len(self.pipeline) - 1))
        if self.tab == "Passes":
            expected["keep"] = self.keep
            said["keep"] = self.page.get_by_role("switch", name="Keep the layout").is_checked()
        return said, expected


def opened(streamlit_page):
    page = streamlit_page(PAGE, query=f"model={MODEL}&engine=relay")
    page.get_by_role("tab", name="Graph").wait_for()
    page.get_by_text("Settings", exact=True).click()
    settle(page)
    return page


def used(page, seed, count):
    hand = Hand(page, seed)
    for number in range(1, count + 1):
        try:
            hand.act()
            if number % 10 == 0:
                hand.look()
        except Exception as wrong:
            state = page.locator("[data-testid=stApp]").get_attribute("data-test-script-state")
            progress = page.locator("[data-testid=stProgress]").all_inner_texts()
            wrong.add_note("\n".join([*hand.log[-12:], page.url, f"{state} {progress}"]))
            raise


def test_nothing_is_lost_or_done_twice(streamlit_page):
    used(opened(streamlit_page), 1, 10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(3, 11))
def test_nothing_is_lost_of_300(streamlit_page, seed):
    used(opened(streamlit_page), seed, 300)
