// Search: the nodes that have all words, their list, and going from one to the next.

import { element, Part } from "./parts.js";

export class Finder extends Part {
  matches = [];
  match = -1;
  boxes = new Set();

  find(text, list = true) {
    const v = this.viewer;
    const d = v.drawing;
    if (!d) return;
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.matches = []; this.match = -1; this.boxes.clear();
    if (words.length) {
      for (let n = 0; n < d.node.id.length; n++) {
        const hay = `${d.node.full[n]} ${d.strings[d.node.scope[n]]} ${d.node.id[n]}`.toLowerCase();
        if (words.every((w) => hay.includes(w))) {
          this.matches.push(n);
          if (d.node.box[n] >= 0) this.boxes.add(d.node.box[n]);
        }
      }
    }
    this.writeHits();
    this.list(list && words.length > 0);
    v.redraw();
  }

  writeHits() {
    const v = this.viewer;
    const { length } = this.matches;
    v.hits.textContent = !v.input.value.trim() ? ""
      : this.match >= 0 ? `${this.match + 1} of ${length}`
        : length === 1 ? "1 match" : `${length} matches`;
  }

  list(show) {
    const v = this.viewer;
    v.results.classList.toggle("hidden", !show || !this.matches.length);
    if (!show) return;
    const { node, strings } = v.drawing;
    v.results.replaceChildren(...this.matches.slice(0, 60).map((n, at) => {
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
