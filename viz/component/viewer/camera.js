// The view: which part of the picture is on the screen, and how large.

import { HEADER } from "./layout/words.js";
import { clamp, recall, remember } from "./parts.js";
import { Picture } from "./picture.js";

const MAX_ZOOM = 4;
const EDGE = 24; // margin around the picture, in CSS pixels

export class Camera extends Picture {
  constructor() {
    super();
    this.zoom = 1; this.x = 0; this.y = 0; // screen = world * zoom + (x, y), in CSS pixels
  }

  toWorld(sx, sy) { return [(sx - this.x) / this.zoom, (sy - this.y) / this.zoom]; }

  hit(wx, wy) {
    if (!this.drawing) return -1;
    const { box } = this.drawing;
    const inside = (i, high) => wx >= box.x[i] && wx <= box.x[i] + box.w[i]
      && wy >= box.y[i] && wy <= box.y[i] + high;
    const header = Math.max(HEADER, 14 / this.zoom);
    return this.solid.findLast((i) => inside(i, box.h[i]))
      ?? this.open.findLast((i) => inside(i, Math.min(header, box.h[i]))) ?? -1;
  }

  onToggle(i, wx, wy) {
    const { box } = this.drawing;
    if (!box.kind[i] || this.zoom < 0.25) return false;
    return wx <= box.x[i] + 32 && (box.open[i] ? wy <= box.y[i] + HEADER : true);
  }

  // Left, middle and size of a module's mark for opening it alone; null without one.
  aloneMark(i) {
    const { box, groups } = this.drawing;
    if (!box.kind[i] || !groups[box.group[i]].alone || this.zoom < 0.25) return null;
    const scale = box.open[i] ? this.headerScale(i) : 1;
    const middle = box.open[i] ? HEADER / 2 * scale : box.h[i] / 2;
    return { x: box.x[i] + box.w[i] - 24 * scale, y: box.y[i] + middle, scale };
  }

  onAlone(i, wx, wy) {
    const at = this.aloneMark(i);
    return at !== null && wx >= at.x - 5 * at.scale && Math.abs(wy - at.y) <= 12 * at.scale;
  }

  // The same for a closed group, in its box of two lines.
  nameScale() { return clamp(0.71 / this.zoom, 1, 2); }

  // A group keeps its name readable when zoomed out, as far as its frame allows.
  headerScale(i) {
    const { w, h } = this.drawing.box;
    return clamp(0.71 / this.zoom, 1, Math.max(1, Math.min(w[i] / 62, h[i] / 34)));
  }

  resize() {
    const box = this.stage.getBoundingClientRect();
    const ratio = window.devicePixelRatio || 1;
    this.wide = Math.max(1, box.width); this.high = Math.max(1, box.height); this.ratio = ratio;
    const w = Math.round(this.wide * ratio), h = Math.round(this.high * ratio);
    if (this.main.width !== w || this.main.height !== h) {
      this.main.width = w; this.main.height = h;
    }
    const narrow = { small: 900, slim: 640, tiny: 480 };
    for (const name in narrow) this.root.classList.toggle(name, this.wide < narrow[name]);
    this.redraw();
  }

  // Scroll to what is below the picture, or back if it is on top already.
  scrollBelow() {
    const host = this.root.getRootNode().host;
    const scroller = host?.closest("[data-testid=stMain]") ?? document.scrollingElement;
    const { top, bottom } = this.root.getBoundingClientRect();
    scroller.scrollBy({ top: bottom > 80 ? bottom - 40 : top - 60, behavior: "smooth" });
  }

  fitZoom() {
    const d = this.drawing;
    return Math.min(this.wide / d.width, this.high / d.height, 1.25);
  }

  // The view of the whole picture, centred.
  whole() {
    const { width, height } = this.drawing, zoom = this.fitZoom();
    return { zoom, x: (this.wide - width * zoom) / 2, y: (this.high - height * zoom) / 2 };
  }

  fit() {
    if (!this.drawing) return;
    Object.assign(this, this.whole());
    this.redraw();
  }

  // The whole picture if it is readable then, else its start at a readable size.
  firstView() {
    const d = this.drawing;
    if (!d.box.id.length) return;
    if (this.fitZoom() >= 0.5) { this.fit(); return; }
    this.zoom = clamp(this.wide / d.width, 0.5, 0.9);
    const room = d.width * this.zoom <= this.wide;
    this.x = room ? (this.wide - d.width * this.zoom) / 2 : this.wide / 2 - this.startMiddle() * this.zoom;
    this.y = 0;
    const forward = this.index.get("group:forward:");
    if (forward !== undefined) { // the backward may reach far above where the forward starts
      const { x, y, w } = d.box;
      this.y = 16 - y[forward] * this.zoom;
      if (!room) this.x = this.wide * 0.4 - (x[forward] + w[forward] / 2) * this.zoom;
    }
    this.redraw();
  }

