// The graph viewer: canvas 2D, no libraries. Python sends a drawing (positions, curves, words);
// everything that needs no new positions happens here: pan, zoom, selection, search, details.
// Opening or closing a group asks Python for a new drawing and keeps the group where it was.

const NEVER = { light: {}, dark: {} };
const TITLE = 13, SUBTITLE = 11, HEADER = 30;
const MAX_ZOOM = 4;

export default function (component) {
  const { parentElement, data } = component;
  let viewer = parentElement.relascopeViewer;
  if (!viewer || viewer.gone) {
    viewer = parentElement.relascopeViewer = new Viewer(parentElement);
  }
  viewer.tell = component.setStateValue;
  viewer.receive(data);
  return () => viewer.destroy();
}

async function unpack(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

function bytesText(bytes) {
  if (bytes === null || bytes === undefined) return "not known";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = bytes, unit = 0;
  while (size >= 1024 && unit < 4) { size /= 1024; unit += 1; }
  const short = unit ? `${size.toFixed(1)} ${units[unit]}` : `${bytes} B`;
  return unit ? `${short} (${bytes.toLocaleString("en")} bytes)` : short;
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.onclick = value;
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

class Viewer {
  constructor(parent) {
    this.parent = parent;
    this.root = parent.querySelector(".rs");
    for (const part of ["main", "map", "tip", "results", "side", "legend", "count", "hits", "busy",
      "probe", "live", "empty", "stage"]) {
      this[part] = this.root.querySelector("." + part);
    }
    this.input = this.root.querySelector("input");
    this.ctx = this.main.getContext("2d");
    this.mapCtx = this.map.getContext("2d");
    this.zoom = 1; this.x = 0; this.y = 0; // screen = world * zoom + (x, y), in CSS pixels
    this.pointers = new Map();
    this.drawing = null;
    this.selected = null; // a box's key: a node's id, or "group:" and its path
    this.hover = -1;
    this.matches = []; this.match = -1; this.matchBoxes = new Set();
    this.pendingFocus = null; this.focused = null; this.anchor = null;
    this.folded = false; this.refit = false;
    this.ticket = 0; this.lastScroll = 0; this.fits = new Map();
    this.stop = new AbortController();
    this.listen();
    this.readTheme();
  }

  destroy() {
    this.gone = true;
    this.stop.abort();
    this.resizing.disconnect();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.tipTimer);
  }

  // ---- What Python sends -------------------------------------------------------------------

  async receive(bytes) {
    const ticket = ++this.ticket;
    if (!(bytes instanceof Uint8Array) || !bytes.length) return;
    const data = await unpack(bytes);
    if (ticket !== this.ticket || this.gone) return; // a newer one is on its way
    const before = this.drawing;
    const d = this.drawing = data;
    this.toggles = d.toggles;
    this.index = new Map(d.box.id.map((id, i) => [id, i]));
    this.nodeIndex = new Map(d.node.id.map((id, i) => [id, i]));
    this.prepare();
    this.busy.classList.remove("on");
    this.root.style.height = d.viewHeight + "px";
    this.shapes = before ? this.shapes : d.showShapes;
    this.folded = before ? this.folded : !d.details;
    this.fits.clear();
    this.empty.classList.toggle("hidden", d.node.id.length > 0);
    const other = before && before.family !== d.family; // its ids mean other nodes
    if (this.selected !== null && (other || !this.exists(this.selected))) this.select(null);
    this.fillLegend();
    this.resize(); // after the legend, whose lines take room from the picture
    this.search(this.input.value, false);
    this.keepView(before);
    if (d.focus !== this.focused) {
      this.focused = d.focus;
      if (d.focus !== null) this.focus(d.focus);
    }
    this.showDetails();
    this.reflectButtons();
    this.drawMap();
    this.redraw();
    this.root.dataset.ready = d.token;
  }

  exists(key) {
    const d = this.drawing;
    return key.startsWith("group:") ? d.groups[key.slice(6)] !== undefined
      : this.nodeIndex.has(key);
  }

  // The box that stands for a node or group now: itself, or the closed group around it.
  boxOf(key) {
    const d = this.drawing;
    if (!key.startsWith("group:")) {
      const node = this.nodeIndex.get(key);
      return node === undefined ? -1 : d.node.box[node];
    }
    const direct = this.index.get(key);
    if (direct !== undefined) return direct;
    const group = d.groups[key.slice(6)];
    return group && group.parent ? this.boxOf("group:" + group.parent) : -1;
  }

  keepView(before) {
    const d = this.drawing;
    if (this.pendingFocus !== null && this.exists(this.pendingFocus)) {
      const key = this.pendingFocus;
      this.pendingFocus = null; this.anchor = null;
      this.focus(key);
      return;
    }
    this.pendingFocus = null;
    if (this.anchor) {
      const box = this.boxOf("group:" + this.anchor.group);
      if (box >= 0) {
        this.x = this.anchor.x - d.box.x[box] * this.zoom;
        this.y = this.anchor.y - d.box.y[box] * this.zoom;
        this.anchor = null;
        return;
      }
      this.anchor = null;
    }
    if (!before || before.family !== d.family || this.refit) {
      this.refit = false;
      this.firstView();
      return;
    }
    // Another step of the same program: hold on to what is selected, or in the middle.
    const hold = this.selected ?? this.nearest(before);
    if (hold === null) { this.firstView(); return; }
    const now = this.boxOf(hold);
    const old = before.box.id.indexOf(hold);
    if (now < 0 || old < 0) return;
    this.x += (before.box.x[old] - d.box.x[now]) * this.zoom;
    this.y += (before.box.y[old] - d.box.y[now]) * this.zoom;
  }

  nearest(drawing) {
    const [cx, cy] = this.toWorld(this.wide / 2, this.high / 2);
    let best = null, least = Infinity;
    for (let i = 0; i < drawing.box.id.length; i++) {
      if (drawing.box.open[i] || this.boxOf(drawing.box.id[i]) < 0) continue;
      const dx = drawing.box.x[i] + drawing.box.w[i] / 2 - cx;
      const dy = drawing.box.y[i] + drawing.box.h[i] / 2 - cy;
      if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; best = drawing.box.id[i]; }
    }
    return best;
  }

  prepare() {
    const { box, edge } = this.drawing;
    const count = box.id.length;
    this.into = Array.from({ length: count }, () => []);
    this.outOf = Array.from({ length: count }, () => []);
    const bounds = this.bounds = new Float32Array(edge.s.length * 4);
    for (let e = 0; e < edge.s.length; e++) {
      this.outOf[edge.s[e]].push(e);
      this.into[edge.t[e]].push(e);
      let x0 = Infinity, y0 = Infinity, x1 = -Infinity, y1 = -Infinity;
      const p = edge.p[e];
      for (let i = 0; i < p.length; i += 2) {
        x0 = Math.min(x0, p[i]); x1 = Math.max(x1, p[i]);
        y0 = Math.min(y0, p[i + 1]); y1 = Math.max(y1, p[i + 1]);
      }
      bounds.set([x0, y0, x1, y1], e * 4);
    }
    this.open = []; this.solid = [];
    for (let i = 0; i < count; i++) (box.open[i] ? this.open : this.solid).push(i);
    this.byStyle = new Map();
    for (const i of this.solid) {
      const key = box.style[i];
      if (!this.byStyle.has(key)) this.byStyle.set(key, []);
      this.byStyle.get(key).push(i);
    }
    this.hover = -1;
  }

  // ---- View --------------------------------------------------------------------------------

  toWorld(sx, sy) { return [(sx - this.x) / this.zoom, (sy - this.y) / this.zoom]; }

  resize() {
    const box = this.stage.getBoundingClientRect();
    const ratio = window.devicePixelRatio || 1;
    this.wide = Math.max(1, box.width); this.high = Math.max(1, box.height); this.ratio = ratio;
    const w = Math.round(this.wide * ratio), h = Math.round(this.high * ratio);
    if (this.main.width !== w || this.main.height !== h) {
      this.main.width = w; this.main.height = h;
    }
    this.root.classList.toggle("small", this.wide < 900);
    this.redraw();
  }

  fitZoom() {
    const d = this.drawing;
    return Math.min(this.wide / d.width, this.high / d.height, 1.25);
  }

  fit() {
    const d = this.drawing;
    if (!d) return;
    this.zoom = this.fitZoom();
    this.x = (this.wide - d.width * this.zoom) / 2;
    this.y = (this.high - d.height * this.zoom) / 2;
    this.redraw();
  }

  // All of it where that is readable, else its start at a size that can be read.
  firstView() {
    const d = this.drawing;
    if (!d.box.id.length) return;
    const whole = this.fitZoom();
    if (whole >= 0.5) { this.fit(); return; }
    const down = d.direction === "TB";
    const fill = down ? this.wide / d.width : this.high / d.height;
    this.zoom = clamp(fill, 0.5, 0.9);
    const start = this.startPoint();
    this.x = down ? this.wide / 2 - start[0] * this.zoom : 0;
    this.y = down ? 0 : this.high / 2 - start[1] * this.zoom;
    if (down && d.width * this.zoom <= this.wide) this.x = (this.wide - d.width * this.zoom) / 2;
    const forward = this.index.get("group:forward:");
    if (forward !== undefined) { // the backward may reach far above where the forward starts
      const { x, y, w } = d.box;
      const room = d.width * this.zoom <= this.wide;
      if (down) this.y = 16 - y[forward] * this.zoom;
      if (down && !room) this.x = this.wide * 0.4 - (x[forward] + w[forward] / 2) * this.zoom;
      if (!down) this.x = 16 - x[forward] * this.zoom;
    }
    if (!down && d.height * this.zoom <= this.high) this.y = (this.high - d.height * this.zoom) / 2;
    this.redraw();
  }

  startPoint() {
    const { box, width, height, direction } = this.drawing;
    let sx = 0, sy = 0, n = 0;
    const limit = direction === "TB" ? this.high / this.zoom : this.wide / this.zoom;
    for (const i of this.solid) {
      if ((direction === "TB" ? box.y[i] : box.x[i]) > limit) continue;
      sx += box.x[i] + box.w[i] / 2; sy += box.y[i] + box.h[i] / 2; n += 1;
    }
    return n ? [sx / n, sy / n] : [width / 2, height / 2];
  }

  zoomBy(factor, sx = this.wide / 2, sy = this.high / 2) {
    const next = clamp(this.zoom * factor, Math.min(0.05, this.fitZoom() / 2), MAX_ZOOM);
    const [wx, wy] = this.toWorld(sx, sy);
    this.zoom = next;
    this.x = sx - wx * next;
    this.y = sy - wy * next;
    this.hideTip();
    this.redraw();
  }

  // Width of the stage that the details card leaves free.
  free() {
    const shown = !this.side.classList.contains("hidden") && this.wide > 560;
    return this.wide - (shown ? this.side.offsetWidth + 16 : 0);
  }

  center(i) {
    const { box } = this.drawing;
    const high = box.open[i] ? Math.min(box.h[i], 200) : box.h[i];
    if (this.zoom < 0.6) this.zoom = 0.8;
    this.x = this.free() / 2 - (box.x[i] + box.w[i] / 2) * this.zoom;
    this.y = this.high / 2 - (box.y[i] + high / 2) * this.zoom;
    this.redraw();
  }

  // Show a node or group wherever it is: opens the groups around it if need be.
  focus(key) {
    if (!this.exists(key)) return;
    this.select(key);
    const closed = this.closedAround(key);
    if (closed.length) {
      this.pendingFocus = key;
      this.setToggles(Object.fromEntries(closed.map((g) => [g, true])));
    }
    const i = this.boxOf(key);
    if (i >= 0) this.center(i);
  }

  closedAround(key) {
    const { groups, node } = this.drawing;
    let group = key.startsWith("group:") ? groups[key.slice(6)].parent
      : node.group[this.nodeIndex.get(key)];
    const closed = [];
    while (group) {
      if (!groups[group].open) closed.push(group);
      group = groups[group].parent;
    }
    return closed;
  }

  // ---- Groups ------------------------------------------------------------------------------

  toggle(i) {
    const { box } = this.drawing;
    const group = box.group[i];
    this.anchor = {
      group,
      x: box.x[i] * this.zoom + this.x,
      y: box.y[i] * this.zoom + this.y,
    };
    if (box.open[i]) { // keep the header in sight when its content goes
      this.anchor.y = clamp(this.anchor.y, 8, this.high - 70);
      this.anchor.x = clamp(this.anchor.x, 8, Math.max(8, this.wide - 200));
    }
    this.setToggles({ [group]: !box.open[i] });
  }

  setToggles(change) {
    this.toggles = { ...this.toggles, ...change };
    this.sendToggles();
  }

  sendToggles() {
    this.busy.classList.add("on");
    this.hideTip();
    this.tell("toggles", { family: this.drawing.family, groups: this.toggles });
  }

  toggleAll(open) {
    this.toggles = { "*": open };
    this.refit = true;
    if (open) this.pendingFocus = this.selected;
    this.sendToggles();
  }

  // ---- Selection, details ------------------------------------------------------------------

  select(key) {
    if (key === this.selected) return;
    this.selected = key;
    if (key !== (this.told ?? null)) {
      this.told = key;
      this.tell("selected", key);
    }
    this.showDetails();
    this.live.textContent = key === null ? "Nothing selected" : `Selected ${this.title(key)}`;
    this.redraw();
  }

  title(key) {
    if (key.startsWith("group:")) return this.drawing.groups[key.slice(6)].path;
    return this.drawing.node.title[this.nodeIndex.get(key)];
  }

  keyOf(i) {
    const { box } = this.drawing;
    return box.kind[i] ? "group:" + box.group[i] : box.id[i];
  }

  showDetails() {
    const key = this.drawing && this.selected;
    const show = key !== null && key !== undefined && this.exists(key);
    const focused = this.side.contains(this.root.getRootNode().activeElement);
    this.side.classList.toggle("hidden", !show);
    if (!show) {
      this.side.replaceChildren();
      if (focused) this.main.focus({ preventScroll: true });
      return;
    }
    this.side.classList.toggle("folded", this.folded);
    this.side.replaceChildren(...(key.startsWith("group:")
      ? this.groupDetails(key.slice(6)) : this.nodeDetails(this.nodeIndex.get(key))));
    // The button that had the focus is gone: keep it here, or keys would go to the page.
    if (focused) this.side.focus({ preventScroll: true });
  }

  head(title, subtitle, style) {
    const mark = element("span", { class: "mark" });
    const look = this.styles[style] ?? this.styles.call;
    mark.style.background = look.fill; mark.style.borderColor = look.stroke;
    const fold = element("button", {
      title: this.folded ? "Show details" : "Fold details", "aria-expanded": String(!this.folded),
      onclick: () => { this.folded = !this.folded; this.showDetails(); },
    });
    fold.innerHTML = `<svg class="i" viewBox="0 0 16 16"><path d="${
      this.folded ? "M4 6l4 4 4-4" : "M4 10l4-4 4 4"}"/></svg>`;
    const close = element("button", { title: "Clear selection (Esc)", onclick: () => this.select(null) });
    close.innerHTML = '<svg class="i" viewBox="0 0 16 16"><path d="M4 4l8 8M12 4l-8 8"/></svg>';
    return element("header", {}, mark,
      element("div", { class: "grow" }, element("h2", {}, title), element("small", {}, subtitle)),
      fold, close);
  }

  facts(pairs) {
    const list = element("dl");
    for (const [name, value, code] of pairs) {
      if (value === "" || value === null || value === undefined) continue;
      list.append(element("dt", {}, name),
        element("dd", {}, code ? element("code", {}, value) : value));
    }
    return list;
  }

  nodeDetails(n) {
    const { node, strings } = this.drawing;
    const extra = node.extra[n] ?? {};
    const role = node.role[n] ? `, ${node.role[n]}` : "";
    const body = element("div", { class: "body" });
    body.append(this.facts([
      ["Here", node.note[n]],
      ["Type", node.types[n].map((t) => strings[t]).join("\n"), true],
      ["Size", bytesText(node.bytes[n])],
      ["Module", strings[node.scope[n]], true],
      ["Source", strings[node.source[n]], true],
      ["Id", node.id[n], true],
    ]));
    const attributes = Object.entries(extra.attrs ?? {});
    if (attributes.length) {
      body.append(element("h3", {}, "Attributes"), this.facts(attributes.map(([name, value]) =>
        [name, typeof value === "string" ? value : JSON.stringify(value), true])));
    }
    if (extra.body) {
      body.append(element("h3", {}, "Fused operators"),
        this.facts(extra.body.map(([op, count]) => [`${count} ×`, op, true])));
    }
    body.append(...this.links("Inputs", node.inputs[n]));
    body.append(...this.links(node.output[n] ? "Readers (and a result of the graph)" : "Readers",
      node.readers[n]));
    return [this.head(node.full[n], node.kind[n] + role, node.style[n]), body];
  }

  links(title, list) {
    if (!list.length) return [element("h3", {}, title), element("div", { class: "lit" }, "none")];
    const { node, strings } = this.drawing;
    const items = element("ul");
    const write = (from, to) => {
      for (const entry of list.slice(from, to)) {
        if (typeof entry === "string") {
          items.append(element("li", { class: "lit" }, element("code", {}, entry)));
          continue;
        }
        const type = node.types[entry].map((t) => strings[t]).join(", ");
        const button = element("button", {
          class: "link", title: strings[node.scope[entry]] || node.id[entry],
          onclick: () => this.focus(node.id[entry]),
        }, element("span", {}, node.title[entry]), element("small", {}, type));
        items.append(element("li", {}, button));
      }
      if (to < list.length) {
        const more = element("button", { class: "link" },
          element("span", {}, `${list.length - to} more`));
        const row = element("li", {}, more);
        more.onclick = () => { row.remove(); write(to, to + 200); };
        items.append(row);
      }
    };
    write(0, 40);
    return [element("h3", {}, `${title} (${list.length})`), items];
  }

  groupDetails(id) {
    const { groups } = this.drawing;
    const group = groups[id];
    const body = element("div", { class: "body" });
    body.append(this.facts([
      ["Nodes", group.nodes.toLocaleString("en")],
      ["Results", bytesText(group.bytes)],
      ["Weights", group.parameterBytes ? bytesText(group.parameterBytes) : ""],
    ]));
    const toggle = element("button", { class: "link", onclick: () => {
      const i = this.index.get("group:" + id);
      if (i !== undefined) this.toggle(i);
      else this.focus("group:" + id);
    } }, element("span", {}, group.open ? "Close this group" : "Open this group"));
    body.append(toggle);
    if (group.operators.length) {
      body.append(element("h3", {}, "Operators"),
        this.facts(group.operators.map(([op, count]) => [`${count} ×`, op, true])));
    }
    return [this.head(group.path, "module", "call"), body];
  }

  // ---- Search ------------------------------------------------------------------------------

  search(text, list = true) {
    const d = this.drawing;
    if (!d) return;
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.matches = []; this.match = -1; this.matchBoxes.clear();
    if (words.length) {
      for (let n = 0; n < d.node.id.length; n++) {
        const hay = `${d.node.full[n]} ${d.strings[d.node.scope[n]]} ${d.node.id[n]}`.toLowerCase();
        if (words.every((w) => hay.includes(w))) {
          this.matches.push(n);
          if (d.node.box[n] >= 0) this.matchBoxes.add(d.node.box[n]);
        }
      }
    }
    this.writeHits();
    this.listResults(list && words.length > 0);
    this.redraw();
  }

  writeHits() {
    const { length } = this.matches;
    this.hits.textContent = !this.input.value.trim() ? ""
      : this.match >= 0 ? `${this.match + 1} of ${length}`
        : length === 1 ? "1 match" : `${length} matches`;
  }

  listResults(show) {
    this.results.classList.toggle("hidden", !show || !this.matches.length);
    if (!show) return;
    const { node, strings } = this.drawing;
    this.results.replaceChildren(...this.matches.slice(0, 60).map((n, at) => {
      const type = node.types[n].map((t) => strings[t]).join(", ");
      return element("button", { onclick: () => { this.jump(at); this.main.focus(); } },
        node.full[n],
        element("small", {}, [strings[node.scope[n]], type].filter(Boolean).join(" · ")));
    }));
  }

  jump(at) {
    if (!this.matches.length) return;
    this.match = (at + this.matches.length) % this.matches.length;
    const n = this.matches[this.match];
    this.writeHits();
    this.results.classList.add("hidden");
    this.focus(this.drawing.node.id[n]);
  }

  // ---- Input -------------------------------------------------------------------------------

  listen() {
    const options = { signal: this.stop.signal };
    const on = (target, type, handler, more = {}) =>
      target.addEventListener(type, handler, { ...options, ...more });
    on(this.main, "pointerdown", (e) => this.pointerDown(e));
    on(this.main, "pointermove", (e) => this.pointerMove(e));
    on(this.main, "pointerup", (e) => this.pointerUp(e));
    on(this.main, "pointercancel", (e) => this.pointerUp(e));
    on(this.main, "pointerleave", () => { this.setHover(-1); });
    on(this.main, "dblclick", (e) => this.doubleClick(e));
    on(this.main, "wheel", (e) => this.wheel(e), { passive: false });
    on(document, "scroll", () => { this.lastScroll = performance.now(); }, { capture: true });
    on(this.root, "keydown", (e) => this.key(e));
    on(this.input, "input", () => this.search(this.input.value));
    on(this.input, "focus", () => this.search(this.input.value));
    on(this.input, "keydown", (e) => {
      if (e.key === "Enter") {
        e.preventDefault();
        this.jump(this.match + (e.shiftKey ? -1 : 1));
      } else if (e.key === "Escape") {
        this.input.value = ""; this.search(""); this.main.focus();
      }
      e.stopPropagation();
    });
    on(this.root, "focusin", (e) => {
      if (!e.target.closest(".find, .results")) this.results.classList.add("hidden");
    });
    const act = {
      in: () => this.zoomBy(1.3), out: () => this.zoomBy(1 / 1.3), fit: () => this.fit(),
      shapes: () => { this.shapes = !this.shapes; this.reflectButtons(); this.redraw(); },
      open: () => this.toggleAll(true), close: () => this.toggleAll(false),
      full: () => (document.fullscreenElement ? document.exitFullscreen()
        : this.root.requestFullscreen()),
    };
    for (const button of this.root.querySelectorAll("[data-act]")) {
      on(button, "click", () => { if (this.drawing) act[button.dataset.act](); });
    }
    on(this.map, "pointerdown", (e) => { this.map.setPointerCapture(e.pointerId); this.mapTo(e); });
    on(this.map, "pointermove", (e) => { if (e.buttons) this.mapTo(e); });
    on(this.probe, "transitionend", () => { this.readTheme(); this.drawMap(); this.redraw(); });
    on(document.fonts, "loadingdone", () => { this.fits.clear(); this.redraw(); });
    this.resizing = new ResizeObserver(() => this.resize());
    this.resizing.observe(this.stage);
  }

  local(e) {
    const box = this.main.getBoundingClientRect();
    return [e.clientX - box.left, e.clientY - box.top];
  }

  pointerDown(e) {
    this.root.classList.add("mouse");
    this.main.focus({ preventScroll: true });
    this.results.classList.add("hidden");
    this.main.setPointerCapture(e.pointerId);
    const [x, y] = this.local(e);
    this.pointers.set(e.pointerId, [x, y]);
    this.moved = this.pointers.size > 1;
    this.pressed = [x, y];
    this.hideTip();
  }

  pointerMove(e) {
    const [x, y] = this.local(e);
    const before = this.pointers.get(e.pointerId);
    if (!before) {
      const [wx, wy] = this.toWorld(x, y);
      this.setHover(this.hit(wx, wy), x, y);
      return;
    }
    if (this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== e.pointerId)[1];
      const was = Math.hypot(before[0] - other[0], before[1] - other[1]);
      const is = Math.hypot(x - other[0], y - other[1]);
      if (was > 0) this.zoomBy(is / was, (x + other[0]) / 2, (y + other[1]) / 2);
      this.x += (x - before[0]) / 2; this.y += (y - before[1]) / 2;
    } else {
      if (!this.moved && Math.hypot(x - this.pressed[0], y - this.pressed[1]) > 4) {
        this.moved = true;
        this.main.classList.add("dragging");
      }
      if (this.moved) { this.x += x - before[0]; this.y += y - before[1]; }
    }
    this.pointers.set(e.pointerId, [x, y]);
    this.redraw();
  }

  pointerUp(e) {
    const known = this.pointers.delete(e.pointerId);
    this.main.classList.remove("dragging");
    if (!known || this.moved || e.type === "pointercancel" || !this.drawing) return;
    const [wx, wy] = this.toWorld(...this.local(e));
    const i = this.hit(wx, wy);
    if (i < 0) { this.select(null); return; }
    if (this.onToggle(i, wx, wy)) { this.toggle(i); return; }
    this.select(this.keyOf(i));
    this.uncover(i);
  }

  // Slide the picture if the details card would hide what was just selected.
  uncover(i) {
    const { box } = this.drawing;
    if (box.open[i]) return;
    const right = (box.x[i] + box.w[i]) * this.zoom + this.x;
    const spare = this.free() - 12;
    if (right > spare && box.w[i] * this.zoom < spare) { this.x -= right - spare; this.redraw(); }
  }

  doubleClick(e) {
    if (!this.drawing) return;
    const [wx, wy] = this.toWorld(...this.local(e));
    const i = this.hit(wx, wy);
    if (i >= 0 && this.drawing.box.kind[i] && !this.onToggle(i, wx, wy)) this.toggle(i);
  }

  wheel(e) {
    // A wheel that is scrolling the page passes through when the picture slides under it.
    if (performance.now() - this.lastScroll < 300 && !e.ctrlKey) {
      this.lastScroll = performance.now();
      return;
    }
    e.preventDefault();
    const unit = e.deltaMode === 1 ? 18 : e.deltaMode === 2 ? 300 : 1;
    const step = clamp(e.deltaY * unit, -240, 240);
    this.zoomBy(Math.exp(-step * (e.ctrlKey ? 0.01 : 0.0016)), ...this.local(e));
  }

  key(e) {
    this.root.classList.remove("mouse");
    if (e.target === this.input || e.altKey || e.metaKey || e.ctrlKey) return;
    const step = 70;
    const keys = {
      ArrowLeft: () => { this.x += step; }, ArrowRight: () => { this.x -= step; },
      ArrowUp: () => { this.y += step; }, ArrowDown: () => { this.y -= step; },
      f: () => this.fit(), F: () => this.fit(), "0": () => this.fit(),
      "+": () => this.zoomBy(1.3), "=": () => this.zoomBy(1.3), "-": () => this.zoomBy(1 / 1.3),
      "/": () => { this.input.focus(); this.input.select(); },
      n: () => this.jump(this.match + 1), N: () => this.jump(this.match - 1),
      Escape: () => this.select(null),
    };
    if (e.target === this.main) {
      keys.Enter = () => {
        const i = this.selected === null ? -1 : this.boxOf(this.selected);
        if (i >= 0 && this.drawing.box.kind[i]) this.toggle(i);
      };
    } else if (e.key.startsWith("Arrow") && e.target.closest(".side")) return;
    if (!keys[e.key] || !this.drawing) return;
    e.preventDefault();
    e.stopPropagation(); // the page has shortcuts of its own
    keys[e.key]();
    this.redraw();
  }

  hit(wx, wy) {
    if (!this.drawing) return -1;
    const { box } = this.drawing;
    const inside = (i, high) => wx >= box.x[i] && wx <= box.x[i] + box.w[i]
      && wy >= box.y[i] && wy <= box.y[i] + high;
    for (let k = this.solid.length - 1; k >= 0; k--) {
      if (inside(this.solid[k], box.h[this.solid[k]])) return this.solid[k];
    }
    const header = Math.max(HEADER, 14 / this.zoom);
    for (let k = this.open.length - 1; k >= 0; k--) {
      if (inside(this.open[k], Math.min(header, box.h[this.open[k]]))) return this.open[k];
    }
    return -1;
  }

  onToggle(i, wx, wy) {
    const { box } = this.drawing;
    if (!box.kind[i] || this.zoom < 0.25) return false;
    return wx <= box.x[i] + 32 && (box.open[i] ? wy <= box.y[i] + HEADER : true);
  }

  setHover(i, sx = 0, sy = 0) {
    this.main.classList.toggle("over", i >= 0);
    if (i === this.hover) { this.placeTip(sx, sy); return; }
    this.hover = i;
    this.hideTip();
    if (i >= 0) {
      this.tipTimer = setTimeout(() => { this.fillTip(i); this.placeTip(sx, sy); }, 250);
    }
    this.redraw();
  }

  hideTip() { clearTimeout(this.tipTimer); this.tip.classList.add("hidden"); }

  fillTip(i) {
    const { box, node, strings, groups } = this.drawing;
    const lines = [];
    if (box.kind[i]) {
      const group = groups[box.group[i]];
      lines.push(group.path, `${group.nodes.toLocaleString("en")} nodes`,
        group.operators.slice(0, 4).map(([op, count]) => `${count} × ${op}`).join(", "),
        "double-click to " + (box.open[i] ? "close" : "open"));
    } else {
      const n = this.nodeIndex.get(box.id[i]);
      lines.push(node.full[n], node.types[n].map((t) => strings[t]).join(", "),
        bytesText(node.bytes[n]), strings[node.scope[n]], node.note[n]);
    }
    const [first, ...rest] = lines;
    this.tip.replaceChildren(element("b", {}, first),
      ...rest.filter(Boolean).map((line) => element("span", {}, line)));
    this.tip.classList.remove("hidden");
  }

  placeTip(sx, sy) {
    if (this.tip.classList.contains("hidden")) return;
    const { offsetWidth: w, offsetHeight: h } = this.tip;
    this.tip.style.left = `${clamp(sx + 14, 4, Math.max(4, this.wide - w - 4))}px`;
    this.tip.style.top = `${sy + 18 + h > this.high ? Math.max(4, sy - h - 8) : sy + 18}px`;
  }

  // ---- Theme, legend, buttons --------------------------------------------------------------

  readTheme() {
    const style = getComputedStyle(this.probe);
    const parts = (style.backgroundColor.match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
    const light = 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] > 128;
    this.ground = style.backgroundColor;
    this.ink = style.color;
    this.theme = light ? "light" : "dark";
    this.font = getComputedStyle(this.root).fontFamily;
    this.fits.clear();
    if (this.drawing) { this.fillLegend(); this.showDetails(); }
  }

  get look() { return (this.drawing ? this.drawing.palette : NEVER)[this.theme]; }
  get styles() { return this.look.styles; }

  styleOf(key) {
    const known = this.styles[key];
    if (known) return known;
    // A colour of its own: a heat map's, say.
    const parts = /^#[0-9a-f]{6}$/i.test(key)
      ? [1, 3, 5].map((at) => parseInt(key.slice(at, at + 2), 16)) : null;
    const bright = parts ? 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] > 128
      : this.theme === "light";
    const text = bright ? "#10151c" : "#f3f6fa";
    return { fill: key, stroke: this.look.surfaces.closedStroke, text, dashed: false };
  }

  fillLegend() {
    const { legend, box } = this.drawing;
    this.legend.replaceChildren(...legend.map(([key, shape]) => {
      const mark = element("i", { class: shape });
      if (shape === "line") mark.style.borderColor = this.look.surfaces[key];
      else {
        const look = this.styleOf(key);
        mark.style.background = look.fill; mark.style.borderColor = look.stroke;
        if (look.dashed) mark.style.borderStyle = "dashed";
      }
      const words = shape === "line" ? "forward value read by the backward"
        : this.styles[key]?.label ?? key;
      return element("span", {}, mark, words);
    }));
    const { nodes, edges } = this.drawing.counts;
    const shown = this.solid.length;
    this.count.textContent = `${nodes.toLocaleString("en")} nodes · `
      + `${edges.toLocaleString("en")} edges`
      + (shown < nodes && box.id.length ? ` · ${shown.toLocaleString("en")} boxes shown` : "");
  }

  reflectButtons() {
    const set = (act, pressed) => this.root.querySelector(`[data-act=${act}]`)
      .setAttribute("aria-pressed", String(pressed));
    set("shapes", !!this.shapes);
    const groups = Object.values(this.drawing.groups);
    this.root.querySelector("[data-act=open]").disabled = groups.every((g) => g.open);
    this.root.querySelector("[data-act=close]").disabled = groups.every((g) => !g.open);
  }

  // ---- Drawing -----------------------------------------------------------------------------

  redraw() {
    if (this.frame || this.gone) return;
    this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  // What stays bright while something is selected: boxes, edges in, edges out.
  lit() {
    if (this.selected === null) return null;
    const i = this.boxOf(this.selected);
    if (i < 0) return null;
    const { box, edge } = this.drawing;
    const boxes = new Set([i, ...this.solid.filter((k) => box.style[k] === "aligned")]);
    let into = this.into[i], outOf = this.outOf[i];
    if (box.open[i]) {
      const inside = this.solid.filter((k) => box.x[k] >= box.x[i] && box.y[k] >= box.y[i]
        && box.x[k] + box.w[k] <= box.x[i] + box.w[i]
        && box.y[k] + box.h[k] <= box.y[i] + box.h[i]);
      const own = new Set(inside);
      inside.forEach((k) => boxes.add(k));
      into = inside.flatMap((k) => this.into[k].filter((e) => !own.has(edge.s[e])));
      outOf = inside.flatMap((k) => this.outOf[k].filter((e) => !own.has(edge.t[e])));
    }
    into.forEach((e) => boxes.add(edge.s[e]));
    outOf.forEach((e) => boxes.add(edge.t[e]));
    return { at: i, boxes, into: new Set(into), outOf: new Set(outOf) };
  }

  draw() {
    const d = this.drawing, { ctx, zoom, ratio } = this;
    if (!d) return;
    const began = performance.now();
    const colours = this.look.surfaces;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.fillStyle = this.ground;
    ctx.fillRect(0, 0, this.main.width, this.main.height);
    ctx.setTransform(ratio * zoom, 0, 0, ratio * zoom, ratio * this.x, ratio * this.y);
    const [left, top] = this.toWorld(0, 0), [right, bottom] = this.toWorld(this.wide, this.high);
    const { box } = d;
    const seen = (i) => box.x[i] <= right && box.x[i] + box.w[i] >= left
      && box.y[i] <= bottom && box.y[i] + box.h[i] >= top;
    const lit = this.lit();
    const near = { left: left - 60, top: top - 60, right: right + 60, bottom: bottom + 60 };

    this.drawOpenGroups(seen, colours);
    this.drawEdges(near, lit, colours);
    const text = clamp((TITLE * zoom - 3.5) / 2.5, 0, 1);
    this.drawSolid(seen, lit, colours);
    if (text > 0) this.drawText(seen, lit, text, colours);
    this.drawHeaders(seen, colours);
    if (this.shapes && zoom > 0.5) this.drawShapes(near, lit, colours);
    this.drawMarks(seen, lit, colours);
    this.drawMapFrame();
    this.root.dataset.frameMs = (performance.now() - began).toFixed(1);
  }

  path(i, low) {
    const { box } = this.drawing, { ctx } = this;
    const x = box.x[i], y = box.y[i], w = box.w[i], h = box.h[i];
    if (low) { ctx.rect(x, y, w, h); return; }
    const shape = box.shape[i];
    if (shape === "ellipse") {
      ctx.moveTo(x + w, y + h / 2);
      ctx.ellipse(x + w / 2, y + h / 2, w / 2, h / 2, 0, 0, 2 * Math.PI);
    } else if (shape === "octagon") {
      const c = 8;
      ctx.moveTo(x + c, y); ctx.lineTo(x + w - c, y); ctx.lineTo(x + w, y + c);
      ctx.lineTo(x + w, y + h - c); ctx.lineTo(x + w - c, y + h); ctx.lineTo(x + c, y + h);
      ctx.lineTo(x, y + h - c); ctx.lineTo(x, y + c); ctx.closePath();
    } else {
      ctx.roundRect(x, y, w, h, shape === "pill" ? Math.min(h / 2, 18) : 6);
    }
  }

  drawOpenGroups(seen, colours) {
    const { box } = this.drawing, { ctx } = this;
    ctx.lineWidth = Math.max(1, 0.6 / this.zoom);
    ctx.strokeStyle = colours.groupStroke;
    ctx.fillStyle = colours.group; // see-through: each level shades the one around it
    for (const i of this.open) {
      if (!seen(i)) continue;
            ctx.beginPath();
      ctx.roundRect(box.x[i], box.y[i], box.w[i], box.h[i], 10);
      ctx.fill(); ctx.stroke();
    }
  }

  drawHeaders(seen, colours) {
    const { box } = this.drawing, { ctx, zoom } = this;
    ctx.textAlign = "left"; ctx.textBaseline = "middle";
    for (const i of this.open) {
      if (!seen(i)) continue;
      // A large group keeps its name readable when zoomed out, as far as its width allows.
      const scale = clamp(0.75 / zoom, 1, clamp(box.w[i] / 170, 1, 2));
      if (TITLE * scale * zoom < 6) continue;
      ctx.save();
      ctx.translate(box.x[i], box.y[i]);
      ctx.scale(scale, scale);
      this.sign(10, HEADER / 2, true, colours);
      ctx.font = `600 ${TITLE}px ${this.font}`;
      const name = this.short(box.lines[i][0], box.w[i] / scale - 44, ctx.font);
      ctx.strokeStyle = this.ground; ctx.lineWidth = 3; ctx.lineJoin = "round";
      ctx.strokeText(name, 30, HEADER / 2 + 0.5); // edges may pass behind it
      ctx.fillStyle = colours.groupText;
      ctx.fillText(name, 30, HEADER / 2 + 0.5);
      ctx.restore();
    }
  }

  sign(x, y, minus, colours) {
    const { ctx } = this;
    ctx.lineWidth = 1.2;
    ctx.strokeStyle = minus ? colours.groupText : colours.closedText;
    ctx.fillStyle = this.ground;
    ctx.beginPath(); ctx.roundRect(x, y - 7, 14, 14, 3.5); ctx.fill(); ctx.stroke();
    ctx.beginPath(); ctx.moveTo(x + 3.5, y); ctx.lineTo(x + 10.5, y);
    if (!minus) { ctx.moveTo(x + 7, y - 3.5); ctx.lineTo(x + 7, y + 3.5); }
    ctx.stroke();
  }

  trace(e, low) {
    const { edge, direction } = this.drawing, { ctx } = this;
    const p = edge.p[e];
    const down = (direction === "TB") !== (edge.kind[e] === 2);
    ctx.moveTo(p[0], p[1]);
    for (let i = 2; i < p.length; i += 2) {
      const x0 = p[i - 2], y0 = p[i - 1], x1 = p[i], y1 = p[i + 1];
      if (low || (down ? x0 === x1 : y0 === y1)) ctx.lineTo(x1, y1);
      else if (down) {
        const bend = (y1 - y0) * 0.5;
        ctx.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
      } else {
        const bend = (x1 - x0) * 0.5;
        ctx.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
      }
    }
  }

  drawEdges(near, lit, colours) {
    const { edge } = this.drawing, { ctx, zoom, bounds } = this;
    const low = zoom < 0.12;
    const plain = [], long = [], crossing = [], into = [], outOf = [];
    const around = this.hover >= 0 ? this.hover : -1;
    for (let e = 0; e < edge.s.length; e++) {
      const b = e * 4;
      if (bounds[b] > near.right || bounds[b + 2] < near.left
        || bounds[b + 1] > near.bottom || bounds[b + 3] < near.top) continue;
      if (lit?.into.has(e) || (around >= 0 && edge.t[e] === around)) into.push(e);
      else if (lit?.outOf.has(e) || (around >= 0 && edge.s[e] === around)) outOf.push(e);
      else if (edge.kind[e] === 2) crossing.push(e);
      else if (edge.kind[e] === 1) long.push(e);
      else plain.push(e);
    }
    const batch = (list, colour, width, alpha) => {
      if (!list.length) return;
      ctx.globalAlpha = alpha;
      ctx.strokeStyle = ctx.fillStyle = colour;
      ctx.lineWidth = Math.max(width, Math.min(0.7 / zoom, 6));
      ctx.beginPath();
      for (const e of list) this.trace(e, low);
      ctx.stroke();
      if (zoom > 0.3) {
        ctx.beginPath();
        for (const e of list) this.arrow(e, width);
        ctx.fill();
      }
      ctx.globalAlpha = 1;
    };
    const dim = lit ? 0.22 : 1;
    const many = plain.length + long.length + crossing.length > 3000 ? 0.7 : 1;
    batch(long, colours.edge, 1, 0.3 * dim);
    batch(crossing, colours.crossing, 1.1, (crossing.length > 60 ? 0.3 : 0.55) * dim);
    batch(plain, colours.edge, 1.3, dim * many);
    batch(into, colours.incoming, 2.2, 1);
    batch(outOf, colours.outgoing, 2.2, 1);
  }

  arrow(e, width) {
    const { edge, direction } = this.drawing, { ctx } = this;
    const p = edge.p[e], n = p.length;
    const x = p[n - 2], y = p[n - 1];
    const down = (direction === "TB") !== (edge.kind[e] === 2);
    const size = 5.5 + width, half = 2.6 + width * 0.7;
    const way = down ? Math.sign(y - p[n - 3]) || 1 : Math.sign(x - p[n - 4]) || 1;
    ctx.moveTo(x, y);
    if (down) { ctx.lineTo(x - half, y - way * size); ctx.lineTo(x + half, y - way * size); }
    else { ctx.lineTo(x - way * size, y - half); ctx.lineTo(x - way * size, y + half); }
    ctx.closePath();
  }

  drawSolid(seen, lit, colours) {
    const { box } = this.drawing, { ctx, zoom } = this;
    const low = zoom < 0.18;
    const line = Math.max(1.2, Math.min(0.8 / zoom, 5));
    for (const [key, list] of this.byStyle) {
      const look = key === "group"
        ? { fill: colours.closed, stroke: colours.closedStroke } : this.styleOf(key);
      for (const bright of lit ? [false, true] : [true]) {
        ctx.beginPath();
        let any = false;
        for (const i of list) {
          if (!seen(i) || (lit && lit.boxes.has(i) !== bright)) continue;
          this.path(i, low);
          any = true;
        }
        if (!any) continue;
        // Dimmed boxes stay opaque underneath, so that edges do not shine through their text.
        if (!bright) { ctx.fillStyle = this.ground; ctx.fill(); ctx.globalAlpha = 0.3; }
        ctx.fillStyle = look.fill; ctx.strokeStyle = look.stroke; ctx.lineWidth = line;
        ctx.setLineDash(look.dashed ? [5, 3] : []);
        ctx.fill(); ctx.stroke();
        ctx.globalAlpha = 1;
      }
    }
    ctx.setLineDash([]);
    if (low) return;
    for (const i of this.solid) {
      if (!seen(i)) continue;
      const fade = lit && !lit.boxes.has(i) ? 0.3 : 1;
      if (box.kind[i] || box.shape[i] === "double") {
        // A closed group is a stack of sheets, a fused function has a double outline.
        ctx.globalAlpha = fade;
        ctx.lineWidth = line * 0.8;
        ctx.strokeStyle = box.style[i] === "group"
          ? colours.closedStroke : this.styleOf(box.style[i]).stroke;
        ctx.beginPath();
        if (box.kind[i]) {
          const x = box.x[i], y = box.y[i] + box.h[i], w = box.w[i];
          ctx.moveTo(x + 6, y + 3); ctx.lineTo(x + w - 6, y + 3);
          ctx.moveTo(x + 12, y + 6); ctx.lineTo(x + w - 12, y + 6);
        } else ctx.roundRect(box.x[i] + 3, box.y[i] + 3, box.w[i] - 6, box.h[i] - 6, 4);
        ctx.stroke();
        ctx.globalAlpha = 1;
      } else if (box.shape[i] === "box") {
        ctx.globalAlpha = fade;
        ctx.fillStyle = this.styleOf(box.style[i]).stroke;
        ctx.beginPath();
        ctx.roundRect(box.x[i], box.y[i], 5, box.h[i], [6, 0, 0, 6]);
        ctx.fill();
        ctx.globalAlpha = 1;
      }
    }
  }

  drawText(seen, lit, fade, colours) {
    const { box } = this.drawing, { ctx, zoom } = this;
    const small = clamp((SUBTITLE * zoom - 4.5) / 2.5, 0, 1);
    ctx.textBaseline = "middle";
    const visible = this.solid.filter(seen);
    const bold = `600 ${TITLE}px ${this.font}`, plain = `${SUBTITLE}px ${this.font}`;
    const place = (i, second) => {
      const group = box.kind[i];
      ctx.textAlign = group ? "left" : "center";
      const x = group ? box.x[i] + 34 : box.x[i] + box.w[i] / 2 + (box.shape[i] === "box" ? 2 : 0);
      const middle = box.y[i] + box.h[i] / 2;
      const two = box.lines[i].length > 1 && small > 0;
      return [x, second ? middle + 9 : two ? middle - 7.5 : middle + 0.5];
    };
    const room = (i) => box.w[i] - (box.kind[i] ? 44 : box.shape[i] === "ellipse" ? 22 : 16);
    const colour = (i) =>
      box.style[i] === "group" ? colours.closedText : this.styleOf(box.style[i]).text;
    ctx.font = bold;
    for (const i of visible) {
      ctx.globalAlpha = fade * (lit && !lit.boxes.has(i) ? 0.4 : 1);
      ctx.fillStyle = colour(i);
      const at = place(i, false);
      ctx.fillText(this.short(box.lines[i][0], room(i), bold), ...at);
      if (box.kind[i]) this.sign(box.x[i] + 10, box.y[i] + box.h[i] / 2, false, colours);
    }
    ctx.globalAlpha = 1;
    if (small <= 0) return;
    ctx.font = plain;
    for (const i of visible) {
      if (box.lines[i].length < 2) continue;
      ctx.globalAlpha = 0.78 * small * (lit && !lit.boxes.has(i) ? 0.45 : 1);
      ctx.fillStyle = colour(i);
      const at = place(i, true);
      ctx.fillText(this.short(box.lines[i][1], room(i), plain), ...at);
    }
    ctx.globalAlpha = 1;
  }

  // The text, cut to fit; measured once for each width.
  short(text, room, font) {
    const key = `${font[0]}${Math.round(room)}|${text}`;
    let fitting = this.fits.get(key);
    if (fitting === undefined) {
      const { ctx } = this;
      ctx.font = font;
      fitting = text;
      while (fitting.length > 1 && ctx.measureText(fitting).width > room) {
        fitting = fitting.slice(0, -2).trimEnd() + "…";
      }
      this.fits.set(key, fitting);
    }
    return fitting;
  }

  // One label a value, where it leaves its node; where a group hides who made it, at its reader.
  drawShapes(near, lit, colours) {
    const { box, edge, strings } = this.drawing, { ctx } = this;
    ctx.font = `${SUBTITLE - 0.5}px ${this.font}`;
    ctx.textBaseline = "middle"; ctx.textAlign = "left";
    const taken = [], done = new Set();
    for (let e = 0; e < edge.s.length; e++) {
      const p = edge.p[e], text = strings[edge.label[e]];
      const hidden = box.kind[edge.s[e]];
      if (!text || (!hidden && done.has(edge.s[e]))) continue;
      const last = p.length - 2;
      const back = edge.kind[e] !== 2 && p[last + 1] < p[1];
      const x = hidden ? p[last] + 5 : p[0] + 5;
      const y = hidden ? p[last + 1] + (back ? 15 : -15) : p[1] + (back ? -13 : 13);
      if (x > near.right || y > near.bottom || x < near.left - 200 || y < near.top) continue;
      if (lit && !lit.into.has(e) && !lit.outOf.has(e)) continue;
      const w = ctx.measureText(text).width;
      if (taken.some(([tx, ty, tw]) => Math.abs(ty - y) < 11 && x < tx + tw + 4 && tx < x + w + 4)) {
        continue;
      }
      taken.push([x, y, w]);
      done.add(edge.s[e]);
      ctx.globalAlpha = 0.85;
      ctx.fillStyle = this.ground;
      ctx.fillRect(x - 2, y - 6, w + 4, 12);
      ctx.globalAlpha = 1;
      ctx.fillStyle = colours.edgeText;
      ctx.fillText(text, x, y + 0.5);
    }
  }

  drawMarks(seen, lit, colours) {
    const { box } = this.drawing, { ctx, zoom } = this;
    const ring = (i, colour, width, out) => {
      const grow = out / Math.min(1, Math.max(zoom, 0.1));
      ctx.strokeStyle = colour;
      ctx.lineWidth = width / Math.min(1, Math.max(zoom, 0.05));
      ctx.beginPath();
      if (box.shape[i] === "ellipse" && !box.kind[i]) {
        ctx.ellipse(box.x[i] + box.w[i] / 2, box.y[i] + box.h[i] / 2, box.w[i] / 2 + grow,
          box.h[i] / 2 + grow, 0, 0, 2 * Math.PI);
      } else {
        const round = box.open[i] ? 12 : box.shape[i] === "pill" ? 20 : 8;
        ctx.roundRect(box.x[i] - grow, box.y[i] - grow, box.w[i] + 2 * grow, box.h[i] + 2 * grow,
          round);
      }
      ctx.stroke();
    };
    for (const i of this.matchBoxes) if (seen(i)) ring(i, colours.match, 3, 3.5);
    if (this.hover >= 0 && this.hover !== lit?.at) ring(this.hover, colours.select, 1.2, 1);
    if (lit) ring(lit.at, colours.select, 2.4, 2.5);
  }

  // ---- Minimap -----------------------------------------------------------------------------

  drawMap() {
    const d = this.drawing;
    if (!d || !d.box.id.length) { this.map.classList.add("hidden"); return; }
    const ratio = window.devicePixelRatio || 1;
    const scale = Math.min(150 / d.width, 150 / d.height);
    const w = Math.max(34, Math.ceil(d.width * scale)), h = Math.max(34, Math.ceil(d.height * scale));
    this.mapScale = scale; this.mapSize = [w, h];
    this.mapShift = [(w - d.width * scale) / 2, (h - d.height * scale) / 2];
    this.map.width = w * ratio; this.map.height = h * ratio;
    this.map.style.width = w + "px"; this.map.style.height = h + "px";
    const sheet = this.mapSheet = new OffscreenCanvas(w * ratio, h * ratio);
    const ctx = sheet.getContext("2d");
    ctx.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * this.mapShift[0],
      ratio * this.mapShift[1]);
    const colours = this.look.surfaces, { box } = d;
    ctx.fillStyle = colours.group;
    for (const i of this.open) ctx.fillRect(box.x[i], box.y[i], box.w[i], box.h[i]);
    ctx.strokeStyle = colours.groupStroke;
    ctx.lineWidth = 0.6 / scale;
    for (const i of this.open) ctx.strokeRect(box.x[i], box.y[i], box.w[i], box.h[i]);
    for (const i of this.solid) {
      ctx.fillStyle = box.style[i] === "group"
        ? colours.closedStroke : this.styleOf(box.style[i]).stroke;
      ctx.fillRect(box.x[i], box.y[i], box.w[i], Math.max(box.h[i], 0.7 / scale));
    }
  }

  drawMapFrame() {
    const d = this.drawing;
    const all = this.x >= -1 && this.y >= -1 && this.x + d.width * this.zoom <= this.wide + 1
      && this.y + d.height * this.zoom <= this.high + 1;
    const hide = all || this.wide < 480 || !d.box.id.length;
    this.map.classList.toggle("hidden", hide);
    if (hide || !this.mapSheet) return;
    const ctx = this.mapCtx, ratio = window.devicePixelRatio || 1, [w, h] = this.mapSize;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, this.map.width, this.map.height);
    ctx.drawImage(this.mapSheet, 0, 0);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const [x0, y0] = this.toWorld(0, 0), [x1, y1] = this.toWorld(this.wide, this.high);
    const at = (x, y) => [clamp(x * this.mapScale + this.mapShift[0], 1, w - 1),
      clamp(y * this.mapScale + this.mapShift[1], 1, h - 1)];
    const [a, b] = at(x0, y0), [c, e] = at(x1, y1);
    ctx.strokeStyle = this.look.surfaces.select;
    ctx.lineWidth = 1.5;
    ctx.strokeRect(a, b, Math.max(2, c - a), Math.max(2, e - b));
  }

  mapTo(e) {
    const box = this.map.getBoundingClientRect();
    const wx = (e.clientX - box.left - this.mapShift[0]) / this.mapScale;
    const wy = (e.clientY - box.top - this.mapShift[1]) / this.mapScale;
    this.x = this.free() / 2 - wx * this.zoom;
    this.y = this.high / 2 - wy * this.zoom;
    this.redraw();
  }
}
