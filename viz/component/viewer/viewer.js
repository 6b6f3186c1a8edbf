// The graph viewer: canvas 2D, no libraries. Python sends a graph with modules, words and looks;
// all else is made here: layout, opening, closing, pan, zoom, selection, search, details. Python
// gets the selection and the open groups, for sessions and links.

import { Camera } from "./camera.js";
import { Details } from "./details.js";
import { Finder } from "./finder.js";
import { Gestures } from "./gestures.js";
import { Minimap } from "./minimap.js";
import { Overlays } from "./overlays.js";
import { Painter } from "./painter.js";
import { clamp, element, unpack } from "./parts.js";
import { Show } from "./show/show.js";
import { Table } from "./table.js";
import { Theme } from "./theme.js";
import { Tooltip } from "./tooltip.js";
import { Walk } from "./walk.js";

const LEAST_HEIGHT = 360, BELOW = 5; // of a view that fills the window; the room it leaves

export class Viewer extends Camera {
  constructor(parent, before) {
    super();
    this.heir = before; // a removed viewer at this place
    this.root = parent.querySelector(".rs");
    for (const part of ["main", "map", "tip", "results", "side", "legend", "count", "hits", "busy",
      "probe", "live", "empty", "stage", "sheet", "colours", "said", "help"]) {
      this[part] = this.root.querySelector("." + part);
    }
    this.input = this.root.querySelector(".find input");
    this.ctx = this.main.getContext("2d");
    this.selected = null; // a box's key: a node's id, or "group:" and its path
    this.pendingFocus = null; this.focused = null; this.anchor = null;
    this.refit = false; this.ticket = 0;
    const parts = { theme: Theme, painter: Painter, minimap: Minimap, details: Details,
      finder: Finder, tooltip: Tooltip, overlays: Overlays, table: Table, walk: Walk, show: Show,
      gestures: Gestures };
    for (const [name, Kind] of Object.entries(parts)) this[name] = new Kind(this);
    this.theme.read();
  }

