// The whole picture in a corner, with a frame around the part on the screen.

import { clamp, Part } from "./parts.js";

export class Minimap extends Part {
  draw() {
    const v = this.viewer, d = v.drawing;
    if (!d || !d.box.id.length) { v.map.classList.add("hidden"); return; }
    const ratio = window.devicePixelRatio || 1;
    const scale = Math.min(150 / d.width, 150 / d.height);
    const w = Math.max(34, Math.ceil(d.width * scale)), h = Math.max(34, Math.ceil(d.height * scale));
    this.scale = scale; this.size = [w, h];
    this.shift = [(w - d.width * scale) / 2, (h - d.height * scale) / 2];
    v.map.width = w * ratio; v.map.height = h * ratio;
    v.map.style.width = w + "px"; v.map.style.height = h + "px";
    const sheet = this.sheet = new OffscreenCanvas(w * ratio, h * ratio);
    const ctx = sheet.getContext("2d");
    ctx.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * this.shift[0],
      ratio * this.shift[1]);
    const colours = v.theme.look.surfaces, { box } = d;
    ctx.fillStyle = colours.group;
    for (const i of v.open) ctx.fillRect(box.x[i], box.y[i], box.w[i], box.h[i]);
    ctx.strokeStyle = colours.groupStroke;
    ctx.lineWidth = 0.6 / scale;
    for (const i of v.open) ctx.strokeRect(box.x[i], box.y[i], box.w[i], box.h[i]);
    for (const i of v.solid) {
      ctx.fillStyle = v.theme.styleOf(box.style[i]).stroke;
      ctx.fillRect(box.x[i], box.y[i], box.w[i], Math.max(box.h[i], 0.7 / scale));
    }
  }

  drawFrame() {
    const v = this.viewer, d = v.drawing;
    const all = v.x >= -1 && v.y >= -1 && v.x + d.width * v.zoom <= v.wide + 1
      && v.y + d.height * v.zoom <= v.high + 1;
    const hide = all || v.wide < 480 || !d.box.id.length;
    v.map.classList.toggle("hidden", hide);
    if (hide || !this.sheet) return;
    const ctx = v.map.getContext("2d"), ratio = window.devicePixelRatio || 1, [w, h] = this.size;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, v.map.width, v.map.height);
    ctx.drawImage(this.sheet, 0, 0);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const [x0, y0] = v.toWorld(0, 0), [x1, y1] = v.toWorld(v.wide, v.high);
    const at = (x, y) => [clamp(x * this.scale + this.shift[0], 1, w - 1),
      clamp(y * this.scale + this.shift[1], 1, h - 1)];
    const [a, b] = at(x0, y0), [c, e] = at(x1, y1);
    ctx.strokeStyle = v.theme.look.surfaces.select;
    ctx.lineWidth = 1.5;
    ctx.strokeRect(a, b, Math.max(2, c - a), Math.max(2, e - b));
  }

  moveTo(e) {
    const v = this.viewer, box = v.map.getBoundingClientRect();
    const wx = (e.clientX - box.left - this.shift[0]) / this.scale;
    const wy = (e.clientY - box.top - this.shift[1]) / this.scale;
    v.x = v.free() / 2 - wx * v.zoom;
    v.y = v.high / 2 - wy * v.zoom;
    v.redraw();
  }
}
