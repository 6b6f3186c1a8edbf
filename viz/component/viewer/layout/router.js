// Ways around boxes, for lines that would otherwise cross them.
//
// A way has straight pieces along and across, close to the sides of near boxes. The search is Hart,
// Nilsson and Raphael's A* (1968); a turn, and running along another line, each cost some pixels.

import { meets } from "./curves.js";

const CLEAR = 7, TURN = 40, BESIDE = 3, CELL = 256;
const EFFORT = 6e6; // most crossings of lines to look at in one picture, to save time
const NEAR = 2500; // pixels; a way between points further apart is searched box by box
const HOPS = 400; // around boxes, of one way

export class Router {
  // boxes: rectangles {x, y, w, h} by number; all are obstacles.
  constructor(boxes) {
    this.boxes = boxes;
    this.effort = EFFORT;
    this.cells = new Map();
    this.taken = new Map(); // by "x" or "y" and place: stretches of other lines, [from, to, value]
    boxes.forEach((box, b) => {
      if (box) this.each(box.x, box.y, box.x + box.w, box.y + box.h, (cell) => {
        if (this.cells.has(cell)) this.cells.get(cell).push(b); else this.cells.set(cell, [b]);
      });
    });
  }

  each(x0, y0, x1, y1, visit) {
    const left = Math.floor(x0 / CELL), right = Math.floor(x1 / CELL);
    const bottom = Math.floor(y1 / CELL);
    for (let j = Math.floor(y0 / CELL); j <= bottom; j++) {
      for (let i = left; i <= right; i++) visit(i * 65536 + j);
    }
  }

  near(x0, y0, x1, y1) {
    const found = new Set();
    this.each(x0, y0, x1, y1, (cell) => {
      for (const b of this.cells.get(cell) ?? []) {
        const box = this.boxes[b];
        if (box.x <= x1 && box.x + box.w >= x0 && box.y <= y1 && box.y + box.h >= y0) found.add(b);
      }
    });
    return [...found];
  }

  // Whether a line (x and y in turn) keeps off all boxes but the `own` ones.
  free(line, own, off = 2) {
    for (let i = 2; i < line.length; i += 2) {
      if (this.blocked(line[i - 2], line[i - 1], line[i], line[i + 1], own, off)) return false;
    }
    return true;
  }

  blocked(x0, y0, x1, y1, own, off) {
    const { cells, boxes } = this;
    const [left, right] = x0 < x1 ? [x0 - off, x1 + off] : [x1 - off, x0 + off];
    const [top, bottom] = y0 < y1 ? [y0 - off, y1 + off] : [y1 - off, y0 + off];
    const last = Math.floor(bottom / CELL), end = Math.floor(right / CELL);
    for (let j = Math.floor(top / CELL); j <= last; j++) {
      for (let i = Math.floor(left / CELL); i <= end; i++) {
        const cell = cells.get(i * 65536 + j);
        if (!cell) continue;
        for (const b of cell) {
          const { x, y, w, h } = boxes[b];
          if (x > right || x + w < left || y > bottom || y + h < top || own.includes(b)) continue;
          if (meets(x0, y0, x1, y1, x - off, y - off, x + w + off, y + h + off)) return true;
        }
      }
    }
    return false;
  }

  // The first box that a line across, from x0 to x1, comes too near; -1 if there is none.
  first(x0, x1, y) {
    const { cells, boxes } = this, off = CLEAR - 0.5, way = x1 < x0 ? -1 : 1;
    const low = Math.floor((y - off) / CELL), high = Math.floor((y + off) / CELL);
    const [left, right] = way > 0 ? [x0, x1] : [x1, x0];
    const last = Math.floor((way > 0 ? x1 + off : x1 - off) / CELL);
    for (let i = Math.floor((x0 - way * off) / CELL); way * (last - i) >= 0; i += way) {
      let found = -1, near = Infinity;
      for (let j = low; j <= high; j++) {
        for (const b of cells.get(i * 65536 + j) ?? []) {
          const box = boxes[b];
          if (box.y >= y + off || box.y + box.h <= y - off) continue;
          if (box.x >= right + off || box.x + box.w <= left - off) continue;
          const side = way * (way > 0 ? box.x : box.x + box.w);
          if (side < near) { near = side; found = b; }
        }
      }
      if (found >= 0) return found;
    }
    return -1;
  }

