"""Use the page in several browsers at once for a while, and see that nothing is mixed up or lost.

Run `python bench/soak.py` from the project's root; `--minutes M` (15 otherwise), `--browsers N`
(8), `--warm-up M` (half of the minutes), which comes before them: the page keeps the last answers
of each session, and until there are as many as it keeps, memory grows with what is asked. Each
browser is a session of its own, with batch sizes that no other has. It chooses models and batches,
steps the passes, takes the gradient, compiles and times, cancels and reloads, and after each, once
the page says that it is done, looks whether what is shown is its own: model and batch stand in the
sidebar, and the batch in the table of arguments. Counted are errors on the page and in the browser,
results that are not this browser's, and the app's own memory (anonymous: pages of files come and go
with the system): the mean of the last fifth of the minutes over that of the first fifth. Then the
tabs are closed, and the engines are counted until there are none. Returns 1 where there is an
error, a result of somebody else, more than 5 % more memory, or an engine a minute later.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import common
from common import ROOT
from playwright.async_api import TimeoutError, async_playwright

from browser import CHROMIUM, LONG, OPEN_SIDEBAR, Server
from faults import MARK, marked
from relascope.samples import SAMPLES

if TYPE_CHECKING:
    from playwright.async_api import Page

MODELS = ("mlp", "bert_self_attention", "vit", "mlp")
GROWTH = 1.05
ENDED = 60.0  # s
_SETTLED = (
    "() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"
    " && !document.querySelector('[data-testid=stProgress]')"
)
_SHOWN = (
    "() => [location.search,"
    " document.querySelector('[data-testid=stApp]')?.dataset.testScriptState,"
    " ...[...document.querySelectorAll('[data-testid=stSidebar] input')].map(e => e.value),"
    " ...[...document.querySelectorAll('[data-testid=stProgress], [data-testid=stAlert]')]"
    ".map(e => e.innerText)].join('; ')"
)
_CELLS = "[...document.querySelectorAll('[data-testid=stDataFrame] td')].map(e => e.textContent)"


@dataclass
class Counts:
    """What was seen."""

    actions: int = 0
    errors: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)  # s since the warm-up, MiB


class Visitor:
    """One browser, and what its person does."""

    def __init__(self, number: int, of: int, url: str, page: Page, counts: Counts) -> None:
        self.number, self.of, self.url, self.page, self.counts = number, of, url, page, counts
        self.batch, self.model = 0, MODELS[number % len(MODELS)]
        self.doing = "open"
        self.draw = random.Random(number)
        page.on("pageerror", lambda error: self.wrong(f"in the browser: {error}"))

    def wrong(self, what: str) -> None:
        self.counts.errors.append(f"browser {self.number}: {what}"[:300])

    async def settle(self) -> None:
        for _ in range(2):
            await self.page.wait_for_function(_SETTLED, timeout=5 * LONG)
            await self.page.wait_for_timeout(300)

    async def said(self, name: str, value: str | None) -> None:
        """Wait until the address says so, which is when the page has been drawn with it."""
        says = "([name, value]) => new URLSearchParams(location.search).get(name) === value"
        await self.page.wait_for_function(says, arg=[name, value], timeout=5 * LONG)
        await self.settle()

    async def open(self) -> None:
        ir = ("Relay", "Relax")[self.number % 2]
        await self.page.goto(f"{self.url}/?ir={ir}")
        await self.page.get_by_role("tab", name="Graph").wait_for(timeout=5 * LONG)
        await self.settle()
        await self.page.get_by_role("combobox", name="Model").click()
        title = SAMPLES[self.model].title
        await self.page.get_by_role("option", name=title, exact=True).click()
        await self.said("model", self.model)  # until then, the field is of the model before
        await self.another_batch()

    async def another_batch(self) -> None:
        """A batch size that no other browser has."""
        self.batch = self.number + 1 + self.of * self.draw.randrange(1, 6)
        await self.enter_batch()
        await self.batch_said()

    async def enter_batch(self) -> None:
        field = self.page.get_by_role("spinbutton", name="Batch")
        await field.fill(str(self.batch))
        await field.press("Enter")

    async def batch_said(self) -> None:
        usual = self.batch == SAMPLES[self.model].default_batch
        await self.said("batch", None if usual else str(self.batch))

    async def tab(self, name: str) -> None:
        await self.page.get_by_role("tab", name=name).click()
        await self.settle()

    async def act(self) -> None:
        """One thing that a person does, and a look at what is shown then."""
        what = self.draw.choice(("batch", "batch", "passes", "mode", "time", "cancel", "reload"))
        self.doing = what
        if what == "batch":
            await self.another_batch()
        elif what == "passes":
            await self.tab("Passes")
        elif what == "mode":
            await self.page.get_by_text(self.draw.choice(("Inference", "Training"))).first.click()
            await self.settle()
        elif what == "time":
            await self.tab("Compile & time")
            await self.page.get_by_role("button", name="Run", exact=True).click()
            await self.settle()
        elif what == "cancel":
            self.batch = self.number + 1 + self.of * self.draw.randrange(6, 9)
            await self.enter_batch()
            cancel = self.page.get_by_role("button", name="Cancel")
            if await cancel.count():
                await cancel.first.click()
            await self.batch_said()
            again = self.page.get_by_role("button", name="Try again")
            if await again.count():
                await again.first.click()
                await self.settle()
        else:
            await self.open()
        await self.look(what)
        self.counts.actions += 1

    async def look(self, what: str) -> None:
        """Whether the page shows errors, or another's batch."""
        await self.tab("Graph")
        for kind in ("stException", "stAlertContentError"):
            found = self.page.get_by_test_id(kind)
            if await found.count():
                self.wrong(f"after {what}: {await found.first.inner_text()}")
        model = await self.page.get_by_role("combobox", name="Model").input_value()
        batch = await self.page.get_by_role("spinbutton", name="Batch").input_value()
        if (model, batch) != (SAMPLES[self.model].title, str(self.batch)):
            self.mixed(what, f"{model} of batch {batch} in the sidebar")
        own = f"() => {_CELLS}.some(text => text.startsWith('{self.batch}×'))"
        try:
            await self.page.wait_for_function(own, timeout=LONG)
        except TimeoutError:
            self.mixed(what, f"in the table {' '.join(await self.page.evaluate(_CELLS))}")

    def mixed(self, what: str, found: str) -> None:
        said = (
            f"browser {self.number} after {what}: not {self.model} of batch {self.batch}: {found}"
        )
        self.counts.mixed.append(said[:300])


