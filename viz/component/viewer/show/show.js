// A show: only the joint graph in the window, a slider along the frontier, and each capture with
// its reasons. Python sends all cuts at once, so nothing here waits for it.

import { sizeText } from "../layout/words.js";
import { button, clamp, element, LEAVES, Part } from "../parts.js";
import { frontierChart, heldChart } from "./curves.js";
import { captureCard, captureList, figures, netPercent } from "./words.js";

const READABLE = 0.62, GLIDE = 260; // a zoom at which titles can be read; milliseconds
const EASE = (t) => 1 - (1 - t) ** 3;

export class Show extends Part {
  active = false;
  at = 0; // the cut
  capture = null; // an id
  seen = 0; // number of Python's last request
  own = []; // modules that are open for the capture

  get cuts() { return this.viewer.block?.show?.cuts ?? []; }

  get cut() { return this.cuts[this.at]; }

  // The cut's name in a link: the strategy that chose it, else "frontier" with the kept bytes.
  get link() {
    const { chosen, strategy } = this.viewer.block.show;
    return this.at === chosen && strategy ? strategy : `frontier-${this.cut.bytes}`;
  }

  // The place of the cut that a link names; older links have the place itself.
  linked(name) {
    const bytes = /^frontier-(\d+)$/.exec(name)?.[1];
    if (bytes) return this.cuts.findLastIndex((cut) => !cut.title && cut.bytes <= bytes);
    return /^\d+$/.test(name) ? Number(name) : this.viewer.block.show.chosen;
  }

  // Python's data was drawn: begin, go on, or end.
  received() {
    const v = this.viewer, { show, showing, present } = v.block;
    v.root.querySelector("[data-act=show]").classList.toggle("hidden", !show && !present);
    if (this.active && (!this.cuts.length || (this.seen && !showing))) this.leave(false);
    else if (this.active) {
      this.slider.max = this.cuts.length - 1;
      this.go(this.at);
    }
    else if (showing && showing !== this.seen && this.cuts.length) this.enter();
    this.seen = showing;
  }

  ask() {
    if (this.cuts.length) { this.enter(); return; }
    this.viewer.busy.classList.add("on");
    this.viewer.trigger("show", { open: true });
  }

  enter() {
    const v = this.viewer;
    if (this.active) return;
    this.active = true;
    const { selected, zoom, x, y, toggles, overlays: { chosen } } = v;
    this.before = { selected, zoom, x, y, toggles, chosen, focus: document.activeElement };
    v.overlays.chosen = ""; // show the cut's colours
    this.stop = new AbortController();
    document.addEventListener("keydown", (e) => this.key(e), { capture: true, signal: this.stop.signal });
    document.addEventListener("fullscreenchange", () => this.fullChanged(), { signal: this.stop.signal });
    this.build();
    v.root.classList.add("showing");
    this.overPage(true);
    v.selected = null;
    this.at = this.linked(v.block.showAt); // from a link, once
    delete v.block.showAt;
    this.capture = null;
    this.own = [];
    this.go(this.at);
    v.resize();
    v.fit();
    this.slider.focus({ preventScroll: true });
    if (!v.block.showing) v.trigger("show", { open: true });
  }

  // Put the viewer in the window's top layer, above everything on the page.
  overPage(on) {
    const { root } = this.viewer;
    if (on) {
      root.setAttribute("popover", "manual");
      root.showPopover();
    } else if (root.hasAttribute("popover")) {
      root.hidePopover();
      root.removeAttribute("popover");
    }
  }