  // A way to any height of the vertical line at `ex`: straight, and around each box in its way.
  across(sx, sy, ex, value) {
    const line = [sx, sy], way = ex < sx ? -1 : 1;
    let x = sx, y = sy;
    for (let hop = 0; hop < HOPS; hop++) {
      const b = this.first(x, ex, y);
      if (b < 0) return corners([...line, ex, y]);
      const { x: left, w } = this.boxes[b];
      const [before, after] = way > 0 ? [left, left + w + CLEAR] : [left + w, left - CLEAR];
      const beyond = way * (ex - after) < 0 ? ex : after;
      let found = null;
      for (const [back, room] of [[8, 80], [60, 80], [8, 400], [250, 400], [60, 1500], [600, 1500]]) {
        const start = way * (before - way * back - x) > 0 ? before - way * back : x;
        if (way * (beyond - start) <= 0) continue;
        found = this.way(start, y, beyond, null, value, room);
        if (found) break;
      }
      if (!found) return null;
      line.push(...found);
      x = line[line.length - 2]; y = line[line.length - 1];
    }
    return null;
  }

  // The same boxes with across and along swapped.
  get other() {
    this.changed ??= new Router(this.boxes.map((box) =>
      box && { x: box.y, y: box.x, w: box.h, h: box.w }));
    return this.changed;
  }

  // A way between two points at any distance.
  between(sx, sy, ex, ey, value) {
    if (Math.abs(ex - sx) + Math.abs(ey - sy) < NEAR) {
      for (const room of [60, 240, 1000]) {
        const found = this.way(sx, sy, ex, ey, value, room);
        if (found) return found;
      }
    }
    const down = ey < sy ? -1 : 1;
    for (const short of [20, 60, 200, 600]) { // first along, then across near the end
      const stop = down * (ey - down * short - sy) > 0 ? ey - down * short : sy;
      const along = stop === sy ? [sy, sx] : this.other.across(sy, sx, stop, value);
      if (!along) continue;
      const [y, x] = along.slice(-2);
      const over = this.across(x, y, ex, value);
      if (!over) continue;
      const [ox, oy] = over.slice(-2);
      for (const room of [60, 240, 1000]) {
        const end = this.way(ox, oy, ex, ey, value, room);
        if (end) return corners([...turned(along), ...over, ...end]);
      }
    }
    return null;
  }

  // Remember a line, so that those of other values keep clear of it.
  take(line, value) {
    for (let i = 2; i < line.length; i += 2) {
      const [x0, y0, x1, y1] = [line[i - 2], line[i - 1], line[i], line[i + 1]];
      if (x0 !== x1 && y0 !== y1) continue;
      const [key, a, b] = x0 === x1 ? [`x${Math.round(x0)}`, y0, y1] : [`y${Math.round(y0)}`, x0, x1];
      const piece = [Math.min(a, b), Math.max(a, b), value];
      if (this.taken.has(key)) this.taken.get(key).push(piece); else this.taken.set(key, [piece]);
    }
  }

