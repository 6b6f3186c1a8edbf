// Mouse, touch and keys.

import { clamp, Part } from "./parts.js";

export class Gestures extends Part {
  pointers = new Map();
  lastScroll = 0;
  stop = new AbortController();

  constructor(v) {
    super(v);
    const on = (target, type, handler, more = {}) =>
      target.addEventListener(type, handler, { signal: this.stop.signal, ...more });
    on(v.main, "pointerdown", (e) => this.pointerDown(e));
    on(v.main, "pointermove", (e) => this.pointerMove(e));
    for (const type of ["pointerup", "pointercancel"]) on(v.main, type, (e) => this.pointerUp(e));
    on(v.main, "pointerleave", () => { this.setHover(-1); });
    on(v.main, "dblclick", (e) => this.doubleClick(e));
    on(v.main, "wheel", (e) => this.wheel(e), { passive: false });
    on(document, "scroll", () => { this.lastScroll = performance.now(); }, { capture: true });
    on(v.root, "keydown", (e) => this.key(e));
    on(document, "keydown", (e) => this.keyOfPage(e));
    on(v.colours, "change", () => {
      if (v.colours.value === "own…") {
        v.colours.value = v.overlays.chosen;
        v.root.querySelector(".file").click();
      } else {
        v.overlays.chosen = v.colours.value;
        v.overlays.apply();
      }
    });
    on(v.root.querySelector(".file"), "change", (e) => {
      const [file] = e.target.files;
      if (file) v.overlays.open(file);
      e.target.value = "";
    });
    for (const type of ["input", "focus"]) on(v.input, type, () => v.finder.find(v.input.value));
    on(v.input, "keydown", (e) => {
      if (e.key === "Enter") {
        e.preventDefault();
        v.finder.jump(v.finder.match + (e.shiftKey ? -1 : 1));
      } else if (e.key === "Escape") {
        v.input.value = ""; v.finder.find(""); v.main.focus();
      }
      e.stopPropagation();
    });
    on(v.root, "focusin", (e) => {
      if (!e.target.closest(".find, .results")) v.results.classList.add("hidden");
    });
    const act = this.act = {
      in: () => v.zoomBy(1.3), out: () => v.zoomBy(1 / 1.3), fit: () => { v.walk.remember(); v.fit(); },
      next: () => v.finder.jump(v.finder.match + 1),
      before: () => v.finder.jump(v.finder.match - 1),
      table: () => v.table.toggle(), help: () => this.help(), show: () => v.show.ask(),
      below: () => v.scrollBelow(),
      shapes: () => { v.shapes = !v.shapes; v.reflectButtons(); v.redraw(); },
      open: () => v.toggleAll(true), close: () => v.toggleAll(false),
      full: () => (document.fullscreenElement ? document.exitFullscreen()
        : v.root.requestFullscreen()),
    };
    for (const button of v.root.querySelectorAll("[data-act]")) {
      on(button, "click", () => { if (v.drawing) act[button.dataset.act](); });
    }
    on(v.sheet, "scroll", () => v.table.draw());
    on(v.sheet, "keydown", (e) => v.table.key(e));
    on(v.map, "pointerdown", (e) => { v.map.setPointerCapture(e.pointerId); v.minimap.moveTo(e); });
    on(v.map, "pointermove", (e) => { if (e.buttons) v.minimap.moveTo(e); });
    on(v.probe, "transitionrun", () => v.redraw());
    on(document.fonts, "loadingdone", () => { v.painter.forget(); v.redraw(); });
    this.resizing = new ResizeObserver(() => v.resize());
    this.resizing.observe(v.stage);
    // Elements above may come, go or wrap, which changes the size of the page around.
    this.filling = new ResizeObserver(() => v.fillHeight());
    const page = v.root.getRootNode().host?.closest("[data-testid=stMainBlockContainer]");
    this.filling.observe(page ?? document.body);
    on(window, "resize", () => v.fillHeight());
  }

  end() {
    this.stop.abort();
    this.resizing.disconnect();
    this.filling.disconnect();
  }

  local(e) {
    const box = this.viewer.main.getBoundingClientRect();
    return [e.clientX - box.left, e.clientY - box.top];
  }

