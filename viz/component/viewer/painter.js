// The picture on the canvas: boxes, edges, words and marks.

import { CROSSING, LONG } from "./layout/curves.js";
import { HEADER, SUBTITLE, TITLE, TWO_LINES, sizeText } from "./layout/words.js";
import { clamp, Part } from "./parts.js";

const HEAVY = 1500; // boxes and edges in sight; from this many on, their picture is kept and moved
const AROUND = 0.25; // of the stage, as margin of a kept picture at each side
const AFTER = 120; // ms after the last zoom, when a scaled picture is drawn anew
const LEAST_SECOND = 7; // pixels on the screen; smaller second lines are left out
const LEAST_NAME = 9, FAR_NAME = 10.5; // pixels on the screen, of a module's name, and from afar
const MOST_NAMES = 400, FEW = 80; // names from afar that leave the picture visible; few modules
const MOST_FITS = 20000; // cached cut texts
const PIECE = 256; // lines stroked at once: of long paths each more costs more

export class Painter extends Part {
  fits = new Map(); // texts cut to their room
  kept = null; // a picture of many things, with its state: panning moves it
  names = []; // modules' names as they were drawn, with their sizes on the screen

  // Forget measured texts and kept pictures, for widths have changed.
  forget() { this.fits.clear(); this.kept = this.scene = null; }

  draw() {
    const v = this.viewer;
    if (!v.drawing) return;
    const colours = v.theme.look.surfaces;
    Object.assign(this, { box: v.drawing.box, edge: v.drawing.edge, colours });
    const scene = this.depends();
    if (!this.scene || scene.some((part, i) => part !== this.scene[i])) {
      this.scene = scene;
      this.lit = v.lit();
    }
    if (!this.moveKept()) {
      this.see(0);
      if (this.weight() > HEAVY) {
        this.keep();
        this.moveKept();
      } else {
        this.kept = null;
        this.paint(v.ctx, v.x, v.y);
      }
    }
    this.see(0);
    this.start(v.ctx, v.x, v.y, v.zoom);
    this.drawHover();
    v.minimap.drawFrame();
  }

  // Find what is in sight, with a margin around the stage.
  see(around) {
    const v = this.viewer, { box } = v.drawing;
    const [left, top] = v.toWorld(-around * v.wide, -around * v.high);
    const [right, bottom] = v.toWorld((1 + around) * v.wide, (1 + around) * v.high);
    this.seen = (i) => box.x[i] <= right && box.x[i] + box.w[i] >= left
      && box.y[i] <= bottom && box.y[i] + box.h[i] >= top;
    this.near = { left: left - 60, top: top - 60, right: right + 60, bottom: bottom + 60 };
  }

  // What a picture depends on, without its place and zoom.
  depends() {
    const { viewer: v } = this;
    return [v.drawing, v.byStyle, v.theme.look, v.theme.ground, v.shapes, v.finder.boxes, v.selected,
      v.walk.to, v.walk.reach, v.wide, v.high, v.ratio];
  }

  weight() {
    const { viewer: v, edge } = this;
    let count = 0;
    for (const i of v.solid) count += this.seen(i);
    for (let e = 0; e < edge.s.length; e++) count += this.isNear(e);
    return count;
  }

  isNear(e) {
    const { near, viewer: { bounds } } = this, b = e * 4;
    return bounds[b] <= near.right && bounds[b + 2] >= near.left
      && bounds[b + 1] <= near.bottom && bounds[b + 3] >= near.top;
  }

