// The steps of a pipeline, or the passes of a recording: thousands of rows inside one another, of
// which only those in sight are drawn. Folds, filter and search are kept over reloads. Reports the
// reader's changes, shown at once: all that Python has not yet confirmed, numbered, so that none is
// lost or done twice. In a saved page, and for a recording, rows can only be chosen.

import { button, element, recall, remember, unpack } from "./viewer/parts.js";

const HIGH = 26; // px, a row of a recording
const BEYOND = 8; // rows that are drawn above and below those in sight
const MANY = 300; // passes; from this many on the list starts folded
const CROSS = '<svg viewBox="0 0 16 16"><path d="M4.5 4.5l7 7M11.5 4.5l-7 7"/></svg>';
const COUNTS = [["added", "+"], ["removed", "−"], ["changed", "~"]];
const FILTERS = [
  ["all", "All", () => true],
  // Steps that run at present may change something.
  ["changed", "Changed", (row) => row.nodes === null || COUNTS.some(([name]) => row[name] > 0)],
  ["slow", "Slow", (row) => row.slow],
  ["failed", "Failed", (row) => row.bad],
];

// Change the rows as Python will; returns the index of the chosen one.
const DEEDS = {
  select: (rows, selected, { row }) => row,
  switch: (rows, selected, { row, enabled }) => {
    rows[row] = { ...rows[row], enabled };
    return selected;
  },
  add: (rows, selected, { row, name }) => {
    rows.splice(row, 0, { title: name, summary: "", enabled: true, nodes: null, time: "",
      waiting: true, tags: [["", "not run"]] });
    return row;
  },
  move: (rows, selected, { row, to }) => {
    rows.splice(to, 0, ...rows.splice(row, 1));
    return to;
  },
  remove: (rows, selected, { row }) => {
    rows.splice(row, 1);
    return selected - (row <= selected);
  },
};

export default function listSteps(component) {
  const root = component.parentElement.querySelector(".passes");
  (root.steps ??= new StepList(root)).receive(component);
}

function span(look, text, more) {
  return element("span", { class: look, ...more }, text);
}

class StepList {
  constructor(root) {
    const find = (selector) => root.querySelector(selector);
    Object.assign(this, { root, find, list: find(".list"), space: find(".space"), rows: [], shown: [],
      input: find("[type=search]"), filter: "all", selected: -1, deeds: [], count: 0,
      folded: new Set(), // in the list of all passes
      closed: new Set() }); // in the list of those found
    for (const name of ["scroll", "click", "keydown", "dragstart", "dragover", "drop", "dragend"]) {
      this.list.addEventListener(name, (event) => this[name](event));
    }
    const look = (filter) => {
      this.filter = filter;
      this.closed.clear();
      this.update();
    };
    find(".filters").append(...FILTERS.map(([name, title]) => element("button",
      { type: "button", class: name, onclick: () => look(name) }, title, span("hits"))));
    this.input.oninput = () => look(this.filter);
    this.input.onkeydown = (event) => {
      event.stopPropagation(); // the page has keys of its own
      if (event.key === "ArrowDown" || event.key === "Enter") this.list.focus();
    };
    find(".fold-all").onclick = () => this.foldAll(0);
    find(".open-all").onclick = () => this.foldAll(Infinity);
    [this.back, this.on, this.words] = find(".walk").children;
    this.back.onclick = () => this.walk(-1);
    this.on.onclick = () => this.walk(1);
    new ResizeObserver(() => this.scroll()).observe(this.list);
  }

  async receive({ data, setStateValue }) {
    if (data.session === this.session && data.done < this.data?.done) return; // a newer one is here
    Object.assign(this, { data, setStateValue });
    if (data.session !== this.session) {
      Object.assign(this, { session: data.session, count: data.done, deeds: [] });
    }
    if (data.passes) this.adding(data.passes);
    if (data.rows !== this.given) {
      this.given = data.rows;
      const rows = typeof data.rows === "string" ? await unpack(data.rows) : [...data.rows];
      if (this.given !== data.rows) return;
      this.deep = rows[0]?.depth !== undefined;
      this.take(rows);
    } else if (!this.rows.length) return; // while they are unpacked
    this.settle();
  }

  // The chosen row as Python has it, and the changes that it has not confirmed.
  settle() {
    const { data, rows } = this;
    let { selected } = data;
    this.deeds = this.deeds.filter((deed) => deed.number > data.done);
    const own = this.deeds.filter(({ of }) => of === data.of);
    for (const deed of own) {
      if (deed.row < rows.length || deed.what === "add") selected = DEEDS[deed.what](rows, selected, deed);
    }
    if (own.some(({ what }) => what !== "select")) this.take(rows);
    const elsewhere = selected !== this.selected;
    this.selected = selected;
    if (elsewhere) this.reveal();
    else this.draw();
  }