  leave(tell = true, take = null) {
    const v = this.viewer;
    if (!this.active) return;
    this.active = false;
    this.stop.abort();
    cancelAnimationFrame(this.gliding);
    if (document.fullscreenElement) document.exitFullscreen();
    this.overPage(false);
    v.root.classList.remove("showing");
    for (const part of [this.head, this.panel, this.dock]) part.remove();
    v.overlays.chosen = this.before.chosen;
    v.toggles = this.before.toggles;
    v.take(v.block);
    v.selected = null;
    v.fillHeight();
    v.resize();
    const { zoom, x, y, focus } = this.before;
    Object.assign(v, { zoom, x, y });
    v.select(this.capture ?? this.before.selected);
    v.fillLegend();
    v.reflect();
    (focus?.isConnected ? focus : v.main).focus?.({ preventScroll: true });
    v.moved({ cut: null });
    if (tell) v.trigger("show", take === null ? { open: false } : { open: false, take });
  }

  end() { if (this.active) { this.stop.abort(); this.overPage(false); } }

  fullChanged() {
    if (!document.fullscreenElement && this.active) this.overPage(true);
    this.viewer.resize();
  }

  toggleFull() {
    const { root } = this.viewer;
    if (document.fullscreenElement) { document.exitFullscreen(); return; }
    this.overPage(false); // an element in the top layer cannot be full screen as well
    root.requestFullscreen().catch(() => { if (this.active) this.overPage(true); });
  }

  build() {
    this.taking = button("Choose this cut on the page, and leave",
      { class: "act", onclick: () => this.leave(true, this.cut.bytes) }, "Use this cut");
    this.taking.classList.toggle("hidden", !this.viewer.block.present);
    this.head = element("header", { class: "show-head" },
      element("h2", { class: "grow" }, "What the forward keeps for the backward"),
      this.taking,
      button("Full screen (F)", { class: "act wide", onclick: () => this.toggleFull() }, "Full screen"),
      button("Leave (Esc)", { class: "act", onclick: () => this.leave() }, "Leave"));
    this.panel = element("aside", { class: "show-panel", "aria-label": "Captures" });
    this.slider = element("input", { type: "range", min: 0, max: this.cuts.length - 1, step: 1,
      "aria-label": "Along the frontier, from the fewest bytes kept to the most" });
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    this.numbers = element("div", { class: "show-figures", "aria-live": "polite" });
    this.line = element("div", { class: "show-chart" });
    this.held = element("div", { class: "show-chart" });
    this.dock = element("footer", { class: "show-dock" }, this.numbers,
      element("div", { class: "show-line" }, this.line, this.slider,
        element("div", { class: "show-ends" }, element("span", {}, "keeps less, computes more"),
          element("span", {}, "keeps more"))),
      element("div", { class: "show-held" }, this.held));
    this.viewer.root.append(this.head, this.panel, this.dock);
  }

  // Go to a cut of the frontier; the nodes take its colours at once.
  go(at) {
    const { show } = this.viewer.block;
    this.at = clamp(at, 0, this.cuts.length - 1);
    if (this.capture !== null && !this.row(this.capture)) this.capture = null;
    const { cut } = this;
    this.slider.value = this.at;
    this.slider.setAttribute("aria-valuetext",
      `${sizeText(cut.bytes)} kept, ${netPercent(cut.net)} of the forward's time added`);
    this.numbers.replaceChildren(...figures(this, show));
    this.line.replaceChildren(frontierChart(this));
    this.taking.disabled = Boolean(cut.title) || this.at === show.chosen;
    this.viewer.moved({ cut: this.link });
    this.tell();
  }

  // Show the capture, its reasons, and its parts of the picture.
  tell() {
    const v = this.viewer;
    this.panel.replaceChildren(captureCard(this), captureList(this));
    this.panel.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
    this.held.replaceChildren(heldChart(this));
    v.selected = this.capture;
    this.dress(v.drawing);
    v.captures = v.capturesOf(v.drawing);
    v.restyle();
    v.fillLegend();
    v.minimap.draw();
    v.redraw();
    v.root.dataset.show = `${this.at} ${this.capture ?? ""}`;
  }