  // The horizontal middle of the screenful with most nodes at the top of the picture.
  startMiddle() {
    const { box: { x, y, w }, width } = this.drawing;
    const limit = this.high / this.zoom, room = this.wide / this.zoom - 2 * EDGE;
    const first = this.solid.filter((i) => y[i] <= limit).sort((a, b) => x[a] - x[b]);
    let low = 0, most = 0, middle = width / 2;
    for (let high = 0; high < first.length; high++) {
      const end = x[first[high]] + w[first[high]];
      while (low < high && end - x[first[low]] > room) low += 1;
      if (high - low < most) continue;
      most = high - low + 1; middle = (x[first[low]] + end) / 2;
    }
    return middle;
  }

  // Slide the picture so that it fills the screen: centred if there is room for all of it, else
  // without an empty third on one side, inside the picture or beside it.
  fill() {
    const { box, width, height } = this.drawing;
    const slide = (size, room, at, from, extent) => {
      const seen = this.inSight();
      if (size * this.zoom <= room) return (room - size * this.zoom) / 2 - at;
      if (!seen.length) return 0;
      const low = Math.min(...seen.map((i) => from[i])) * this.zoom + at;
      const high = room - Math.max(...seen.map((i) => from[i] + extent[i])) * this.zoom - at;
      if (low > room / 3 && low > high) return 3 * EDGE - low;
      return high > room / 3 && high > low ? high - 3 * EDGE : 0;
    };
    this.x += slide(width, this.wide, this.x, box.x, box.w);
    this.y += slide(height, this.high, this.y, box.y, box.h);
  }

  // The nodes on the screen.
  inSight() {
    this.painter.see(0);
    return this.solid.filter(this.painter.seen);
  }

  zoomBy(factor, sx = this.wide / 2, sy = this.high / 2) {
    const next = clamp(this.zoom * factor, Math.min(0.05, this.fitZoom() / 2), MAX_ZOOM);
    const [wx, wy] = this.toWorld(sx, sy);
    this.zoom = next;
    this.x = sx - wx * next;
    this.y = sy - wy * next;
    this.tooltip.hide();
    this.redraw();
  }

  // The browser keeps the view of a drawing for this tab, over reloads of the page.
  rememberView() {
    const { view, family, width, height } = this.drawing ?? {};
    if (!view || !width) return;
    remember(view, { family, width, height, zoom: this.zoom, x: this.x, y: this.y });
  }

  // Restore the view if this very drawing was shown before; whether it was.
  recallView() {
    const d = this.drawing, kept = recall(d.view);
    if (!kept || ["family", "width", "height"].some((name) => kept[name] !== d[name])) return false;
    this.zoom = kept.zoom; this.x = kept.x; this.y = kept.y;
    return true;
  }

  // Width of the stage without the details card.
  free() {
    const shown = !this.side.classList.contains("hidden") && this.wide > 560;
    return this.wide - (shown ? this.side.offsetWidth + 16 : 0);
  }

  // Slide the picture as far as needed to show a box.
  reveal(i) {
    const { box } = this.drawing;
    const slide = (low, high, room) => (low < 24 ? 24 - low : high > room - 24
      ? Math.max(room - 24 - high, 24 - low) : 0);
    const left = box.x[i] * this.zoom + this.x, top = box.y[i] * this.zoom + this.y;
    const high = (box.open[i] ? Math.min(box.h[i], 60) : box.h[i]) * this.zoom;
    this.x += slide(left, left + box.w[i] * this.zoom, this.free());
    this.y += slide(top, top + high, this.table.open ? this.sheet.offsetTop : this.high);
    this.redraw();
  }

  center(i) {
    const { box } = this.drawing, high = box.open[i] ? Math.min(box.h[i], 200) : box.h[i];
    if (this.zoom < 0.6) this.zoom = 0.8;
    this.x = this.free() / 2 - (box.x[i] + box.w[i] / 2) * this.zoom;
    const room = this.table.open ? this.sheet.offsetTop : this.high;
    this.y = room / 2 - (box.y[i] + high / 2) * this.zoom;
    this.redraw();
  }
}
