// Search: the nodes found, their list, and going from one to the next.

import { element, Part } from "./parts.js";
import { search, texts } from "./query.js";

export class Finder extends Part {
  matches = [];
  match = -1;
  boxes = new Set();

  // Prepares the searched texts when idle: for a large graph that takes longer than a search.
  prepare() {
    const { node, strings } = this.viewer.drawing;
    (window.requestIdleCallback ?? setTimeout)(() => texts(node, strings));
  }

  find(text, list = true) {
    const v = this.viewer, d = v.drawing;
    if (!d) return;
    const result = search(text, d.node, d.strings);
    this.matches = result?.ends ?? []; this.match = -1;
    this.boxes = new Set(); // a new set: the kept picture shows the old one
    this.found = result?.found ?? null; // for a path all nodes on it
    for (const n of this.found ?? []) if (d.node.box[n] >= 0) this.boxes.add(d.node.box[n]);
    this.writeHits();
    this.list(list && result !== null);
    v.table.show();
    v.redraw();
  }

  writeHits() {
    const v = this.viewer, { length } = this.matches;
    v.hits.textContent = !v.input.value.trim() ? ""
      : this.match >= 0 ? `${this.match + 1} of ${length}`
        : length === 1 ? "1 match" : `${length} matches`;
    for (const button of v.root.querySelectorAll(".find-step")) {
      button.classList.toggle("hidden", !length);
    }
  }

  list(show) {
    const v = this.viewer;
    v.results.classList.toggle("hidden", !show || !this.matches.length);
    if (!show) return;
    const { node, strings } = v.drawing;
    const more = this.matches.length > 60 ? [element("button", { onclick: () => {
      v.results.classList.add("hidden");
      if (!v.table.open) v.table.toggle();
    } }, `All ${this.matches.length} in the table`)] : [];
    v.results.replaceChildren(...more, ...this.matches.slice(0, 60).map((n, at) => {
      const type = node.types[n].map((t) => strings[t]).join(", ");
      return element("button", { onclick: () => { this.jump(at); v.main.focus(); } },
        node.full[n],
        element("small", {}, [strings[node.scope[n]], type].filter(Boolean).join(" · ")));
    }));
  }

  jump(at) {
    const v = this.viewer;
    if (!this.matches.length) return;
    this.match = (at + this.matches.length) % this.matches.length;
    const n = this.matches[this.match];
    this.writeHits();
    v.results.classList.add("hidden");
    v.focus(v.drawing.node.id[n]);
  }
}