  destroy() {
    this.gone = true;
    this.gestures.end();
    this.show.end();
    this.tooltip.hide();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.resting);
    clearTimeout(this.telling);
    clearTimeout(this.painter.sharpening);
  }

  // Take Python's data: deflated, or in a saved page as it is.
  async receive(sent) {
    const ticket = ++this.ticket;
    if (!sent || (sent instanceof Uint8Array && !sent.length)) return;
    const data = sent instanceof Uint8Array ? await unpack(sent) : sent;
    if (ticket !== this.ticket || this.gone) return; // newer data is on its way
    const before = this.drawing;
    const d = this.block = data;
    const last = before ?? this.heir?.drawing;
    if (!last || last.family !== d.family || last.told !== d.told) this.toggles = d.toggles;
    else if (!before) this.toggles = this.heir.toggles;
    if (d.overlay !== this.asked) this.overlays.chosen = this.asked = d.overlay;
    this.take(d);
    this.overlays.offer();
    this.finder.prepare();
    this.busy.classList.remove("on");
    this.fillHeight();
    if (!before) { this.shapes = d.showShapes; this.details.folded = !d.details; }
    this.painter.forget();
    this.empty.classList.toggle("hidden", d.node.id.length > 0);
    const other = before && before.family !== d.family; // ids mean other nodes there
    if (this.selected !== null && (other || !this.exists(this.selected))) this.select(null);
    this.fillLegend();
    this.resize(); // after the legend, which takes room from the picture
    this.finder.find(this.input.value, false);
    this.keepView(before);
    const asBefore = !before && this.recallView(); // the page was loaded again
    if (d.focus !== this.focused) {
      this.focused = d.focus;
      if (d.focus === "") this.select(null);
      else if (asBefore || d.recalled && d.focus === this.selected) this.select(d.focus);
      else if (d.focus !== null) this.focus(d.focus);
    }
    this.reflect();
    this.show.received();
    this.root.dataset.ready = d.token;
  }

  reflect() {
    this.details.show();
    this.table.show();
    this.reflectButtons();
    this.minimap.draw();
    this.redraw();
  }

  // Set the height to Python's, or to the room in the window below the view's top.
  fillHeight() {
    const given = this.drawing?.viewHeight;
    let top = this.root.getBoundingClientRect().top;
    for (let at = this.root.getRootNode().host; at; at = at.parentElement) top += at.scrollTop;
    this.root.querySelector("[data-act=below]").classList.toggle("hidden", Boolean(given));
    this.root.style.height = given ? `${given}px`
      : `max(${LEAST_HEIGHT}px, calc(100dvh - ${Math.ceil(top) + BELOW}px))`;
  }

  keepView(before) {
    const d = this.drawing, { pendingFocus, anchor } = this;
    this.pendingFocus = this.anchor = null;
    if (pendingFocus !== null && this.exists(pendingFocus)) { this.focus(pendingFocus); return; }
    const anchored = anchor ? this.boxOf("group:" + anchor.group) : -1;
    if (anchored >= 0) {
      this.x = anchor.x - d.box.x[anchored] * this.zoom;
      this.y = anchor.y - d.box.y[anchored] * this.zoom;
      return;
    }
    if (!before || before.family !== d.family || this.refit) {
      this.refit = false;
      this.firstView();
      return;
    }
    // Another step of the same program: keep the place of the selection, or of the middle node.
    const hold = this.selected ?? this.nearest(before);
    const now = hold === null ? -1 : this.boxOf(hold), old = before.box.id.indexOf(hold);
    if (now >= 0 && old >= 0) {
      const x = before.box.x[old] - d.box.x[now], y = before.box.y[old] - d.box.y[now];
      this.x += x * this.zoom;
      this.y += y * this.zoom;
      if (x || y) this.fill();
    }
    if (!this.inSight().length) this.firstView(); // everything in sight is gone, or far away
  }

  // Show a node or group; opens the groups around it if necessary.
  focus(key) {
    if (!this.exists(key)) return;
    this.walk.remember();
    this.select(key);
    const closed = this.closedAround(key);
    if (closed.length) {
      this.pendingFocus = key;
      this.setToggles(Object.fromEntries(closed.map((g) => [g, true])));
    }
    const i = this.boxOf(key);
    if (i >= 0) this.center(i);
  }

  toggle(i) {
    this.walk.remember();
    const { box } = this.drawing, group = box.group[i];
    this.anchor = { group, x: box.x[i] * this.zoom + this.x, y: box.y[i] * this.zoom + this.y };
    if (box.open[i]) { // keep the header in sight when its content goes
      this.anchor.y = clamp(this.anchor.y, 8, this.high - 70);
      this.anchor.x = clamp(this.anchor.x, 8, Math.max(8, this.wide - 200));
    }
    this.setToggles({ [group]: !box.open[i] });
  }

  setToggles(change) {
    this.toggles = { ...this.toggles, ...change };
    this.show.opened(change);
    this.sendToggles();
  }

  // Lay everything out anew after groups were opened or closed, and tell Python.
  sendToggles() {
    this.tooltip.hide();
    const { toggles, drawing: before } = this, { family } = before;
    const told = () => this.tell("toggles", { family, // the model may have changed by then
      groups: this.drawing.family === family ? this.toggles : toggles });
    clearTimeout(this.telling);
    this.take(this.block);
    this.finder.find(this.input.value, false);
    this.fillLegend();
    this.keepView(before);
    this.reflect();
    this.telling = setTimeout(told, 300); // several in a row make one message
  }

  toggleAll(open) {
    this.walk.remember();
    this.toggles = { "*": open };
    this.refit = true;
    if (open) this.pendingFocus = this.selected;
    this.sendToggles();
  }

  select(key) {
    if (this.show.active) { this.show.pick(key); return; }
    if (key === this.selected) return;
    this.selected = key;
    this.walk.to = null;
    if (key !== (this.told ?? null)) {
      this.told = key;
      this.tell("selected", key);
    }
    this.details.show();
    this.table.follow();
    this.live.textContent = key === null ? "Nothing selected" : `Selected ${this.title(key)}`;
    this.redraw();
  }

  // A sentence over the picture for a while, read out as well.
  say(text) {
    this.live.textContent = text;
    this.said.textContent = text;
    this.said.classList.toggle("hidden", !text);
    clearTimeout(this.saying);
    this.saying = setTimeout(() => this.said.classList.add("hidden"), 5000);
  }

  openAlone(group) {
    this.busy.classList.add("on");
    this.tooltip.hide();
    this.trigger("alone", group);
  }

  fillLegend() {
    const first = this.overlays.active.name ? [element("b", {}, this.overlays.active.title)] : [];
    this.legend.replaceChildren(...first, ...this.legendRows().map(([key, shape, words]) => {
      const mark = element("i", { class: shape });
      if (shape === "line") mark.style.borderColor = this.theme.look.surfaces[key];
      else this.theme.dress(mark, key);
      return element("span", {}, mark, words);
    }));
    const { box, counts: { nodes, edges } } = this.drawing;
    const shown = this.solid.length;
    this.count.textContent = `${nodes.toLocaleString("en")} nodes · `
      + `${edges.toLocaleString("en")} edges`
      + (shown < nodes && box.id.length ? ` · ${shown.toLocaleString("en")} boxes shown` : "");
  }

  reflectButtons() {
    const button = (act) => this.root.querySelector(`[data-act=${act}]`);
    button("shapes").setAttribute("aria-pressed", String(!!this.shapes));
    const groups = Object.values(this.drawing.groups);
    button("open").disabled = groups.every((g) => g.open);
    button("close").disabled = groups.every((g) => !g.open);
  }

  redraw() {
    if (this.frame || this.gone) return;
    this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  // No event tells of a theme that changed while the picture was hidden, or its page not drawn yet.
  draw() {
    if (this.theme.read() && this.drawing) {
      this.painter.forget(); this.fillLegend(); this.details.show(); this.minimap.draw();
    }
    this.painter.draw();
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.rememberView(), 200);
  }

  // What stays bright with a selection: boxes, edges in, edges out.
  lit() {
    const shown = this.show.lit();
    if (shown || this.selected === null) return shown;
    const i = this.boxOf(this.selected);
    if (i < 0) return null;
    const { box, edge } = this.drawing;
    const aligned = this.solid.filter((k) => box.style[k] === "aligned");
    if (this.walk.to !== null) {
      const found = this.walk.between(i, this.boxOf(this.walk.to));
      if (found) return { at: i, boxes: new Set(found.boxes), into: new Set(found.edges), outOf: new Set() };
    }
    if (!box.open[i]) {
      const { boxes, into, outOf } = this.walk.around(i);
      return { at: i, boxes: new Set([...boxes, ...aligned]), into, outOf };
    }
    const inside = this.solid.filter((k) => box.x[k] >= box.x[i] && box.y[k] >= box.y[i]
      && box.x[k] + box.w[k] <= box.x[i] + box.w[i] && box.y[k] + box.h[k] <= box.y[i] + box.h[i]);
    const own = new Set(inside);
    const into = inside.flatMap((k) => this.into[k].filter((e) => !own.has(edge.s[e])));
    const outOf = inside.flatMap((k) => this.outOf[k].filter((e) => !own.has(edge.t[e])));
    const boxes = new Set([i, ...aligned, ...inside, ...into.map((e) => edge.s[e]),
      ...outOf.map((e) => edge.t[e])]);
    return { at: i, boxes, into: new Set(into), outOf: new Set(outOf) };
  }
}
