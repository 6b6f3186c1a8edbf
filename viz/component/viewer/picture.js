// The drawing: Python's lists, the layout, and look-ups for everything else.

import { laidOutGraph, openGroups } from "./layout/graph.js";
import { layout } from "./layout/layout.js";
import { sizeText } from "./layout/words.js";

export class Picture {
  drawing = null;
  hover = -1;

  exists(key) {
    return key.startsWith("group:") ? this.drawing.groups[key.slice(6)] !== undefined
      : this.nodeIndex.has(key);
  }

  // The box that now shows a node or group: its own, or that of the closed group around it.
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

  keyOf(i) {
    const { box } = this.drawing;
    return box.kind[i] ? "group:" + box.group[i] : box.id[i];
  }

  title(key) {
    if (key.startsWith("group:")) return this.drawing.groups[key.slice(6)].path;
    return this.drawing.node.title[this.nodeIndex.get(key)];
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

  // Lay out Python's lists with the open groups.
  arranged(block) {
    const { groups, groupIds, node, shapes } = block;
    const opened = openGroups((block.backdrop ?? block).groupIds, block.first, this.toggles);
    for (const id of groupIds) groups[id].open = opened.has(id);
    if (this.laidOut?.block !== block) this.laidOut = { block, graph: laidOutGraph(block) };
    const { box, edge, width, height, shown } = layout(this.laidOut.graph, opened);
    box.shape = box.node.map((n) => (n < 0 ? "box" : shapes[node.kind[n]]));
    return { ...block, box, edge, width, height, node: { ...node, box: shown } };
  }

  // The number and bytes of captured tensors in each group, for its label.
  capturesOf(drawing) {
    const { role, bytes } = drawing.node;
    const sums = (of) => this.overlays.wholes(drawing, { whole: "sum",
      values: role.map((one, n) => (one === "captured" ? of(n) : null)) });
    const held = sums((n) => bytes[n] ?? 0);
    return new Map(Array.from(sums(() => 1), ([g, count]) => [g, { count, bytes: held.get(g) }]));
  }

  capturesText(group) {
    const found = this.captures.get(group);
    return found ? `${found.count} saved for the backward, ${sizeText(found.bytes)}` : "";
  }

  // Set each box's look by the chosen overlay.
  restyle() {
    const { box } = this.drawing;
    this.overlays.paint(this.drawing);
    this.byStyle = Map.groupBy(this.solid, (i) => box.style[i]);
  }

  // The entries of the legend: style, shape and words.
  legendRows() {
    return this.overlays.legend.map(([key, words, shape = "box"]) => [key, shape, words
      ?? (shape === "line" ? "forward value read by the backward" : this.theme.styles[key]?.label ?? key)]);
  }

  // For each edge, the index of the point where it leaves the way of another from the same box.
  partings({ s, p }) {
    const parting = new Int32Array(s.length), longest = new Map();
    for (let e = 0; e < s.length; e++) {
      const other = longest.get(s[e]);
      if (other === undefined || p[e].length > p[other].length) longest.set(s[e], e);
    }
    for (let e = 0; e < s.length; e++) {
      const other = longest.get(s[e]);
      if (other === e) continue;
      const a = p[e], b = p[other];
      let same = 0;
      while (same < a.length && a[same] === b[same] && a[same + 1] === b[same + 1]) same += 2;
      parting[e] = Math.max(0, same - 2);
    }
    return parting;
  }

  // Take Python's lists, and prepare the look-ups.
  take(block) {
    const drawing = this.drawing = this.arranged(block);
    const { box, edge, node } = drawing;
    this.index = new Map(box.id.map((id, i) => [id, i]));
    if (this.taken !== block) { // independent of open groups
      this.taken = block;
      this.nodeIndex = new Map(node.id.map((id, i) => [id, i]));
      this.halves = this.overlays.halves(drawing);
    }
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
    this.parting = this.partings(edge);
    this.show?.dress(drawing);
    this.captures = this.capturesOf(drawing);
    this.open = []; this.solid = [];
    for (let i = 0; i < count; i++) (box.open[i] ? this.open : this.solid).push(i);
    this.restyle();
    this.hover = -1;
  }
}