  // Draw what is in sight, with a margin around it, on a sheet that can be moved.
  keep() {
    const v = this.viewer, { ratio, drawing } = v;
    v.x = Math.round(v.x * ratio) / ratio; v.y = Math.round(v.y * ratio) / ratio;
    const whole = v.x >= 0 && v.x + drawing.width * v.zoom <= v.wide
      && v.y >= 0 && v.y + drawing.height * v.zoom <= v.high;
    const around = whole ? 0 : AROUND;
    const w = Math.ceil(v.wide * (1 + 2 * around) * ratio), h = Math.ceil(v.high * (1 + 2 * around) * ratio);
    let { sheet } = this;
    if (sheet?.width !== w || sheet.height !== h) sheet = this.sheet = new OffscreenCanvas(w, h);
    const x = v.x + around * v.wide, y = v.y + around * v.high;
    this.see(around);
    this.paint(sheet.getContext("2d"), x, y);
    this.kept = { sheet, x, y, zoom: v.zoom, scene: this.scene };
  }

  // Show the kept picture at its present place; false if it is out of date.
  moveKept() {
    const v = this.viewer, { kept, viewer: { ctx, ratio, drawing } } = this;
    if (!kept || kept.scene !== this.scene) return false;
    const by = v.zoom / kept.zoom;
    if (by < 0.5 || by > 2) return false;
    // The part of the picture that is in sight, on the stage, and where the sheet begins and ends.
    for (const [at, size, room, was, wide] of [
      [v.x, drawing.width, v.wide, kept.x, kept.sheet.width / ratio],
      [v.y, drawing.height, v.high, kept.y, kept.sheet.height / ratio]]) {
      const from = Math.max(0, at), to = Math.min(room, at + size * v.zoom);
      const start = at - was * by, end = start + wide * by;
      if (from < to && (start > from + 1 || end < to - 1)) return false;
    }
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.fillStyle = v.theme.ground;
    ctx.fillRect(0, 0, v.main.width, v.main.height);
    const x = (v.x - kept.x * by) * ratio, y = (v.y - kept.y * by) * ratio;
    if (by === 1) ctx.drawImage(kept.sheet, Math.round(x), Math.round(y));
    else {
      ctx.drawImage(kept.sheet, x, y, kept.sheet.width * by, kept.sheet.height * by);
      clearTimeout(this.sharpening);
      this.sharpening = setTimeout(() => { this.kept = null; v.redraw(); }, AFTER);
    }
    return true;
  }

  start(ctx, x, y, zoom) {
    const { ratio } = this.viewer;
    ctx.setTransform(ratio * zoom, 0, 0, ratio * zoom, ratio * x, ratio * y);
    Object.assign(this, { ctx, zoom });
  }

  // All that is in sight, except what the pointer is on.
  paint(ctx, x, y) {
    const v = this.viewer;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.fillStyle = v.theme.ground;
    ctx.fillRect(0, 0, ctx.canvas.width, ctx.canvas.height);
    this.start(ctx, x, y, v.zoom);
    this.drawOpenGroups();
    this.drawEdges();
    const text = clamp((TITLE * v.zoom - 3.5) / 2.5, 0, 1);
    this.drawSolid();
    if (text > 0) this.drawText(text);
    this.drawNames();
    if (v.shapes && v.zoom > 0.5) this.drawShapes();
    for (const i of v.finder.boxes) if (this.seen(i)) this.ring(i, this.colours.match, 3, 3.5);
    if (this.lit) this.ring(this.lit.at, this.colours.select, 2.4, 2.5);
  }