  take(rows) {
    this.rows = rows;
    const depth = (i) => rows[i].depth ?? 0;
    this.parent = new Int32Array(rows.length).fill(-1);
    this.end = new Int32Array(rows.length); // after the last pass that ran inside
    const around = [];
    for (let i = 0; i < rows.length; i++) {
      while (around.length && depth(around.at(-1)) >= depth(i)) this.end[around.pop()] = i;
      this.parent[i] = around.at(-1) ?? -1;
      around.push(i);
    }
    for (const i of around) this.end[i] = rows.length;
    for (const [name, , fits] of FILTERS) {
      const hits = rows.filter(fits).length, choice = this.find(`.filters .${name}`);
      choice.disabled = !hits;
      choice.hidden = !hits && !this.deep;
      choice.lastChild.textContent = hits;
    }
    const { keep, still } = this.data;
    this.root.className = `passes ${this.deep ? "recorded" : "plain"} ${still ? "still" : ""}`;
    this.list.setAttribute("role", this.deep ? "tree" : "listbox");
    this.space.style.height = "";
    this.back.textContent = this.deep ? "Previous change" : "Previous";
    this.on.textContent = this.deep ? "Next change" : "Next";
    if (this.shown.length && keep === this.kept) return this.show();
    this.kept = keep;
    // What was kept before the page was loaded again.
    const { folded = this.from(rows.length > MANY ? 1 : Infinity), closed = [], filter = "all", search = "" }
      = (keep && recall(`passes ${keep}`)) || {};
    Object.assign(this, { folded: new Set(folded), closed: new Set(closed), filter });
    this.input.value = search;
    this.show();
  }

  // The folded rows of the current list.
  get shut() { return this.finding ? this.closed : this.folded; }

  // The passes at this depth or deeper.
  from(depth) {
    return new Set(this.rows.flatMap((row, i) => (row.depth >= depth ? [i] : [])));
  }

  // Show the list after a change of folds, filter or search, and keep them.
  update() {
    this.show();
    const { filter, input: { value: search }, kept } = this;
    if (kept) remember(`passes ${kept}`, { filter, search, folded: [...this.folded], closed: [...this.closed] });
  }

  // The rows: all that are not folded away, or those found, with the passes that they ran in.
  show() {
    const words = this.input.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const [, , fits] = FILTERS.find(([name]) => name === this.filter);
    this.finding = words.length > 0 || this.filter !== "all";
    this.found = null;
    if (this.finding) {
      const found = this.found = new Uint8Array(this.rows.length); // 2: itself, 1: something inside it
      this.rows.forEach((row, i) => {
        const title = row.title.toLowerCase();
        if (!fits(row) || !words.every((word) => title.includes(word))) return;
        found[i] = 2;
        for (let up = this.parent[i]; up >= 0 && !found[up]; up = this.parent[up]) found[up] = 1;
      });
    }
    const { shut } = this;
    this.shown = [];
    for (let i = 0; i < this.rows.length;) {
      if (!this.found || this.found[i]) this.shown.push(i);
      i = shut.has(i) || (this.found && !this.found[i]) ? this.end[i] : i + 1;
    }
    for (const choice of this.find(".filters").children) {
      choice.setAttribute("aria-pressed", String(choice.classList.contains(this.filter)));
    }
    if (this.deep) this.space.style.height = `${Math.max(1, this.shown.length) * HIGH}px`;
    this.draw();
  }

  draw() {
    const { list, deep } = this;
    const first = deep ? Math.max(0, Math.floor(list.scrollTop / HIGH) - BEYOND) : 0;
    const last = deep ? Math.ceil((list.scrollTop + list.clientHeight) / HIGH) + BEYOND : Infinity;
    const rows = this.shown.slice(first, last).map((i, at) => this.row(i, first + at));
    this.space.replaceChildren(...(rows.length ? rows : [element("div", { class: "none" }, "No pass matches.")]));
    list.setAttribute("aria-activedescendant", `step-${this.selected}`);
    this.words.textContent = this.facts(this.selected);
    this.back.disabled = this.stop(-1) === undefined;
    this.on.disabled = this.stop(1) === undefined;
  }

  facts(i) {
    const { rows, deep } = this, row = rows[i];
    if (!row) return "";
    if (!deep) return i ? `Step ${i} of ${rows.length - 1}` : "Imported program";
    const around = [];
    for (let up = this.parent[i]; up >= 0; up = this.parent[up]) around.unshift(rows[up].title);
    return [`pass ${i + 1} of ${rows.length}`, `level ${row.level}`, row.time && `${row.time} in all`,
      row.own && `${row.own} of its own`,
      around.length && `in ${around.join(" › ")}`].filter(Boolean).join(", ");
  }

