// The passes of a recording: thousands of rows; only those in sight are drawn. Python keeps the
// choice. Folding, filtering and searching are done here, and kept over reloads.

import { element, recall, remember, unpack } from "./viewer/parts.js";

const HIGH = 26; // px, a row
const BEYOND = 8; // rows that are drawn above and below those in sight
const MANY = 300; // passes; from this many on the list starts folded
const FAILED = 1, UNDER_WAY = 2;
const FILTERS = [["all", "All"], ["changed", "Changed"], ["slow", "Slow"], ["failed", "Failed"]];

export default function listRuns(component) {
  const { parentElement, data } = component;
  const root = parentElement.querySelector(".runs");
  const list = root.list ??= new RunList(root);
  list.tell = component.setStateValue;
  list.receive(data);
}

function duration(seconds) {
  if (seconds === null) return "";
  const units = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]];
  const [size, unit] = units.find(([size]) => seconds >= size) ?? units[2];
  const value = seconds / size;
  return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ${unit}`;
}

class RunList {
  constructor(root) {
    this.root = root;
    this.scroll = root.querySelector(".scroll");
    this.space = root.querySelector(".space");
    this.input = root.querySelector("input");
    this.filter = "all";
    this.folded = new Set(); // in the list of all passes
    this.closed = new Set(); // in the list of those found
    this.shown = [];
    this.selected = -1;
    this.scroll.addEventListener("scroll", () => this.draw());
    this.scroll.addEventListener("click", (event) => this.clicked(event));
    this.scroll.addEventListener("keydown", (event) => this.pressed(event));
    this.input.addEventListener("input", () => { this.closed.clear(); this.list(); this.keep(); });
    this.input.addEventListener("keydown", (event) => {
      event.stopPropagation(); // the page has keys of its own
      if (event.key === "ArrowDown" || event.key === "Enter") this.scroll.focus();
    });
    root.querySelector(".fold-all").onclick = () => this.foldAll(true);
    root.querySelector(".open-all").onclick = () => this.foldAll(false);
    new ResizeObserver(() => this.draw()).observe(this.scroll);
  }

  async receive(bytes) {
    if (bytes?.rows) { // in a saved page
      if (!this.rows) this.take(bytes.rows);
      if (bytes.selected !== this.selected) this.choose(bytes.selected, true);
      return;
    }
    if (!(bytes instanceof Uint8Array) || bytes.length < 21) return;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const selected = view.getInt32(0, true), token = view.getBigUint64(12, true);
    const [session, done] = [4, 8].map((at) => view.getUint32(at, true));
    if (session !== this.session) Object.assign(this, { session, asked: done });
    if (token !== this.token) {
      this.token = token;
      const rows = await unpack(bytes.subarray(20));
      if (token !== this.token) return;
      this.take(rows);
      this.recall();
      this.choose(selected, true);
      return;
    }
    // An answer to an earlier choice must not undo later ones that are still on their way.
    if (done >= this.asked && selected !== this.selected) this.choose(selected, true);
  }

  take(rows) {
    this.rows = rows;
    this.count = rows.name.length;
    const { depth } = rows;
    this.parent = new Int32Array(this.count).fill(-1);
    this.end = new Int32Array(this.count); // after the last pass that ran inside
    const around = [];
    for (let i = 0; i < this.count; i++) {
      while (around.length && depth[around[around.length - 1]] >= depth[i]) this.end[around.pop()] = i;
      this.parent[i] = around.length ? around[around.length - 1] : -1;
      around.push(i);
    }
    for (const i of around) this.end[i] = this.count;
    this.lower = rows.name.map((name) => name.toLowerCase());
    this.longest = rows.own.reduce((most, own) => Math.max(most, own ?? 0), 0);
    this.folded = this.from(this.count > MANY ? 1 : Infinity);
    const is = this.is = {
      all: () => true,
      changed: (i) => rows.changed[i] > 0,
      slow: (i) => rows.slow[i] === 1,
      failed: (i) => rows.failed[i] > 0,
    };
    this.root.querySelector(".filters").replaceChildren(...FILTERS.map(([name, title]) => {
      let hits = 0;
      for (let i = 0; i < this.count; i++) if (is[name](i)) hits += 1;
      const onclick = () => { this.filter = name; this.closed.clear(); this.list(); this.keep(); };
      return element("button", { type: "button", class: name, disabled: hits ? null : "", onclick },
        title, element("span", { class: "hits" }, hits));
    }));
    if (!this.is[this.filter]) this.filter = "all";
    this.list();
  }

  // The folded rows of the current list.
  get shut() { return this.finding ? this.closed : this.folded; }

  // The passes at this depth or deeper.
  from(depth) {
    return new Set(this.rows.depth.flatMap((own, i) => (own >= depth ? [i] : [])));
  }

  // Keep folds, filter and search.
  keep() {
    if (this.token === undefined) return; // in a saved page
    const { filter, input: { value: search } } = this;
    remember(`passes ${this.token}`,
      { filter, search, folded: [...this.folded], closed: [...this.closed] });
  }

  // Restore them after the page was loaded again.
  recall() {
    const { folded = this.folded, closed = [], filter = "all", search = "" }
      = recall(`passes ${this.token}`) ?? {};
    Object.assign(this, { folded: new Set(folded), closed: new Set(closed), filter });
    this.input.value = search;
    this.list();
  }

  // The rows: all that are not folded away, or the passes found, with those they ran in.
  list() {
    if (!this.rows) return;
    const words = this.input.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    this.finding = words.length > 0 || this.filter !== "all";
    this.found = null;
    if (this.finding) {
      const found = this.found = new Uint8Array(this.count); // 2: itself, 1: something inside it
      for (let i = 0; i < this.count; i++) {
        if (!this.is[this.filter](i) || !words.every((word) => this.lower[i].includes(word))) continue;
        found[i] = 2;
        for (let up = this.parent[i]; up >= 0 && !found[up]; up = this.parent[up]) found[up] = 1;
      }
    }
    const { shut } = this;
    this.shown = [];
    for (let i = 0; i < this.count;) {
      if (!this.found || this.found[i]) this.shown.push(i);
      i = shut.has(i) || (this.found && !this.found[i]) ? this.end[i] : i + 1;
    }
    for (const button of this.root.querySelectorAll(".filters button")) {
      button.setAttribute("aria-pressed", String(button.classList.contains(this.filter)));
    }
    this.space.style.height = `${Math.max(1, this.shown.length) * HIGH}px`;
    this.draw();
  }

  draw() {
    if (!this.rows) return;
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / HIGH) - BEYOND);
    const last = Math.min(
      this.shown.length, Math.ceil((this.scroll.scrollTop + this.scroll.clientHeight) / HIGH) + BEYOND);
    const made = [];
    for (let at = first; at < last; at++) made.push(this.row(this.shown[at], at));
    if (!this.shown.length) made.push(element("div", { class: "none" }, "No pass matches."));
    this.space.replaceChildren(...made);
    this.scroll.setAttribute("aria-activedescendant", `run-${this.selected}`);
  }

  row(i, at) {
    const { name, depth, changed, own, time, failed } = this.rows;
    const inner = this.end[i] > i + 1;
    const open = inner ? !this.shut.has(i) : null;
    const cell = (look, ...words) => element("span", { class: look }, ...words);
    const title = cell("title", name[i]), took = cell("own", duration(own[i]));
    title.title = `${i}: ${name[i]}`;
    took.style.setProperty("--share", `${100 * (own[i] ?? 0) / (this.longest || 1)}%`);
    const looks = ["run", i === this.selected && "selected", changed[i] === 0 && !failed[i] && "idle",
      this.found?.[i] === 1 && "around", failed[i] && "bad"];
    const row = element("div", {
      id: `run-${i}`, "data-number": i, class: looks, role: "treeitem", "aria-level": depth[i] + 1,
      "aria-selected": i === this.selected, "aria-expanded": open,
    },
    cell("words", cell(inner ? `arrow${open ? " open" : ""}` : "leaf"), title,
      failed[i] ? cell("tag", failed[i] === FAILED ? "failed" : "did not end") : null),
    cell("changed", changed[i] || ""), took, cell("time", duration(time[i])));
    row.style.top = `${at * HIGH}px`;
    row.style.setProperty("--indent", `${Math.min(depth[i], 12) * 13}px`);
    return row;
  }

  // Mark a pass, and bring it into sight if it was chosen elsewhere.
  choose(number, reveal) {
    this.selected = number;
    if (reveal && number >= 0 && number < this.count) {
      let open = false;
      for (let up = this.parent[number]; up >= 0; up = this.parent[up]) open = this.folded.delete(up) || open;
      if (open) this.list();
    }
    const at = this.shown.indexOf(number);
    if (at >= 0) {
      const top = at * HIGH, high = this.scroll.clientHeight;
      if (top < this.scroll.scrollTop || top + HIGH > this.scroll.scrollTop + high) {
        this.scroll.scrollTop = Math.max(0, top - (reveal ? high / 3 : top < this.scroll.scrollTop ? 0 : high - HIGH));
      }
    }
    this.draw();
  }

  select(number) {
    if (number === undefined || number === this.selected) return;
    this.choose(number, false);
    this.tell("choice", [this.session, ++this.asked, number]);
  }

  fold(number, shut) {
    if (shut) this.shut.add(number); else this.shut.delete(number);
    this.list();
    this.keep();
  }

  foldAll(shut) {
    if (!this.rows) return;
    this[this.finding ? "closed" : "folded"] = this.from(shut ? 0 : Infinity);
    this.list();
    this.keep();
  }

  clicked(event) {
    const row = event.target.closest(".run");
    if (!row) return;
    const number = Number(row.dataset.number);
    this.scroll.focus({ preventScroll: true });
    if (event.target.closest(".arrow")) this.fold(number, row.getAttribute("aria-expanded") === "true");
    else this.select(number);
  }

  pressed(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const here = this.selected, at = this.shown.indexOf(here), folded = this.shut.has(here);
    const inner = here >= 0 && this.end[here] > here + 1;
    const page = Math.max(1, Math.floor(this.scroll.clientHeight / HIGH) - 1);
    const to = (index) => this.select(this.shown[Math.max(0, Math.min(this.shown.length - 1, index))]);
    const keys = {
      ArrowDown: () => to(at + 1),
      ArrowUp: () => to(at < 0 ? 0 : at - 1),
      PageDown: () => to(at + page),
      PageUp: () => to(at - page),
      Home: () => to(0),
      End: () => to(this.shown.length - 1),
      ArrowRight: () => { if (inner && folded) this.fold(here, false); else if (inner) to(at + 1); },
      ArrowLeft: () => {
        if (inner && !folded) this.fold(here, true);
        else if (this.parent[here] >= 0) this.select(this.parent[here]);
      },
      "/": () => this.input.focus(),
    };
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
    event.stopPropagation();
  }
}