  path(i) {
    const { box, ctx } = this;
    const x = box.x[i], y = box.y[i], w = box.w[i], h = box.h[i];
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

  drawOpenGroups() {
    const { viewer: v, box, ctx, seen, colours } = this;
    ctx.lineWidth = Math.max(1, 0.6 / v.zoom);
    ctx.strokeStyle = colours.groupStroke;
    ctx.fillStyle = colours.group; // see-through: each level shades the one around it
    const far = v.zoom < 0.12, dot = 1 / v.zoom;
    for (const i of v.open) {
      if (!seen(i)) continue;
      if (far) {
        if (box.w[i] < dot && box.h[i] < dot) continue;
        ctx.fillRect(box.x[i], box.y[i], box.w[i], box.h[i]);
        ctx.strokeRect(box.x[i], box.y[i], box.w[i], box.h[i]);
        continue;
      }
      ctx.beginPath();
      ctx.roundRect(box.x[i], box.y[i], box.w[i], box.h[i], 10);
      ctx.fill(); ctx.stroke();
    }
  }

  // Modules' names: one too small in its frame goes over it, if no name around it is there.
  drawNames() {
    const { viewer: v, box, zoom, seen } = this;
    const taken = this.names = []; // places of names; those of outer groups come first
    const free = (x, y, w, h) => !taken.some((at) => x < at.x + at.w && at.x < x + w
      && y < at.y + at.h && at.y < y + h);
    this.named = new Set(); // groups
    const closed = v.solid.filter((i) => box.kind[i] && seen(i));
    const crowded = v.open.length + closed.length > FEW;
    for (const i of v.open) {
      if (!seen(i)) continue;
      const scale = v.headerScale(i), small = TITLE * scale * zoom < LEAST_NAME;
      if (small || scale > 1 && this.header(i, scale) !== box.lines[i][0]) {
        if (this.nameFar(i, free, crowded) || small) continue;
      }
      const x = box.x[i], y = box.y[i], w = Math.min(box.w[i], 150 * scale), h = HEADER * scale;
      if (!free(x, y + h * 0.25, w, h * 0.5)) { this.nameFar(i, free, crowded); continue; }
      taken.push({ i, x, y: y + h * 0.25, w, h: h * 0.5, size: TITLE * scale * zoom });
      this.named.add(box.group[i]);
      this.drawHeader(i, scale);
    }
    for (const i of closed) {
      const size = TITLE * v.nameScale() * zoom;
      if (size < LEAST_NAME) this.nameFar(i, free, crowded);
      else taken.push({ i, x: box.x[i], y: box.y[i], w: box.w[i], h: box.h[i], size });
    }
  }

  // A module's name, cut to the room in its frame.
  header(i, scale) {
    const { viewer: v, box } = this, beside = v.aloneMark(i) ? 74 : 44;
    return this.short(box.lines[i][0], box.w[i] / scale - beside, `600 ${TITLE}px ${v.theme.font}`);
  }

  drawHeader(i, scale) {
    const { viewer: v, box, ctx, colours } = this;
    ctx.save();
    ctx.textAlign = "left"; ctx.textBaseline = "middle";
    ctx.translate(box.x[i], box.y[i]);
    ctx.scale(scale, scale);
    this.sign(10, HEADER / 2, true);
    const name = this.header(i, scale);
    ctx.font = `600 ${TITLE}px ${v.theme.font}`;
    ctx.strokeStyle = v.theme.ground; ctx.lineWidth = 3; ctx.lineJoin = "round";
    ctx.strokeText(name, 30, HEADER / 2 + 0.5); // edges may pass behind it
    ctx.fillStyle = colours.groupText;
    ctx.fillText(name, 30, HEADER / 2 + 0.5);
    const end = 40 + ctx.measureText(name).width;
    ctx.restore();
    if (box.w[i] - end * scale > 190) this.drawCaptures(i, box.x[i] + end * scale + 130, box.y[i] + HEADER / 2 * scale, 1, false);
    this.aloneSign(i, colours.groupText);
  }

  // Draw a module's name from afar: over its box, or beside that, if it covers no other; with many
  // modules only if it is about as wide as its box. Returns whether it was drawn.
  nameFar(i, free, crowded) {
    const { viewer: v, box, ctx, zoom, colours, names } = this;
    const near = Math.max(box.w[i], box.h[i]) * zoom;
    if (near < LEAST_NAME || names.length > MOST_NAMES) return false; // a dot of the picture
    const font = `600 ${FAR_NAME}px ${v.theme.font}`;
    const text = box.lines[i][0], key = `far|${text}`;
    let wide = this.fits.get(key);
    if (wide === undefined) {
      ctx.font = font;
      this.fits.set(key, wide = ctx.measureText(text).width + 6);
    }
    if (crowded) { // outer modules first: "self" says little without the layer's name
      const { parent } = v.drawing.groups[box.group[i]];
      const most = box.depth[i] < 2 ? 2.5 : 1.5;
      if (wide > most * box.w[i] * zoom || (parent && !this.named.has(parent))) return false;
    }
    const w = wide / zoom, h = (FAR_NAME + 3) / zoom, y = box.y[i];
    const signed = box.open[i] && zoom >= 0.25; // it can be closed there
    const x = box.x[i] + (signed ? 28 : 0);
    const middle = x + (box.w[i] - w) / 2;
    const places = box.open[i] ? [[x, y], [middle, y], [x + box.w[i] - w, y], [x, y + h],
      [middle, y + h], [x, y - h], [middle, y - h], [middle, y + box.h[i] - h], [x, y + 2 * h],
      [x + box.w[i], y], [x - w, y]]
      : [[middle, y + (box.h[i] - h) / 2], [middle, y - h], [middle, y + box.h[i]], [x, y + box.h[i]],
        [x + box.w[i] - w, y - h], [x + box.w[i], y], [x - w, y]];
    const at = places.find(([left, top]) => free(left, top, w, h));
    if (!at) return false;
    names.push({ i, x: at[0], y: at[1], w, h, size: FAR_NAME });
    this.named.add(box.group[i]);
    ctx.save();
    if (signed) this.sign(box.x[i] + 10, y + HEADER / 2, true);
    ctx.translate(at[0], at[1]);
    ctx.scale(1 / zoom, 1 / zoom);
    ctx.font = font; ctx.textAlign = "left"; ctx.textBaseline = "middle";
    ctx.globalAlpha = 0.85;
    ctx.fillStyle = v.theme.ground;
    ctx.beginPath(); ctx.roundRect(0, 0, wide, FAR_NAME + 3, 3); ctx.fill();
    ctx.globalAlpha = 1;
    ctx.fillStyle = box.open[i] ? colours.groupText : v.theme.styleOf(box.style[i]).text;
    ctx.fillText(text, 3, (FAR_NAME + 3) / 2 + 0.5);
    ctx.restore();
    return true;
  }

  // An arrow out of a frame, which opens the module alone; on a closed one only under the pointer.
  aloneSign(i, colour) {
    const { viewer: v, ctx } = this, at = v.aloneMark(i);
    if (!at) return;
    ctx.save();
    ctx.translate(at.x, at.y);
    ctx.scale(at.scale, at.scale);
    ctx.lineWidth = 1.2; ctx.strokeStyle = colour; ctx.fillStyle = v.theme.ground;
    ctx.beginPath(); ctx.roundRect(0, -7, 14, 14, 3.5); ctx.fill(); ctx.stroke();
    ctx.beginPath(); ctx.moveTo(4, 3.5); ctx.lineTo(10, -3); ctx.moveTo(5.5, -3.5);
    ctx.lineTo(10.5, -3.5); ctx.lineTo(10.5, 1.5); ctx.stroke();
    ctx.restore();
  }

  sign(x, y, minus) {
    const { viewer: v, ctx, colours } = this;
    ctx.lineWidth = 1.2;
    ctx.strokeStyle = minus ? colours.groupText : colours.closedText;
    ctx.fillStyle = v.theme.ground;
    ctx.beginPath(); ctx.roundRect(x, y - 7, 14, 14, 3.5); ctx.fill(); ctx.stroke();
    ctx.beginPath(); ctx.moveTo(x + 3.5, y); ctx.lineTo(x + 10.5, y);
    if (!minus) { ctx.moveTo(x + 7, y - 3.5); ctx.lineTo(x + 7, y + 3.5); }
    ctx.stroke();
  }

  // Whether an edge runs up and down, and not across.
  down(e) { return this.edge.kind[e] !== CROSSING; }

  // Trace the visible part of an edge; a beginning that edges share only once.
  trace(e, low, whole) {
    const { edge, ctx, near, viewer: { parting } } = this;
    const p = edge.p[e], n = p.length;
    const down = this.down(e);
    let drawing = false;
    for (let i = (whole ? 0 : parting[e]) + 2; i < n; i += 2) {
      const x0 = p[i - 2], y0 = p[i - 1], x1 = p[i], y1 = p[i + 1];
      if ((x0 > near.right && x1 > near.right) || (x0 < near.left && x1 < near.left)
        || (y0 > near.bottom && y1 > near.bottom) || (y0 < near.top && y1 < near.top)) {
        drawing = false;
        continue;
      }
      if (!drawing) { ctx.moveTo(x0, y0); drawing = true; }
      if (low || x0 === x1 || y0 === y1) {
        // A corner between straight pieces is round.
        const turns = !low && i + 2 < n && (x0 === x1 ? y1 === p[i + 3] && y0 !== y1
          : x1 === p[i + 2]);
        if (turns) {
          const room = Math.min(Math.abs(x1 - x0) + Math.abs(y1 - y0),
            Math.abs(p[i + 2] - x1) + Math.abs(p[i + 3] - y1)) / 2;
          ctx.arcTo(x1, y1, p[i + 2], p[i + 3], Math.min(8, room));
        } else ctx.lineTo(x1, y1);
      } else {
        const right = down ? 0 : (x1 - x0) * 0.5, under = down ? (y1 - y0) * 0.5 : 0;
        ctx.bezierCurveTo(x0 + right, y0 + under, x1 - right, y1 - under, x1, y1);
      }
    }
  }

  drawEdges() {
    const { viewer: { bounds }, edge, ctx, zoom, lit, colours } = this;
    const plain = [], long = [], crossing = [], into = [], outOf = [];
    const dot = 0.7 / zoom; // shorter pieces are no line on the screen
    for (let e = 0; e < edge.s.length; e++) {
      const b = e * 4;
      if (!this.isNear(e)) continue;
      if (lit?.into.has(e)) into.push(e);
      else if (lit?.outOf.has(e)) outOf.push(e);
      else if (bounds[b + 2] - bounds[b] < dot && bounds[b + 3] - bounds[b + 1] < dot) continue;
      else if (edge.kind[e] === CROSSING) crossing.push(e);
      else if (edge.kind[e] === LONG) long.push(e);
      else plain.push(e);
    }
    const dim = lit ? 0.22 : 1;
    const many = plain.length + long.length + crossing.length > 3000 ? 0.7 : 1;
    ctx.globalAlpha = 0.3 * dim; this.lines(long, colours.edge, 1);
    ctx.globalAlpha = (crossing.length > 60 ? 0.3 : 0.55) * dim;
    this.lines(crossing, colours.crossing, 1.1);
    ctx.globalAlpha = dim * many; this.lines(plain, colours.edge, 1.3);
    ctx.globalAlpha = 1;
    this.lines(into, colours.incoming, 2.2, true);
    this.lines(outOf, colours.outgoing, 2.2, true);
  }

  // Draw a few lines in a colour of their own.
  lines(list, colour, width, whole = false) {
    if (!list.length) return;
    const { ctx, zoom } = this, low = zoom < 0.12;
    ctx.strokeStyle = ctx.fillStyle = colour;
    ctx.lineWidth = Math.max(width, Math.min(0.7 / zoom, 6));
    for (let from = 0; from < list.length; from += PIECE) {
      const some = list.slice(from, from + PIECE);
      ctx.beginPath();
      for (const e of some) this.trace(e, low, whole);
      ctx.stroke();
      if (zoom <= 0.3) continue;
      ctx.beginPath();
      for (const e of some) this.arrow(e, width);
      ctx.fill();
    }
  }

  arrow(e, width) {
    const { edge, ctx } = this;
    const p = edge.p[e], n = p.length;
    const x = p[n - 2], y = p[n - 1];
    const down = this.down(e);
    const size = 5.5 + width, half = 2.6 + width * 0.7;
    const way = down ? Math.sign(y - p[n - 3]) || 1 : Math.sign(x - p[n - 4]) || 1;
    ctx.moveTo(x, y);
    if (down) { ctx.lineTo(x - half, y - way * size); ctx.lineTo(x + half, y - way * size); }
    else { ctx.lineTo(x - way * size, y - half); ctx.lineTo(x - way * size, y + half); }
    ctx.closePath();
  }

  drawSolid() {
    const { viewer: v, box, ctx, zoom, seen, lit } = this;
    const low = zoom < 0.18;
    const line = Math.max(1.2, Math.min(0.8 / zoom, 5));
    for (const [key, list] of v.byStyle) {
      const look = v.theme.styleOf(key);
      for (const bright of lit ? [false, true] : [true]) {
        const some = list.filter((i) => seen(i) && (!lit || lit.boxes.has(i) === bright));
        if (low) this.drawFar(some, look, line, bright);
        if (low || !some.length) continue;
        ctx.beginPath();
        for (const i of some) this.path(i);
        // Dimmed boxes stay opaque underneath, so that edges do not shine through their text.
        if (!bright) { ctx.fillStyle = v.theme.ground; ctx.fill(); ctx.globalAlpha = 0.3; }
        ctx.fillStyle = look.fill; ctx.strokeStyle = look.stroke;
        ctx.lineWidth = look.thick ? line * 2.2 : line;
        ctx.setLineDash(look.dash ?? []);
        ctx.fill(); ctx.stroke();
        ctx.globalAlpha = 1;
      }
    }
    ctx.setLineDash([]);
    if (low) return;
    for (const i of v.solid) {
      if (!seen(i)) continue;
      const fade = ctx.globalAlpha = lit && !lit.boxes.has(i) ? 0.3 : 1;
      if (box.kind[i] || box.shape[i] === "double") {
        // A closed group is a stack of sheets, a fused function has a double outline.
        ctx.lineWidth = line * 0.8;
        ctx.strokeStyle = v.theme.styleOf(box.style[i]).stroke;
        ctx.beginPath();
        if (box.kind[i]) {
          const x = box.x[i], y = box.y[i] + box.h[i], w = box.w[i];
          ctx.moveTo(x + 6, y + 3); ctx.lineTo(x + w - 6, y + 3);
          ctx.moveTo(x + 12, y + 6); ctx.lineTo(x + w - 12, y + 6);
        } else ctx.roundRect(box.x[i] + 3, box.y[i] + 3, box.w[i] - 6, box.h[i] - 6, 4);
        ctx.stroke();
      }
      if (box.shape[i] === "box" && (box.role[i] || !box.kind[i])) {
        // A sign beside the colour: a bar at the left, the right or both sides for forward,
        // captured or backward, whatever the colour means.
        const look = v.theme.styleOf(box.role[i] || box.style[i]);
        ctx.fillStyle = look.stroke;
        ctx.beginPath();
        if (look.side !== "right") ctx.roundRect(box.x[i], box.y[i], 5, box.h[i], [6, 0, 0, 6]);
        if (look.side === "right" || look.side === "both") {
          ctx.roundRect(box.x[i] + box.w[i] - 5, box.y[i], 5, box.h[i], [0, 6, 6, 0]);
        }
        ctx.fill();
      }
      ctx.globalAlpha = 1;
      if (box.kind[i]) this.drawCaptures(i, box.x[i] + box.w[i] - 6, box.y[i] + box.h[i], fade, true);
    }
  }

  // Boxes of a style from afar: only rectangles with an edge, so that many cost little.
  drawFar(list, look, line, bright) {
    const { viewer: v, box, ctx, zoom } = this;
    const edge = (look.thick ? 2.2 : 1) * line, least = 0.8 / zoom;
    const dots = new Set(); // one box is drawn for each
    const shown = list.filter((i) => {
      if (box.w[i] > least || box.h[i] > least) return true;
      const dot = Math.round(box.x[i] / least) * 65536 + Math.round(box.y[i] / least);
      return !dots.has(dot) && dots.add(dot);
    });
    const fill = (colour, by, alpha) => {
      ctx.globalAlpha = alpha;
      ctx.fillStyle = colour;
      for (const i of shown) {
        const w = box.w[i] - 2 * by, h = box.h[i] - 2 * by;
        if (!by) ctx.fillRect(box.x[i], box.y[i], Math.max(w, least), Math.max(h, least));
        else if (h > 1.5 * least) ctx.fillRect(box.x[i] + by, box.y[i] + by, w, h);
      }
      ctx.globalAlpha = 1;
    };
    if (!bright) fill(v.theme.ground, 0, 1);
    fill(look.stroke, 0, bright ? 1 : 0.3);
    fill(look.fill, edge / 2, bright ? 1 : 0.3);
  }

  // On a group, the number and bytes of tensors captured in it; a closed one has a blue edge.
  drawCaptures(i, right, middle, fade, closed) {
    const { viewer: v, box, ctx, zoom } = this, found = v.captures.get(box.group[i]);
    if (!found) return;
    const look = v.theme.styleOf("captured");
    ctx.globalAlpha = fade;
    ctx.strokeStyle = ctx.fillStyle = look.stroke;
    if (closed && v.overlays.active.styles) {
      ctx.lineWidth = Math.max(2, 1.6 / zoom);
      ctx.beginPath();
      this.path(i);
      ctx.stroke();
      ctx.beginPath();
      ctx.roundRect(box.x[i] + box.w[i] - 6, box.y[i], 6, box.h[i], [0, 6, 6, 0]);
      ctx.fill();
    }
    if (SUBTITLE * zoom >= 5) {
      const text = `${found.count} saved · ${sizeText(found.bytes)}`;
      ctx.font = `600 10px ${v.theme.font}`;
      const w = ctx.measureText(text).width + 12;
      const left = Math.max(right - w, box.x[i] + 4);
      ctx.beginPath(); ctx.roundRect(left, middle - 8, w, 16, 8);
      ctx.fillStyle = look.stroke; ctx.fill();
      ctx.fillStyle = v.theme.ground;
      ctx.textAlign = "left"; ctx.textBaseline = "middle";
      ctx.fillText(text, left + 6, middle + 0.5);
    }
    ctx.globalAlpha = 1;
  }

  drawText(fade) {
    const { viewer: v, box, ctx, zoom, seen, lit } = this;
    const legible = SUBTITLE * zoom >= LEAST_SECOND;
    ctx.textBaseline = "middle";
    const visible = v.solid.filter(seen);
    const hasSecond = (i) => box.lines[i].length > 1 && box.h[i] >= TWO_LINES;
    const bold = `600 ${TITLE}px ${v.theme.font}`, plain = `${SUBTITLE}px ${v.theme.font}`;
    const place = (i, second) => {
      const group = box.kind[i];
      ctx.textAlign = group ? "left" : "center";
      const x = group ? box.x[i] + 34 : box.x[i] + box.w[i] / 2 + (box.shape[i] === "box" ? 2 : 0);
      const middle = box.y[i] + box.h[i] / 2;
      const two = legible && hasSecond(i);
      return [x, second ? middle + 9 : two ? middle - 7.5 : middle + 0.5];
    };
    const room = (i) => box.w[i] - (box.kind[i] ? 44 : box.shape[i] === "ellipse" ? 22 : 16);
    const colour = (i) => v.theme.styleOf(box.style[i]).text;
    ctx.font = bold;
    for (const i of visible) {
      ctx.globalAlpha = fade * (lit && !lit.boxes.has(i) ? 0.4 : 1);
      ctx.fillStyle = colour(i);
      const at = place(i, false);
      const larger = box.kind[i] ? v.nameScale() : 1;
      const words = this.short(box.lines[i][0], room(i) / larger, bold);
      ctx.font = larger > 1 ? `600 ${TITLE * larger}px ${v.theme.font}` : bold;
      if (larger > 1) at[1] = box.y[i] + box.h[i] / 2;
      ctx.fillText(words, ...at);
      if (box.kind[i]) this.sign(box.x[i] + 10, box.y[i] + box.h[i] / 2, false);
    }
    ctx.font = `700 9.5px ${v.theme.font}`;
    ctx.textAlign = "right";
    for (const i of visible) {
      const { mark } = v.theme.styleOf(box.style[i]);
      const { side } = v.theme.styleOf(box.role[i] || box.style[i]);
      if (!mark || !legible || box.shape[i] === "ellipse") continue;
      ctx.globalAlpha = fade * (lit && !lit.boxes.has(i) ? 0.4 : 1);
      ctx.fillStyle = colour(i);
      ctx.fillText(mark, box.x[i] + box.w[i] - (side === "left" || !side ? 5 : 9), box.y[i] + 9);
    }
    ctx.globalAlpha = 1;
    if (!legible) return;
    ctx.font = plain;
    for (const i of visible) {
      if (!hasSecond(i) || (box.kind[i] && v.nameScale() > 1)) continue;
      ctx.globalAlpha = fade * (lit && !lit.boxes.has(i) ? 0.45 : 1);
      ctx.fillStyle = colour(i);
      const at = place(i, true);
      ctx.fillText(this.short(box.lines[i][1], room(i), plain), ...at);
    }
    ctx.globalAlpha = 1;
  }

  // A text, cut to fit; measured once for each width.
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
      if (this.fits.size > MOST_FITS) this.fits.clear(); // each zoom has widths of its own
      this.fits.set(key, fitting);
    }
    return fitting;
  }

  // One label for each value, where it leaves its node; at its reader if a group hides the node.
  drawShapes() {
    const { viewer: { theme }, box, edge, ctx, near, lit, colours } = this;
    ctx.font = `${SUBTITLE - 0.5}px ${theme.font}`;
    ctx.textBaseline = "middle"; ctx.textAlign = "left";
    const taken = [], done = new Set();
    for (let e = 0; e < edge.s.length; e++) {
      const p = edge.p[e], text = edge.label[e];
      const hidden = box.kind[edge.s[e]];
      if (!text || (!hidden && done.has(edge.s[e]))) continue;
      const last = p.length - 2;
      const back = this.down(e) && p[last + 1] < p[1];
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
      ctx.fillStyle = theme.ground;
      ctx.fillRect(x - 2, y - 6, w + 4, 12);
      ctx.globalAlpha = 1;
      ctx.fillStyle = colours.edgeText;
      ctx.fillText(text, x, y + 0.5);
    }
  }

  ring(i, colour, width, out) {
    const { box, ctx, zoom } = this, grow = out / Math.min(1, Math.max(zoom, 0.1));
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
  }

  // Draw what the pointer is on, with its edges, over all else, so that the rest can stay.
  drawHover() {
    const { viewer: v, box, lit, colours } = this, i = v.hover;
    if (i < 0) return;
    this.lines(v.into[i].filter((e) => this.isNear(e)), colours.incoming, 2.2, true);
    this.lines(v.outOf[i].filter((e) => this.isNear(e)), colours.outgoing, 2.2, true);
    if (i !== lit?.at) this.ring(i, colours.select, 1.2, 1);
    if (box.kind[i] && !box.open[i]) this.aloneSign(i, colours.closedText);
  }
}