  // Its buttons leave the focus to the list, which has keys of its own.
  row(i, at) {
    const { deep, data: { still } } = this, row = this.rows[i];
    const inner = this.end[i] > i + 1, open = inner ? !this.shut.has(i) : null;
    const first = deep ? span(inner ? `arrow${open ? " open" : ""}` : "leaf")
      : row.fixed ? span("fixed", i === 0 ? "" : still ? i : "•",
        { title: i === 0 || still ? "" : "The pipeline requires this step" })
      : button(`${row.title}: ${row.enabled ? "on" : "off"}`,
        { class: "switch", tabindex: -1, role: "switch", "aria-checked": row.enabled });
    const tags = [["bad", row.bad], ...row.tags ?? []].filter(([, text]) => text);
    const looks = ["row", i === this.selected && "selected", row.enabled === false && "off",
      row.enabled !== false && row.idle && "idle", row.bad && "bad", row.waiting && "waiting",
      this.found?.[i] === 1 && "around"];
    const item = element("div", { class: looks, id: `step-${i}`, role: deep ? "treeitem" : "option",
      "data-row": i, "aria-selected": i === this.selected, "aria-expanded": open,
      "aria-level": deep ? row.depth + 1 : null, draggable: !deep && !still && i > 0 },
    first,
    element("div", { class: "words", title: deep ? `${i + 1}: ${row.title}` : row.summary },
      element("div", { class: "head" }, span("title", row.title),
        ...tags.map(([look, text]) => span(`tag ${look}`, text))),
      deep ? null : element("div", { class: "summary" }, row.summary)),
    element("div", { class: "figures" }, ...(deep
      ? [span("changed", row.changed || ""), span("own", row.own, { style: `--share: ${row.share}%` })]
      : [this.counts(row)]), span("time", row.time)));
    if (deep) {
      item.style.top = `${at * HIGH}px`;
      item.style.setProperty("--indent", `${Math.min(row.depth, 12) * 13}px`);
    } else if (!row.fixed) {
      item.append(button(`Remove ${row.title}`, { class: "out", tabindex: -1 }));
      item.lastChild.innerHTML = CROSS;
    }
    return item;
  }

  counts(row) {
    const parts = row.nodes === null ? [] : [
      ...COUNTS.map(([name, sign]) => span(name, row[name] ? sign + row[name] : "",
        { title: row[name] ? `${row[name]} ${name}` : "" })),
      span("nodes", row.nodes, { title: `${row.nodes} nodes after this step` })];
    return element("span", { class: "counts" }, ...parts);
  }

  // Bring the chosen row into sight, if another part of the page chose it.
  reveal() {
    let open = false;
    for (let up = this.parent[this.selected]; up >= 0; up = this.parent[up]) open = this.folded.delete(up) || open;
    if (open) this.show();
    else this.draw();
    this.sight(3);
  }

  // Scroll the list to the chosen row: to its edge, or that part of its height below the edge.
  sight(share) {
    const at = this.shown.indexOf(this.selected), { scrollTop, clientHeight } = this.list;
    const item = this.find(".row.selected");
    if (at < 0 || !(this.deep || item)) return;
    const top = this.deep ? at * HIGH : item.offsetTop, high = this.deep ? HIGH : item.offsetHeight;
    if (top >= scrollTop && top + high <= scrollTop + clientHeight) return;
    const edge = top < scrollTop ? 0 : clientHeight - high;
    this.list.scrollTop = Math.max(0, top - (share ? clientHeight / share : edge));
    this.scroll();
  }

  scroll() { if (this.deep) this.draw(); }

  did(what, deed) {
    this.selected = DEEDS[what](this.rows, this.selected, deed);
    this.deeds.push({ number: ++this.count, what, of: this.data.of, ...deed });
    this.setStateValue("log", { session: this.session, deeds: [...this.deeds] });
    if (what === "add") Object.assign(this, { filter: "all" }).input.value = "";
    if (what === "select") this.draw();
    else this.take(this.rows);
  }

  select(row) {
    if (row >= 0 && row < this.rows.length && row !== this.selected) this.did("select", { row });
  }

  change(row) { return !this.deep && !this.rows[row].fixed; }

  turn(row) { if (this.change(row)) this.did("switch", { row, enabled: !this.rows[row].enabled }); }

  remove(row) { if (this.change(row)) this.did("remove", { row }); }

  move(row, to) {
    if (!this.deep && row > 0 && to > 0 && to < this.rows.length && to !== row) this.did("move", { row, to });
  }

