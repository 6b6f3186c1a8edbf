// The nodes as a table, sorted by a click on a title, with the selection of the picture. Only
// visible rows are made, so a hundred thousand are as quick as ten.

import { clamp, element, Part } from "./parts.js";
import { valueText } from "./overlays.js";

const HIGH = 24, SPARE = 6; // a row, in pixels; rows beyond the visible ones

export class Table extends Part {
  open = false;
  by = "value";
  down = true;

  toggle() {
    this.open = !this.open;
    this.show();
    if (this.open) this.viewer.sheet.focus({ preventScroll: true });
    this.viewer.resize();
  }

  get overlay() { return this.viewer.overlays.active; }

  show() {
    const v = this.viewer;
    v.sheet.classList.toggle("hidden", !this.open);
    v.root.querySelector("[data-act=table]").setAttribute("aria-pressed", String(this.open));
    if (!this.open || !v.drawing) return;
    const { node, strings } = v.drawing;
    const { finder } = v, overlay = this.overlay;
    const rows = finder.found ? [...finder.found] : Array.from(node.id, (_, n) => n);
    const text = (n) => (this.by === "node" ? node.full[n] : strings[node.scope[n]]);
    const order = (a, b) => {
      if (this.by !== "value") return text(a).localeCompare(text(b), "en", { numeric: true }) || a - b;
      const x = overlay.values[a] ?? null, y = overlay.values[b] ?? null;
      if (x === null || y === null) return x === y ? a - b : 0;
      return (typeof x === "string" || typeof y === "string"
        ? String(x).localeCompare(String(y), "en", { numeric: true }) : x - y) || a - b;
    };
    const way = this.down ? -1 : 1;
    const none = (n) => this.by === "value" && (overlay.values[n] ?? null) === null;
    rows.sort((a, b) => none(a) - none(b) || way * order(a, b)); // nodes without a value come last
    this.rows = rows;
    this.at = new Map(rows.map((n, k) => [n, k]));
    this.follow();
  }

  head() {
    const title = { node: "Node", module: "Module", value: this.overlay.title };
    return element("div", { class: "tr th", role: "row" }, ...Object.entries(title).map(([by, name]) => {
      const sorted = this.by === by ? (this.down ? "descending" : "ascending") : "none";
      const kind = by === "value" && this.rows?.length ? typeof this.overlay.values[this.rows[0]] : "";
      return element("button", { class: `${by} ${kind}`, role: "columnheader", "aria-sort": sorted,
        title: `Sort by ${name}`, onclick: () => {
          this.down = this.by === by ? !this.down : by === "value";
          this.by = by;
          this.show();
        } }, name + (sorted === "none" ? "" : this.down ? " ↓" : " ↑"));
    }));
  }

  draw() {
    const v = this.viewer;
    if (!this.open || !this.rows || !v.drawing) return;
    const { node, strings } = v.drawing, overlay = this.overlay;
    const { scrollTop, clientHeight } = v.sheet;
    const first = Math.max(0, Math.floor(scrollTop / HIGH) - SPARE);
    const last = Math.min(this.rows.length, Math.ceil((scrollTop + clientHeight) / HIGH) + SPARE);
    const body = element("div", { class: "rows", role: "rowgroup",
      style: `height:${this.rows.length * HIGH}px` });
    for (let k = first; k < last; k++) {
      const n = this.rows[k], key = node.id[n];
      body.append(element("div", { class: "tr", role: "row", style: `top:${k * HIGH}px`,
        "aria-selected": String(v.selected === key), "aria-rowindex": k + 1,
        onclick: () => v.focus(key) },
      element("span", { class: "node", role: "cell" }, v.overlays.swatch(n), node.full[n]),
      element("span", { class: "module", role: "cell" }, strings[node.scope[n]]),
      element("span", { class: `value ${typeof overlay.values[n]}`, role: "cell" }, valueText(overlay.values[n], overlay.unit))));
    }
    v.sheet.setAttribute("aria-rowcount", this.rows.length);
    v.sheet.replaceChildren(this.head(), body);
  }

  // Bring the selected row into view.
  follow() {
    const v = this.viewer;
    if (!this.open || !this.rows) return;
    const k = this.at.get(v.nodeIndex?.get(v.selected));
    if (k !== undefined) {
      const top = k * HIGH, { scrollTop, clientHeight } = v.sheet;
      if (top < scrollTop || top > scrollTop + clientHeight - 2 * HIGH) {
        v.sheet.scrollTop = Math.max(0, top - clientHeight / 2);
      }
    }
    this.draw();
  }

  key(event) {
    const v = this.viewer, way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") { this.toggle(); v.main.focus({ preventScroll: true }); }
    else if (way && this.rows?.length) {
      const k = this.at.get(v.nodeIndex.get(v.selected)) ?? (way > 0 ? -1 : this.rows.length);
      v.focus(v.drawing.node.id[this.rows[clamp(k + way, 0, this.rows.length - 1)]]);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
