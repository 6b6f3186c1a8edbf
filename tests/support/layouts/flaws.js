// What is wrong with a picture, by its geometry.

import { flattened, meets } from "../../../viz/component/viewer/layout/curves.js";

// Of a layout: `through`, pairs of an edge and a box that it runs through without touching it;
// `overlaps`, pairs of boxes that meet, neither of which is an open group around the other.
export function flaws(drawn) {
  const lines = drawn.edge.p.map((p, e) => flattened(p, drawn.edge.kind[e]));
  return {
    through: throughBoxes(drawn, lines),
    overlaps: overlapsOf(drawn.box),
  };
}

function throughBoxes({ box, edge }, lines) {
  const cells = new Map(), size = 128, found = [];
  const eachCell = (x0, y0, x1, y1, visit) => {
    for (let i = Math.floor(x0 / size); i <= Math.floor(x1 / size); i++) {
      for (let j = Math.floor(y0 / size); j <= Math.floor(y1 / size); j++) visit(`${i},${j}`);
    }
  };
  for (let b = 0; b < box.id.length; b++) {
    if (box.open[b]) continue;
    eachCell(box.x[b], box.y[b], box.x[b] + box.w[b], box.y[b] + box.h[b], (cell) => {
      if (cells.has(cell)) cells.get(cell).push(b); else cells.set(cell, [b]);
    });
  }
  lines.forEach((line, e) => {
    const hit = new Set();
    for (let i = 2; i < line.length; i += 2) {
      const [x0, y0, x1, y1] = [line[i - 2], line[i - 1], line[i], line[i + 1]];
      eachCell(Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1), (cell) => {
        for (const b of cells.get(cell) ?? []) {
          if (b === edge.s[e] || b === edge.t[e] || hit.has(b)) continue;
          if (meets(x0, y0, x1, y1, box.x[b] + 1, box.y[b] + 1, box.x[b] + box.w[b] - 1,
            box.y[b] + box.h[b] - 1)) hit.add(b);
        }
      });
    }
    for (const b of hit) found.push([e, b]);
  });
  return found;
}

function overlapsOf(box) {
  const order = box.id.map((_, i) => i).sort((a, b) => box.y[a] - box.y[b]);
  const found = [];
  let active = [];
  const within = (a, b) => box.open[b] && box.x[a] >= box.x[b] - 0.2 && box.y[a] >= box.y[b] - 0.2
    && box.x[a] + box.w[a] <= box.x[b] + box.w[b] + 0.2
    && box.y[a] + box.h[a] <= box.y[b] + box.h[b] + 0.2;
  for (const a of order) {
    active = active.filter((b) => box.y[b] + box.h[b] > box.y[a] + 0.2);
    for (const b of active) {
      if (box.x[a] < box.x[b] + box.w[b] - 0.2 && box.x[b] < box.x[a] + box.w[a] - 0.2
        && !within(a, b) && !within(b, a)) found.push([a, b]);
    }
    active.push(a);
  }
  return found;
}