  pointerDown(e) {
    const v = this.viewer;
    v.root.classList.add("mouse");
    v.main.focus({ preventScroll: true });
    v.results.classList.add("hidden");
    v.help.classList.add("hidden");
    v.walk.remember();
    v.main.setPointerCapture(e.pointerId);
    const [x, y] = this.local(e);
    this.pointers.set(e.pointerId, [x, y]);
    this.moved = this.pointers.size > 1;
    this.two = this.pointers.size === 2; // fingers, until one of them moves
    this.pressed = [x, y];
    v.tooltip.hide();
  }

  pointerMove(e) {
    const v = this.viewer, [x, y] = this.local(e);
    const before = this.pointers.get(e.pointerId);
    if (!before) {
      const [wx, wy] = v.toWorld(x, y);
      this.setHover(v.hit(wx, wy), x, y);
      return;
    }
    if (this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== e.pointerId)[1];
      const was = Math.hypot(before[0] - other[0], before[1] - other[1]);
      const is = Math.hypot(x - other[0], y - other[1]);
      if (Math.abs(is - was) > 1 || Math.hypot(x - before[0], y - before[1]) > 1) this.two = false;
      if (was > 0) v.zoomBy(is / was, (x + other[0]) / 2, (y + other[1]) / 2);
      v.x += (x - before[0]) / 2; v.y += (y - before[1]) / 2;
    } else {
      if (!this.moved && Math.hypot(x - this.pressed[0], y - this.pressed[1]) > 4) {
        this.moved = true;
        v.main.classList.add("dragging");
      }
      if (this.moved) { v.x += x - before[0]; v.y += y - before[1]; }
    }
    this.pointers.set(e.pointerId, [x, y]);
    v.redraw();
  }

  pointerUp(e) {
    const v = this.viewer, known = this.pointers.delete(e.pointerId);
    v.main.classList.remove("dragging");
    if (known && this.two && e.type === "pointerup" && v.drawing) {
      this.two = false;
      v.walk.undo(); // a tap with two fingers
      return;
    }
    if (!known || this.moved || e.type === "pointercancel" || !v.drawing) return;
    const [wx, wy] = v.toWorld(...this.local(e));
    const i = v.hit(wx, wy);
    if (i < 0) { this.connecting = false; v.select(null); return; }
    if (v.onToggle(i, wx, wy)) { v.toggle(i); return; }
    if (v.onAlone(i, wx, wy)) { v.openAlone(v.drawing.box.group[i]); return; }
    const other = e.shiftKey || this.connecting; // end of a path
    this.connecting = false;
    if (other && v.selected !== null) { v.walk.connect(v.keyOf(i)); return; }
    v.select(v.keyOf(i));
    this.uncover(i);
  }

  // Slide the picture if the details card would hide what was just selected.
  uncover(i) {
    const v = this.viewer, { box } = v.drawing;
    if (box.open[i]) return;
    const right = (box.x[i] + box.w[i]) * v.zoom + v.x;
    const spare = v.free() - 12;
    if (right > spare && box.w[i] * v.zoom < spare) { v.x -= right - spare; v.redraw(); }
  }

  doubleClick(e) {
    const v = this.viewer;
    if (!v.drawing) return;
    const [wx, wy] = v.toWorld(...this.local(e));
    const i = v.hit(wx, wy);
    const mark = i >= 0 && (v.onToggle(i, wx, wy) || v.onAlone(i, wx, wy));
    if (i >= 0 && v.drawing.box.kind[i] && !mark) v.toggle(i);
  }

  wheel(e) {
    // A wheel that scrolls the page keeps doing so when the picture slides under the pointer.
    if (performance.now() - this.lastScroll < 300 && !e.ctrlKey) {
      this.lastScroll = performance.now();
      return;
    }
    e.preventDefault();
    const unit = e.deltaMode === 1 ? 18 : e.deltaMode === 2 ? 300 : 1;
    const step = clamp(e.deltaY * unit, -240, 240);
    this.viewer.zoomBy(Math.exp(-step * (e.ctrlKey ? 0.01 : 0.0016)), ...this.local(e));
  }

  key(e) {
    const v = this.viewer;
    v.root.classList.remove("mouse");
    if (e.target.closest("input, select")) return;
    const undo = e.key === "z" && (e.ctrlKey || e.metaKey) && !e.shiftKey;
    if (e.altKey || (e.metaKey || e.ctrlKey) && !undo) return;
    const step = 70;
    const arrow = (dx, dy) => () => {
      if (e.shiftKey || !v.walk.step(e.key)) { v.x += dx * step; v.y += dy * step; }
    };
    const { act } = this;
    const keys = {
      ArrowLeft: arrow(1, 0), ArrowRight: arrow(-1, 0), ArrowUp: arrow(0, 1), ArrowDown: arrow(0, -1),
      f: act.fit, F: act.fit, "0": act.fit, z: undo ? () => v.walk.undo() : null,
      u: () => v.walk.undo(),
      "[": () => v.walk.mark(-1), "]": () => v.walk.mark(1),
      "<": () => v.walk.widen(-1), ">": () => v.walk.widen(1),
      p: () => this.pin(), t: act.table, "?": act.help, "+": act.in, "=": act.in, "-": act.out,
      n: act.next, N: act.before, "/": () => { v.input.focus(); v.input.select(); },
      Escape: () => {
        if (!v.help.classList.contains("hidden")) this.help();
        else v.select(null);
      },
    };
    if (e.target === v.main) {
      keys.Enter = () => {
        const i = v.selected === null ? -1 : v.boxOf(v.selected);
        if (i >= 0 && v.drawing.box.kind[i]) v.toggle(i);
      };
    } else if (e.key.startsWith("Arrow") && e.target.closest(".side")) return;
    if (!keys[e.key] || !v.drawing) return;
    e.preventDefault();
    e.stopPropagation(); // the page has its own shortcuts
    keys[e.key]();
    v.redraw();
  }

  // Keys that work anywhere on the page, for the first visible view.
  keyOfPage(e) {
    const v = this.viewer;
    if (v.show.active) return;
    const { host } = v.root.getRootNode(), around = host?.getRootNode() ?? document;
    const inside = around.activeElement, part = around.host && !around.host.hasAttribute("page");
    if (part && !inside) return; // keys of the page around the element
    const at = inside ?? document.activeElement;
    if (at && at !== document.body && !at.matches("[role=tab], button, .stMain")) return;
    if (!["/", "?", "[", "]", "u"].includes(e.key) || e.altKey || e.metaKey || e.ctrlKey) return;
    const seen = [...document.querySelectorAll("relascope-graph")]
      .filter((one) => one.viewer?.root.getBoundingClientRect().width);
    if (!v.drawing || !v.root.getBoundingClientRect().width || (seen.length && seen[0] !== host)) return;
    e.preventDefault();
    e.stopPropagation();
    v.main.focus({ preventScroll: true });
    v.main.dispatchEvent(new KeyboardEvent("keydown", { key: e.key, bubbles: true }));
  }

  // The next node chosen by mouse or finger is the other end of a path.
  connect() {
    const v = this.viewer;
    this.connecting = v.selected !== null;
    if (this.connecting) v.say(`A path starts at ${v.title(v.selected)}: choose another node.`);
  }

  // Choose one end of a path, then the other, by keys.
  pin() {
    const v = this.viewer;
    if (v.selected === null) return;
    if (this.pinned && this.pinned !== v.selected && v.exists(this.pinned)) {
      v.walk.connect(this.pinned);
      this.pinned = null;
    } else {
      this.pinned = v.selected;
      v.say(`A path starts at ${v.title(v.selected)}: choose another node and press p.`);
    }
  }

  help() {
    const v = this.viewer, hidden = v.help.classList.toggle("hidden");
    (hidden ? v.main : v.help).focus({ preventScroll: true });
  }

  setHover(i, sx = 0, sy = 0) {
    const v = this.viewer;
    v.main.classList.toggle("over", i >= 0);
    if (i === v.hover) { v.tooltip.place(sx, sy); return; }
    v.hover = i;
    v.tooltip.hide();
    if (i >= 0) {
      v.tooltip.timer = setTimeout(() => { v.tooltip.fill(i); v.tooltip.place(sx, sy); }, 250);
    }
    v.redraw();
  }
}