  // A way within `room` to a point, or any height of a line if `ey` is null; null without one.
  way(sx, sy, ex, ey, value, room) {
    const gy = ey ?? sy;
    const left = Math.min(sx, ex) - (ey === null ? 4 : room), right = Math.max(sx, ex) + (ey === null ? 4 : room);
    const top = Math.min(sy, gy) - room, bottom = Math.max(sy, gy) + room;
    const found = this.near(left, top, right, bottom).map((b) => this.boxes[b]);
    const steps = found.length > 60 ? [0] : [0, 6];
    const xs = new Set([sx, ex]), ys = new Set([sy, gy]);
    for (const { x, y, w, h } of found) for (const step of steps) {
      const off = CLEAR + step;
      for (const at of [x - off, x + w + off]) if (at > left && at < right) xs.add(at);
      for (const at of [y - off, y + h + off]) if (at > top && at < bottom) ys.add(at);
    }
    const X = Float64Array.from(xs).sort(), Y = Float64Array.from(ys).sort();
    const nx = X.length, ny = Y.length;
    this.effort -= nx * ny;
    if (this.effort < 0) return null;
    const across = new Uint8Array(nx * ny), along = new Uint8Array(nx * ny); // blocked to the next
    const first = (list, value_) => { // the first at or after
      let a = 0, b = list.length;
      while (a < b) { const m = (a + b) >> 1; if (list[m] < value_) a = m + 1; else b = m; }
      return a;
    };
    for (const { x, y, w, h } of found) {
      const off = CLEAR - 1;
      const i0 = first(X, x - off), i1 = first(X, x + w + off);
      const j0 = first(Y, y - off), j1 = first(Y, y + h + off);
      for (let j = j0; j < j1; j++) for (let i = Math.max(0, i0 - 1); i < i1; i++) across[j * nx + i] = 1;
      for (let i = i0; i < i1; i++) for (let j = Math.max(0, j0 - 1); j < j1; j++) along[j * nx + i] = 1;
    }
    const rows = Array.from(Y, (y) => this.taken.get(`y${Math.round(y)}`));
    const columns = Array.from(X, (x) => this.taken.get(`x${Math.round(x)}`));
    const start = first(Y, sy) * nx + first(X, sx);
    const goalX = first(X, ex), goalY = ey === null ? -1 : first(Y, ey);
    const size = nx * ny;
    const cost = new Float64Array(2 * size).fill(Infinity), from = new Int32Array(2 * size).fill(-1);
    const heap = new Heap();
    const guess = (i, j) => Math.abs(X[i] - ex) + (ey === null ? 0 : Math.abs(Y[j] - ey));
    // A state is a crossing of two lines and how it was reached: 0 across, 1 along.
    for (const turn of ey === null ? [0] : [0, 1]) {
      cost[turn * size + start] = 0;
      heap.push(guess(start % nx, Math.floor(start / nx)), turn * size + start);
    }
    let end = -1;
    while (heap.size) {
      const state = heap.pop();
      const turn = state >= size ? 1 : 0, at = state - turn * size;
      const i = at % nx, j = (at - i) / nx;
      if (i === goalX && (goalY < 0 ? turn === 0 : j === goalY)) { end = state; break; }
      if (heap.popped > cost[state] + guess(i, j) + 1e-9) continue;
      for (let way = 0; way < 4; way++) {
        const di = way === 0 ? 1 : way === 1 ? -1 : 0, dj = way === 2 ? 1 : way === 3 ? -1 : 0;
        const ni = i + di, nj = j + dj;
        if (ni < 0 || nj < 0 || ni >= nx || nj >= ny) continue;
        const next = nj * nx + ni, low = Math.min(at, next);
        if (di ? across[low] : along[low]) continue;
        const turned = di ? 0 : 1;
        const length = di ? Math.abs(X[ni] - X[i]) : Math.abs(Y[nj] - Y[j]);
        const beside = di ? busy(rows[j], X[low % nx], X[low % nx + 1], value)
          : busy(columns[i], Y[Math.min(j, nj)], Y[Math.max(j, nj)], value);
        const total = cost[state] + length * (beside ? BESIDE : 1) + (turned === turn ? 0 : TURN);
        const to = turned * size + next;
        if (total >= cost[to] - 1e-9) continue;
        cost[to] = total;
        from[to] = state;
        heap.push(total + guess(ni, nj), to);
      }
    }
    if (end < 0) return null;
    const points = [];
    for (let state = end; state >= 0; state = from[state]) {
      const at = state % size;
      points.unshift(X[at % nx], Y[Math.floor(at / nx)]);
    }
    return corners(points);
  }
}

function turned(line) { return line.map((_, i) => line[i % 2 ? i - 1 : i + 1]); }

// Whether a line of another value runs along a stretch.
function busy(taken, from, to, value) {
  if (taken) for (const [a, b, other] of taken) {
    if (other !== value && a < to && b > from) return true;
  }
  return false;
}

// The points where a way (x and y in turn) turns, with its ends.
function corners(way) {
  const points = [], line = [];
  for (let i = 0; i < way.length; i += 2) {
    if (i && way[i] === way[i - 2] && way[i + 1] === way[i - 1]) continue;
    points.push([way[i], way[i + 1]]);
  }
  points.forEach(([x, y], i) => {
    const n = line.length;
    if (i && i + 1 < points.length) {
      const [px, py] = points[i - 1], [qx, qy] = points[i + 1];
      if ((px === x && qx === x) || (py === y && qy === y)) return;
    }
    if (n && line[n - 2] === x && line[n - 1] === y) return;
    line.push(x, y);
  });
  return line;
}

class Heap {
  keys = []; values = []; popped = 0;

  get size() { return this.keys.length; }

  push(key, value) {
    const { keys, values } = this;
    let i = keys.length;
    keys.push(key); values.push(value);
    while (i) {
      const up = (i - 1) >> 1;
      if (keys[up] <= key) break;
      keys[i] = keys[up]; values[i] = values[up];
      i = up;
    }
    keys[i] = key; values[i] = value;
  }

  pop() {
    const { keys, values } = this, value = values[0];
    this.popped = keys[0];
    const key = keys.pop(), moved = values.pop(), n = keys.length;
    let i = 0;
    while (n) {
      let child = 2 * i + 1;
      if (child >= n) break;
      if (child + 1 < n && keys[child + 1] < keys[child]) child += 1;
      if (keys[child] >= key) break;
      keys[i] = keys[child]; values[i] = values[child];
      i = child;
    }
    if (n) { keys[i] = key; values[i] = moved; }
    return value;
  }
}
