// Walks from node to node: along edges, to neighbours in a row, along paths, and back again.

import { Part } from "./parts.js";

const MARKED = new Set(["captured", "again", "added", "changed", "removed", "hazard", "aligned",
  "instead", "need"]);
const KEPT = 100; // views that can be gone back to

function alike(a, b) {
  return ["zoom", "x", "y", "selected", "toggles"].every((name) => a[name] === b[name]);
}

export class Walk extends Part {
  reach = 1; // edges from the selection that stay bright
  to = null; // the other end of a path from the selection
  views = [];

  // The next box in a direction; -1 if there is none.
  beside(i, key) {
    const v = this.viewer, { box, edge } = v.drawing;
    const middle = (k) => box.x[k] + box.w[k] / 2;
    const nearest = (boxes) => {
      let best = -1, least = Infinity;
      for (const k of boxes) {
        const away = Math.abs(middle(k) - middle(i));
        if (k !== i && away < least) { least = away; best = k; }
      }
      return best;
    };
    const makers = v.into[i].map((e) => edge.s[e]), readers = v.outOf[i].map((e) => edge.t[e]);
    if (key === "ArrowUp") return nearest(makers);
    if (key === "ArrowDown") return nearest(readers);
    // Siblings: other readers of the makers, other makers for the readers; else the row.
    const siblings = new Set([...makers.flatMap((k) => v.outOf[k].map((e) => edge.t[e])),
      ...readers.flatMap((k) => v.into[k].map((e) => edge.s[e]))]);
    const way = key === "ArrowRight" ? 1 : -1;
    const there = (k) => k !== i && way * (middle(k) - middle(i)) > 0.5;
    const found = nearest([...siblings].filter(there));
    return found >= 0 ? found : nearest(v.solid.filter((k) => there(k)
      && box.y[k] < box.y[i] + box.h[i] && box.y[k] + box.h[k] > box.y[i]));
  }

  step(key) {
    const v = this.viewer, i = v.selected === null ? -1 : v.boxOf(v.selected);
    if (i < 0) return false;
    const found = this.beside(i, key);
    if (found >= 0) { v.select(v.keyOf(found)); v.reveal(found); }
    return true;
  }

  // The overlay's nodes by value, the largest first; else captures, else changes, in graph order.
  marked() {
    const v = this.viewer, { node } = v.drawing;
    const all = Array.from(node.id, (_, n) => n);
    const overlay = v.overlays.active;
    const numbers = all.filter((n) => typeof overlay.values[n] === "number");
    if (numbers.length) {
      return numbers.sort((a, b) => overlay.values[b] - overlay.values[a] || a - b).slice(0, 100);
    }
    const captured = all.filter((n) => node.style[n] === "captured");
    return captured.length ? captured : all.filter((n) => MARKED.has(node.style[n]));
  }

  mark(way) {
    const v = this.viewer, list = this.marked();
    if (!list.length) { v.say("Nothing is captured, changed or coloured by number here."); return; }
    const now = list.indexOf(v.nodeIndex.get(v.selected));
    const at = now < 0 ? (way > 0 ? 0 : list.length - 1) : (now + way + list.length) % list.length;
    v.focus(v.drawing.node.id[list[at]]);
    v.say(`${at + 1} of ${list.length}`);
  }

  widen(by) {
    this.reach = Math.max(1, Math.min(99, this.reach + by));
    this.to = null;
    this.viewer.details.show();
    this.viewer.redraw();
  }

  // Boxes and edges within `reach` of a box, up and down the edges.
  around(i) {
    const v = this.viewer, { edge } = v.drawing;
    const boxes = new Set(), into = new Set(), outOf = new Set();
    for (const [links, end, edges] of [[v.into, edge.s, into], [v.outOf, edge.t, outOf]]) {
      const away = new Map([[i, 0]]); // visited as it grows
      for (const [b, far] of away) {
        boxes.add(b);
        for (const e of far < this.reach ? links[b] : []) {
          edges.add(e);
          if (!away.has(end[e])) away.set(end[e], far + 1);
        }
      }
    }
    return { boxes, into, outOf };
  }

  // The shortest way between two boxes along edges, in either direction; null without one.
  between(a, b) {
    const v = this.viewer, { edge } = v.drawing;
    for (const [from, to] of [[a, b], [b, a]]) {
      const came = new Map([[from, -1]]); // visited as it grows
      for (const k of came.keys()) {
        if (k === to) break;
        for (const e of v.outOf[k]) if (!came.has(edge.t[e])) came.set(edge.t[e], e);
      }
      if (!came.has(to)) continue;
      const boxes = [to], edges = [];
      for (let e = came.get(to); e >= 0; e = came.get(edge.s[e])) {
        edges.push(e); boxes.push(edge.s[e]);
      }
      return { boxes: boxes.reverse(), edges };
    }
    return null;
  }

  // Show the path from the selection to another box.
  connect(key) {
    const v = this.viewer;
    if (v.selected === null || key === v.selected) return;
    this.to = key;
    const found = this.between(v.boxOf(v.selected), v.boxOf(key));
    v.say(found ? `A path of ${found.edges.length} edges to ${v.title(key)}.`
      : `There is no path between the two.`);
    if (!found) this.to = null;
    v.redraw();
  }

  // Remember the view before it changes.
  remember() {
    const v = this.viewer;
    if (!v.drawing) return;
    const { zoom, x, y, selected, toggles } = v;
    const last = this.views.at(-1);
    const now = { zoom, x, y, selected, toggles, family: v.drawing.family };
    if (last && alike(last, now)) return;
    this.views.push(now);
    if (this.views.length > KEPT) this.views.shift();
  }

  undo() {
    const v = this.viewer;
    let kept = this.views.pop();
    while (kept && (kept.family !== v.drawing.family || alike(kept, v))) kept = this.views.pop();
    if (!kept) { v.say("There is no earlier view."); return; }
    const other = JSON.stringify(kept.toggles) !== JSON.stringify(v.toggles);
    if (other) { v.anchor = null; v.pendingFocus = null; v.toggles = kept.toggles; v.sendToggles(); }
    v.select(kept.selected !== null && v.exists(kept.selected) ? kept.selected : null);
    Object.assign(v, { zoom: kept.zoom, x: kept.x, y: kept.y });
    v.redraw();
  }
}