  // The row before (-1) or after (1) the chosen one that a button leads to.
  stop(way) {
    const here = this.selected, fits = (row, i) => row.stop !== false && (i - here) * way > 0;
    const at = way > 0 ? this.rows.findIndex(fits) : this.rows.findLastIndex(fits);
    return at < 0 ? undefined : at;
  }

  walk(way) {
    this.select(this.stop(way));
    this.reveal();
  }

  fold(row, shut) {
    if (shut) this.shut.add(row); else this.shut.delete(row);
    this.update();
  }

  foldAll(depth) {
    this[this.finding ? "closed" : "folded"] = this.from(depth);
    this.update();
  }

  // A field for a pass to add: its names complete what is typed.
  adding(passes) {
    const field = this.find(".add"), choices = this.find("datalist");
    if (choices.children.length !== passes.length) {
      choices.replaceChildren(...passes.map(([value, title]) => element("option", { value }, title)));
    }
    const take = () => {
      const name = field.value.trim();
      const known = passes.some((pass) => pass[0] === name);
      field.setCustomValidity(known || !name ? "" : `There is no pass ${name}.`);
      if (!known) return void field.reportValidity();
      field.value = "";
      this.did("add", { row: this.selected + 1, name });
    };
    // A choice from the list comes as a replacement, or as no typing at all.
    field.oninput = ({ inputType }) => {
      field.setCustomValidity("");
      if (!inputType || inputType === "insertReplacementText") take();
    };
    field.onkeydown = (event) => { if (event.key === "Enter") take(); };
  }

  click({ target }) {
    const item = target.closest(".row");
    if (!item) return;
    const row = Number(item.dataset.row);
    this.list.focus({ preventScroll: true });
    if (target.closest(".arrow")) this.fold(row, !this.shut.has(row));
    else if (target.closest(".switch")) this.turn(row);
    else if (target.closest(".out")) this.remove(row);
    else this.select(row);
  }

  keydown(event) {
    const here = this.selected, at = this.shown.indexOf(here), folded = this.shut.has(here);
    const inner = this.end[here] > here + 1, { length } = this.shown;
    const page = Math.max(1, Math.floor(this.list.clientHeight / HIGH) - 1);
    const to = (index) => this.select(this.shown[Math.max(0, Math.min(length - 1, index))]);
    const moves = { ArrowDown: () => this.move(here, this.shown[at + 1]),
      ArrowUp: () => this.move(here, this.shown[at - 1]) };
    const keys = {
      ArrowDown: () => to(at + 1),
      ArrowUp: () => to(at - 1),
      PageDown: () => to(at + page),
      PageUp: () => to(at - page),
      Home: () => to(0),
      End: () => to(length - 1),
      ArrowRight: () => { if (inner && folded) this.fold(here, false); else if (inner) to(at + 1); },
      ArrowLeft: () => {
        if (inner && !folded) this.fold(here, true);
        else if (this.parent[here] >= 0) this.select(this.parent[here]);
      },
      "/": () => this.input.focus(),
      " ": () => this.turn(here),
      Delete: () => this.remove(here),
    };
    const then = (event.altKey ? moves : keys)[event.key];
    if (!then || event.ctrlKey || event.metaKey) return;
    then();
    event.preventDefault();
    event.stopPropagation();
    this.sight();
    if (event.key !== "/") this.find(".row.selected")?.scrollIntoView({ block: "nearest" });
  }

  // Whether the dragged row would go below the row that it is over.
  below(item, event) {
    const box = item.getBoundingClientRect();
    return item.dataset.row === "0" || event.clientY > box.top + box.height / 2;
  }

  unmark(...looks) {
    for (const item of this.space.children) item.classList.remove("before", "after", ...looks);
  }

  dragstart({ target, dataTransfer }) {
    this.dragged = Number(target.dataset.row);
    dataTransfer.effectAllowed = "move";
    dataTransfer.setData("text/plain", this.rows[this.dragged].title);
    target.classList.add("dragged");
  }

  dragover(event) {
    const item = event.target.closest(".row");
    if (this.dragged === undefined || !item) return;
    event.preventDefault();
    this.unmark();
    item.classList.add(this.below(item, event) ? "after" : "before");
  }

  drop(event) {
    const item = event.target.closest(".row");
    if (this.dragged === undefined || !item) return;
    event.preventDefault();
    const row = Number(item.dataset.row), gap = row + this.below(item, event); // goes before this one
    this.move(this.dragged, gap > this.dragged ? gap - 1 : gap);
    this.dragend();
  }

  dragend() {
    this.dragged = undefined;
    this.unmark("dragged");
  }
}