  // Give each node the colours of the present cut, without moving it.
  dress(drawing) {
    if (!this.active || !this.cut) return;
    const { node } = drawing;
    const leaf = (n) => LEAVES.has(node.kind[n]);
    node.role = node.role.map((role) => (role === "captured" ? "forward" : role));
    node.style = node.style.map((style, n) => (leaf(n) || !node.role[n] ? style : node.role[n]));
    const each = (list, style, but) => {
      for (const id of list) {
        const n = this.viewer.nodeIndex.get(id);
        if (n !== undefined && id !== but && (!leaf(n) || style === "need")) node.style[n] = style;
      }
    };
    each(this.cut.again, "again");
    for (const { id } of this.cut.saved) {
      const n = this.viewer.nodeIndex.get(id);
      if (n === undefined) continue;
      if (!leaf(n)) node.role[n] = "captured";
      node.style[n] = "captured";
    }
    const row = this.capture === null ? null : this.row(this.capture);
    if (!row) return;
    each(row.instead, "instead", row.id);
    for (const id of this.readers()) node.style[this.viewer.nodeIndex.get(id)] = "need";
    each(row.path, "need", row.id);
  }

  // The row of a capture in the present cut.
  row(id, cut = this.cut) { return cut.saved.find((row) => row.id === id); }

  // Ids of the capture's readers in the backward, recomputed nodes among them.
  readers() {
    const v = this.viewer, { node } = v.drawing;
    const n = v.nodeIndex.get(this.capture);
    if (n === undefined) return [];
    const again = new Set(this.cut.again);
    return node.readers[n].filter((r) => node.role[r] === "backward" || again.has(node.id[r]))
      .map((r) => node.id[r]);
  }

  // What is bright while a capture is shown: it, its way to the backward, and the alternative.
  lit() {
    const v = this.viewer;
    if (!this.active || this.capture === null) return null;
    const at = v.boxOf(this.capture);
    const row = this.row(this.capture);
    if (at < 0 || !row) return null;
    const boxes = (list) => new Set([at, ...list.map((id) => v.boxOf(id)).filter((i) => i >= 0)]);
    const on = boxes([...row.path, ...this.readers()]);
    const back = boxes(row.instead);
    const { edge } = v.drawing;
    const inside = (set) => new Set([...set].flatMap((i) => v.outOf[i])
      .filter((e) => set.has(edge.t[e]) && edge.s[e] !== edge.t[e]));
    return { at, boxes: new Set([...on, ...back]), into: inside(back), outOf: inside(on) };
  }

  // Choose a capture by its id and bring it into view; null shows all.
  choose(id) {
    this.capture = id;
    this.open(id);
    this.tell();
    const v = this.viewer, i = id === null ? -1 : v.boxOf(id);
    if (i < 0) { this.glide(v.whole()); return; }
    const { box } = v.drawing;
    const zoom = Math.max(v.zoom, READABLE);
    this.glide({ zoom, x: v.wide / 2 - (box.x[i] + box.w[i] / 2) * zoom,
      y: v.high / 2 - (box.y[i] + Math.min(box.h[i], 200) / 2) * zoom });
  }

  // Open the modules around a capture, close those of the last one, and keep the view.
  open(id) {
    const v = this.viewer, was = id === null ? -1 : v.boxOf(id);
    const { box: old, groups, node } = v.drawing;
    const wanted = [];
    let group = was < 0 ? "" : node.group[v.nodeIndex.get(id)];
    for (; group; group = groups[group].parent) {
      if (!groups[group].open || this.own.includes(group)) wanted.push(group);
    }
    if (wanted.join() === this.own.join()) return;
    this.own = wanted;
    v.toggles = { ...this.before.toggles, ...Object.fromEntries(wanted.map((g) => [g, true])) };
    v.take(v.block);
    if (was < 0) return;
    const { box } = v.drawing, now = v.boxOf(id);
    v.x += (old.x[was] - box.x[now]) * v.zoom;
    v.y += (old.y[was] - box.y[now]) * v.zoom;
  }

