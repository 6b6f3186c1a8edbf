// Two texts side by side. A line opens equal stretches, and rows beyond the first few thousand.

import { button, element, unpack } from "./viewer/parts.js";

const AROUND = 3; // lines kept around a change
const AT_ONCE = 1500; // rows drawn before one asks for more

export default function viewTexts(component) {
  const root = component.parentElement.querySelector(".diff");
  (root.diff ??= new Diff(root)).receive(component.data);
}

function fold(text, onclick) {
  return element("button", { type: "button", class: "fold", onclick }, text);
}

class Diff {
  constructor(root) {
    this.root = root;
    this.drawings = 0;
    this.body = root.querySelector(".body");
    this.count = root.querySelector(".count");
    this.walk = root.querySelector(".walk");
    this.body.addEventListener("keydown", (event) => {
      if (event.key === "n") this.go(1);
      if (event.key === "p") this.go(-1);
    });
  }

  // Takes texts as they are, in a saved page, or deflated, with the time when Python sent them.
  async receive({ texts, sent }) {
    if (texts === this.texts || sent < this.sent) return; // or a newer one is here
    Object.assign(this, { texts, sent });
    const told = typeof texts === "string" ? await unpack(texts) : texts;
    if (this.texts === texts) this.take(told);
  }

  take({ sameText, same, rows, changed }) {
    this.at = -1;
    this.count.textContent = changed
      ? `${changed.toLocaleString("en")} changed line${changed === 1 ? "" : "s"}` : sameText;
    this.walk.replaceChildren(
      button("Go up to a change", { onclick: () => this.go(-1) }, "↑"),
      button("Go down to a change", { onclick: () => this.go(1) }, "↓"));
    this.walk.hidden = !changed;
    this.body.classList.toggle("one", !changed);
    const side = (name, title) =>
      element("span", { class: `side ${name}` }, element("span", { class: "text" }, title));
    this.body.replaceChildren(
      element("div", { class: "line head" }, side("left", "before"), side("right", "after")));
    this.body.scrollTop = 0;
    const parts = [];
    rows.forEach((part, index) => {
      if (!same[index]) { parts.push({ changed: part }); return; }
      const [left, right, lines] = part;
      if (!changed) {
        for (let k = 0; k < lines.length; k += AT_ONCE) {
          parts.push({ same: [left + k, right + k, lines.slice(k, k + AT_ONCE)] });
        }
        return;
      }
      const head = index === 0 ? 0 : AROUND, tail = index === rows.length - 1 ? 0 : AROUND;
      if (lines.length <= head + tail + 1) { parts.push({ same: part }); return; }
      const slice = (from, to) => [left + from, right + from, lines.slice(from, to)];
      if (head) parts.push({ same: slice(0, head) });
      parts.push({ folded: slice(head, lines.length - tail) });
      if (tail) parts.push({ same: slice(lines.length - tail, lines.length) });
    });
    const draw = (from) => {
      const made = [];
      let index = from;
      for (; index < parts.length && made.length < AT_ONCE; index++) {
        const { changed: rows, same: lines, folded: stretch } = parts[index];
        made.push(...(rows ? this.changed(rows) : lines ? this.same(lines) : [this.folded(stretch)]));
      }
      this.body.append(...made);
      if (index < parts.length) {
        const more = fold(`Show more (${parts.length - index} places)`, () => {
          more.remove();
          draw(index);
        });
        this.body.append(more);
      }
    };
    draw(0);
    this.root.dataset.ready = String(++this.drawings); // for tests
  }

  folded([left, right, lines]) {
    const made = fold(`${lines.length.toLocaleString("en")} lines are the same`, () => {
      // A long stretch opens from its start, bit by bit.
      const rest = lines.length > AT_ONCE
        ? [this.folded([left + AT_ONCE, right + AT_ONCE, lines.slice(AT_ONCE)])] : [];
      made.replaceWith(...this.same([left, right, lines.slice(0, AT_ONCE)]), ...rest);
    });
    return made;
  }

  same([left, right, lines]) {
    return lines.map((text, k) => this.line([left + k, [[text, false]]], [right + k, [[text, false]]], "same"));
  }

  changed(rows) {
    return rows.map(([left, right], k) => {
      const kind = left && right ? "changed" : left ? "gone" : "came";
      return this.line(left, right, k ? kind : `${kind} first`);
    });
  }

  line(left, right, kind) {
    return element("div", { class: `line ${kind}` }, this.side(left, "left"), this.side(right, "right"));
  }

  side(line, name) {
    if (!line) return element("span", { class: `side ${name} empty` });
    const [number, parts] = line;
    const text = parts.map(([words, marked]) => (marked ? element("mark", {}, words) : words));
    return element("span", { class: `side ${name}` },
      element("span", { class: "number" }, number), element("span", { class: "text" }, ...text));
  }

  go(way) {
    const places = this.body.querySelectorAll(".first");
    if (!places.length) return;
    this.at = (this.at + way + places.length) % places.length;
    this.body.scrollTop = places[this.at].offsetTop - this.body.clientHeight / 3;
    this.count.textContent = `Change ${this.at + 1} of ${places.length}`;
  }
}