def own_memory(pid: int) -> float:
    """MiB of a process's own memory."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        kib = next(line.split()[1] for line in file if line.startswith("RssAnon:"))
    return int(kib) / 2**10


async def soak(server: Server, browsers: int, warm_up: float, minutes: float) -> Counts:
    """Let so many browsers work for so long."""
    counts, warm = Counts(), time.monotonic() + 60 * warm_up
    ends = warm + 60 * minutes

    async def weigh() -> None:
        while (now := time.monotonic()) < ends:
            counts.memory.append((now - warm, own_memory(server.process.pid)))
            await asyncio.sleep(2)

    async with async_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = await playwright.chromium.launch(executable_path=str(CHROMIUM), args=arguments)

        async def visit(number: int) -> None:
            context = await browser.new_context(viewport={"width": 1280, "height": 900})
            context.set_default_timeout(5 * LONG)
            await context.add_init_script(OPEN_SIDEBAR)
            visitor = Visitor(number, browsers, server.url, await context.new_page(), counts)
            try:
                await visitor.open()
                while time.monotonic() < ends:
                    await visitor.act()
            except Exception as error:  # a browser that is stuck is one error of the soak
                shown = await visitor.page.evaluate(_SHOWN)
                visitor.wrong(f"{visitor.doing}: {type(error).__name__}: {error}; shown: {shown}")
            await context.close()

        await asyncio.gather(weigh(), *(visit(n) for n in range(browsers)))
        await browser.close()
    return counts


def engines() -> int:
    """How many of our engines run."""
    return sum("relascope.engine.worker" in command_of(pid) for pid in marked())


def command_of(pid: int) -> str:
    """A process's command line; "" where it has just ended."""
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
            return file.read().replace("\0", " ")
    except OSError:
        return ""


def main() -> int:
    """Soak, print, and return 0 where all bars are met."""
    parser = common.options(__doc__, samples=False, repeats=0)
    parser.add_argument("--minutes", type=float, default=15.0, metavar="M")
    parser.add_argument("--warm-up", type=float, metavar="M")
    parser.add_argument("--browsers", type=int, default=8, metavar="N")
    args = parser.parse_args()
    warm_up = args.minutes / 2 if args.warm_up is None else args.warm_up
    os.environ[MARK] = uuid.uuid4().hex
    with Server(ROOT / "app.py") as server:
        counts = asyncio.run(soak(server, args.browsers, warm_up, args.minutes))
        closed, most = time.monotonic(), engines()
        while (left := engines()) and time.monotonic() - closed < ENDED:
            time.sleep(0.5)
        took = time.monotonic() - closed
    last = counts.memory[-1][0]
    warm = [m for at, m in counts.memory if 0 <= at < last * 0.2]
    grown = [m for at, m in counts.memory if at >= last * 0.8]
    growth = statistics.mean(grown) / statistics.mean(warm)
    row = {
        "warm_up": warm_up,
        "minutes": args.minutes,
        "browsers": args.browsers,
        "actions": counts.actions,
        "errors": len(counts.errors),
        "mixed_up": len(counts.mixed),
        "warm_mib": round(statistics.mean(warm)),
        "end_mib": round(statistics.mean(grown)),
        "growth": round(growth, 3),
        "engines": most,
        "engines_60s": left,
        "ended_s": None if left else round(took, 1),
    }
    print("\n".join([*counts.errors, *counts.mixed]))

    def missed(row: common.Row) -> list[str]:
        bars = {
            "errors": bool(counts.errors),
            "mixed-up results": bool(counts.mixed),
            f"memory grew to {growth:.3f}": growth > GROWTH,
            f"{left} engines after {took:.0f} s": left > 0,
        }
        return [words for words, is_so in bars.items() if is_so]

    return common.finish(args, [row], missed)


if __name__ == "__main__":
    raise SystemExit(main())