  // Keep open what a person opened.
  opened(change) {
    if (this.active) this.before.toggles = { ...this.before.toggles, ...change };
  }

  glide({ zoom, x, y }) {
    const v = this.viewer;
    cancelAnimationFrame(this.gliding);
    const from = [v.zoom, v.x, v.y], to = [zoom, x, y], began = performance.now();
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const step = (now) => {
      const t = still ? 1 : EASE(clamp((now - began) / GLIDE, 0, 1));
      [v.zoom, v.x, v.y] = from.map((a, k) => a + (to[k] - a) * t);
      v.redraw();
      if (t < 1 && this.active) this.gliding = requestAnimationFrame(step);
    };
    step(began);
  }

  step(way) {
    const list = this.cut.saved.map(({ id }) => id);
    const now = list.indexOf(this.capture);
    const at = now < 0 ? (way > 0 ? 0 : list.length - 1) : now + way;
    this.choose(list[at] ?? null);
  }

  // A click in the picture shows a capture; for another node it says where that is kept.
  pick(key) {
    const v = this.viewer;
    if (key === null) { if (this.capture !== null) { this.capture = null; this.tell(); } return; }
    if (key.startsWith("group:")) return;
    if (this.row(key)) { this.capture = key; this.tell(); return; }
    const kept = this.cuts.filter((cut) => this.row(key, cut));
    const title = v.title(key);
    const now = this.cut.again.includes(key) ? "computed again in the backward" : "not kept here";
    v.say(kept.length ? `${title}: ${now}; kept in ${kept.length} of ${this.cuts.length} cuts, from `
      + `${sizeText(kept[0].bytes)} on.` : `${title}: ${now}, and kept in no cut of the frontier.`);
  }

  key(e) {
    const v = this.viewer;
    if (e.altKey || e.metaKey || e.ctrlKey) return;
    if (e.key === "Tab") { this.hold(e); return; }
    const at = v.root.getRootNode().activeElement;
    if ((e.key === "Enter" || e.key === " ") && at?.matches("button")) { e.stopPropagation(); at.click(); e.preventDefault(); return; }
    const pan = (dx, dy) => () => { v.x += dx; v.y += dy; v.redraw(); };
    const back = () => this.step(-1), on = () => this.step(1), whole = () => this.glide(v.whole());
    const { act } = v.gestures;
    const keys = {
      ArrowLeft: () => this.go(this.at - 1), ArrowRight: () => this.go(this.at + 1),
      Home: () => this.go(0), End: () => this.go(this.cuts.length - 1),
      ArrowUp: back, PageUp: back, "[": back, ArrowDown: on, PageDown: on, "]": on, " ": on,
      "+": act.in, "=": act.in, "-": act.out, f: whole, 0: whole,
      F: () => this.toggleFull(), "?": act.help,
      Escape: () => {
        if (!v.help.classList.contains("hidden")) v.gestures.help();
        else if (this.capture !== null) this.choose(null);
        else this.leave();
      },
    };
    if (e.shiftKey && e.key.startsWith("Arrow")) {
      keys[e.key] = { ArrowLeft: pan(70, 0), ArrowRight: pan(-70, 0), ArrowUp: pan(0, 70),
        ArrowDown: pan(0, -70) }[e.key];
    }
    e.stopPropagation(); // the page behind has keys of its own
    if (!keys[e.key]) return;
    e.preventDefault();
    keys[e.key]();
  }

  // Keep Tab within the show.
  hold(e) {
    const { root } = this.viewer;
    const all = [...root.querySelectorAll("button, input, canvas.main, [tabindex='0']")]
      .filter((one) => !one.disabled && one.getClientRects().length && one.tabIndex >= 0);
    const at = all.indexOf(root.getRootNode().activeElement);
    const next = all[(at + (e.shiftKey ? -1 : 1) + all.length) % all.length];
    e.preventDefault();
    e.stopPropagation();
    next?.focus();
  }
}
