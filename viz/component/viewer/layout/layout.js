// From a graph and the groups that are open to boxes and curves.
//
// Every open group is laid out by itself (ranks.js) and is then one box in the layout of the group
// around it, so equal layers cost one computation and opening a group leaves other groups as they
// are. An edge that leaves a group passes a port in the group's border; all edges that carry one
// value pass the same port. A joint graph is drawn as two halves side by side, the forward running
// down and the backward back up, so that saved tensors cross over sideways.
//
// Nothing here needs a document: the viewer runs it in the browser, Python in a V8 of its own.

import { CROSSING, flattened, LONG, PLAIN } from "./curves.js";
import { Items } from "./items.js";
import { CHILD, IN, OUT, place } from "./ranks.js";
import { Router } from "./router.js";
import { boxSize, HEADER, rounded, sizeText, textWidth, thousands, TITLE, typesText } from "./words.js";

const PAD = 16, HALVES_APART = 260, MARGIN = 24;
const MANY = 1200; // boxes; more are laid out in one pass, to save time
const LEAST_COLUMN = 600; // pixels
const PASSES = 3; // after the first, groups know where their border lines go
const WASTE = 2.6, ASPECT = 1.5; // areas of drawing over boxes; width over height

// Lay a graph out.
//   graph: from `laidOutGraph`; producers before their readers.
//   opened: a set of ids of the groups to draw open; groups inside a closed one are not shown.
//
// The answer is in lists, groups before their contents: `box` has id ("group:" and the group's for
// a group, with "#2" and on for further parts), kind (1 for a group), x, y, w, h, lines, group (the
// one that a node is in), open, depth and node (-1 for a group); `edge` has s and t (boxes), p
// (points, x and y in turn, joined by cubics whose tangents run up and down, or across for kind 2),
// label and kind (0 plain; 1 long: no lane was free and it passes beneath boxes; 2 from the forward
// half to the backward half); `shown` gives the box that shows each node; and `width`, `height`.
export function layout(graph, opened) {
  const open = Uint8Array.from(graph.groupId, (id) => (opened.has(id) ? 1 : 0));
  return new Arrangement(graph, open).run();
}

class Arrangement extends Items {
  run() {
    const pairs = this.pairs();
    for (const pair of pairs) {
      pair.route = pair.loose ? undefined : this.route(pair.source, pair.target);
    }
    this.pull = this.pulls(pairs);
    for (const item of this.items) {
      item.lines = this.lines(item);
      if (!item.isOpen) [item.w, item.h] = this.closedSize(item);
    }
    this.tall = this.columnHeight();
    this.sizeAll();
    const passes = this.items.length > MANY ? 1 : PASSES;
    for (let pass = 0; pass < passes && this.tall; pass++) {
      const aspect = this.items[0].w / this.items[0].h;
      if (aspect < 1.3 * ASPECT && aspect > ASPECT / 1.3) break;
      this.tall = Math.max(LEAST_COLUMN, Math.round(this.tall * Math.sqrt(aspect / ASPECT)));
      this.sizeAll();
    }
    for (let pass = 0; pass < passes && this.orderPorts(); pass++) this.sizeAll();
    this.put();
    this.standByReaders();
    this.choose();
    const edge = this.edges(pairs.filter((pair) => pair.values.length));
    const box = this.boxes();
    const [width, height] = this.framed(box, edge);
    return { box, edge, width, height, shown: this.currentShown() };
  }

  // The nodes whose values pass, for every two boxes with edges between them. Nodes of the backdrop
  // alone are laid out too, and pass nothing; `loose` are pairs that the backdrop lacks.
  pairs() {
    const { slot, graph: { reads, readsNow, count }, items } = this;
    const pairs = new Map();
    const add = (list, passes, loose) => {
      for (let node = 0; node < count; node++) {
        const target = slot[node];
        for (const read of list[node]) {
          const source = slot[read];
          if (source === target) continue;
          const key = source * items.length + target;
          let pair = pairs.get(key);
          if (!pair) pairs.set(key, pair = { source, target, values: [], route: null, loose });
          if (passes) pair.values.push(read);
        }
      }
    };
    add(reads, !readsNow, false);
    if (readsNow) add(readsNow, true, true);
    return [...pairs.values()];
  }

  // The way from box to box: [container, edge in it, port reached or -1], null across.
  route(source, target) {
    const up = [], down = [];
    let a = this.items[source], b = this.items[target];
    if (this.halves && a.flip !== b.flip) return null;
    while (a.parent !== b.parent) {
      if (a.depth >= b.depth && a.parent > 0) {
        const container = this.items[a.parent];
        const port = portOf(container, OUT, source);
        up.push([container, edgeOf(container, a.local, port, source), port]);
        a = container;
      } else {
        const container = this.items[b.parent];
        const port = portOf(container, IN, source);
        down.push([container, edgeOf(container, port, b.local, source), port]);
        b = container;
      }
    }
    const meeting = this.items[a.parent];
    up.push([meeting, edgeOf(meeting, a.local, b.local, source), -1]);
    return up.concat(down.reverse());
  }

  // The number of lines from each box to the other half, negative in the backward.
  pulls(pairs) {
    const pull = new Int32Array(this.items.length);
    if (!this.halves) return pull;
    for (const { source, target, route } of pairs) {
      if (route !== null) continue;
      for (const end of [source, target]) {
        for (let i = end; i > 0; i = this.items[i].parent) pull[i] += this.items[i].flip ? -1 : 1;
      }
    }
    return pull;
  }

  // The height of columns with which the whole is about as wide as a screen; 0: no columns.
  columnHeight() {
    if (this.halves) return 0;
    let room = 0;
    for (const item of this.items) if (!item.isOpen) room += (item.w + 22) * (item.h + 30);
    return Math.max(LEAST_COLUMN, Math.round(Math.sqrt(room * WASTE / ASPECT)));
  }

  sizeAll() {
    for (let i = this.items.length - 1; i >= 0; i--) {
      if (this.items[i].isOpen) this.size(this.items[i]);
    }
  }

  closedSize(item) {
    const [wide, high] = boxSize(item.node < 0 ? item.lines : this.graph.lines(item.node, false));
    if (item.node >= 0) return [wide, high];
    const name = textWidth(item.lines[0], TITLE, true); // with room for larger writing
    return [Math.round(Math.max(wide + 34, 150, 1.5 * name + 60)), 52];
  }

  size(item) {
    if (item.index === 0 && this.halves) { this.sizeHalves(item); return; }
    const sizes = [], kinds = [], values = new Map(), pull = [];
    for (const child of item.children) {
      const box = this.items[child];
      sizes.push(box.w, box.h);
      kinds.push(CHILD);
      pull.push(this.pull[child]);
    }
    for (const kind of item.portKinds) { sizes.push(0, 0); kinds.push(kind); }
    const edges = [], ends = [];
    for (let e = 0; e < item.flat.length; e += 3) {
      const [from, to, value] = [item.flat[e], item.flat[e + 1], item.flat[e + 2]];
      if (!values.has(value)) values.set(value, values.size);
      edges.push(from, to, values.get(value));
      ends.push(this.endShift(item, from, OUT, value), this.endShift(item, to, IN, value));
    }
    const { portOrder } = item;
    item.placed = place({ sizes, kinds, edges, ends, pull, tall: this.tall, portOrder });
    const { width: wide, height: high } = item.placed;
    if (item.index === 0) { item.w = wide + 2 * MARGIN; item.h = high + 2 * MARGIN; return; }
    item.w = Math.max(wide + 2 * PAD, textWidth(item.lines[0], TITLE, true) + 60);
    item.h = high + HEADER + 2 * PAD;
  }

  // Order each group's ports by the other ends of their lines; whether any order changed.
  orderPorts() {
    let changed = false;
    for (const around of this.items) {
      const { placed, flat, children } = around;
      if (!placed) continue;
      const n = children.length;
      const x = (end, kind, value) => {
        const { corners } = placed;
        if (end >= n) return corners[2 * end];
        return corners[2 * end] + this.items[children[end]].w / 2
          + this.endShift(around, end, kind, value);
      };
      const seen = new Map(); // by group and port: places of the other ends
      const note = (end, kind, value, at) => {
        const box = this.items[children[end]];
        const port = box.placed ? box.ports.get(2 * value + (kind === IN ? 1 : 0)) : undefined;
        if (port === undefined) return;
        if (!seen.has(box)) seen.set(box, box.portKinds.map(() => []));
        seen.get(box)[port].push(at);
      };
      for (let e = 0; e < flat.length; e += 3) {
        const [from, to, value] = [flat[e], flat[e + 1], flat[e + 2]];
        const lane = placed.lanes[e / 3] ?? [];
        if (to < n) note(to, IN, value, lane.length ? lane[lane.length - 2] : x(from, OUT, value));
        if (from < n) note(from, OUT, value, lane.length ? lane[0] : x(to, IN, value));
      }
      for (const [box, places] of seen) {
        const mean = places.map((at) => at.reduce((sum, v) => sum + v, 0) / (at.length || 1));
        const order = mean.map((_, port) => port).sort((a, b) => mean[a] - mean[b] || a - b);
        const ranks = [];
        order.forEach((port, rank) => { ranks[port] = rank; });
        if (ranks.every((rank, port) => rank === box.portOrder[port])) continue;
        box.portOrder = ranks;
        changed = true;
      }
    }
    return changed;
  }

  // How far from its box's centre an edge starts or ends: at an open group's port.
  endShift(container, end, kind, value) {
    if (end >= container.children.length) return 0;
    const box = this.items[container.children[end]];
    const port = box.placed ? box.ports.get(2 * value + (kind === IN ? 1 : 0)) : undefined;
    if (port === undefined) return 0;
    return box.placed.corners[2 * (box.children.length + port)] - box.placed.width / 2;
  }

  sizeHalves(root) {
    const [one, other] = root.children.map((c) => this.items[c]);
    root.w = one.w + other.w + HALVES_APART + 2 * MARGIN;
    root.h = Math.max(one.h, other.h) + 2 * MARGIN;
  }

  put() {
    for (const item of this.items) {
      if (!item.isOpen) continue;
      if (item.placed) this.putChildren(item);
      else this.putHalves(item);
    }
  }

  putChildren(item) {
    const { placed } = item;
    item.left = item.index ? item.x + (item.w - placed.width) / 2 : MARGIN;
    item.top = item.index ? item.y + HEADER + PAD : MARGIN;
    item.children.forEach((child, i) => {
      const box = this.items[child];
      let along = placed.corners[2 * i + 1];
      if (item.flip) along = placed.height - along - box.h;
      box.x = item.left + placed.corners[2 * i]; box.y = item.top + along;
    });
  }

  putHalves(root) {
    let across = MARGIN;
    const halves = root.children.map((c) => this.items[c]);
    for (const half of halves.sort((a, b) => a.flip - b.flip)) {
      half.x = across; half.y = root.h - MARGIN - half.h;
      across += half.w + HALVES_APART;
    }
  }

  // The boxes that are drawn, with their numbers: all that show something of the block.
  choose() {
    const { current } = this.graph;
    this.shown = new Int32Array(this.items.length).fill(-1);
    let count = 0;
    for (let i = 1; i < this.items.length; i++) {
      const { node, members } = this.items[i];
      if (node >= 0 ? current[node] >= 0 : members.some((m) => current[m] >= 0)) {
        this.shown[i] = count++;
      }
    }
  }

  currentShown() {
    const { current } = this.graph;
    const shown = new Int32Array(current.reduce((most, n) => Math.max(most, n + 1), 0));
    current.forEach((n, slot) => { if (n >= 0) shown[n] = this.shown[this.slot[slot]]; });
    return shown;
  }

  // In the backward alone, inputs from the forward are put beside their readers.
  standByReaders() {
    this.column = new Set();
    this.columnLeft = Infinity;
    const { graph: { current, readsNow, count }, items, slot } = this;
    if (!this.halves || !readsNow) return;
    const readers = Array.from({ length: count }, () => []);
    readsNow.forEach((list, node) => { for (const read of list) readers[read].push(node); });
    const half = (node) => items[slot[node]].flip;
    const column = [];
    for (let node = 0; node < count; node++) {
      const box = items[slot[node]];
      if (current[node] < 0 || half(node) || readsNow[node].length || box.node !== node) continue;
      if (!readers[node].length || !readers[node].every(half)) continue;
      column.push([Math.min(...readers[node].map((reader) => items[slot[reader]].y)), box]);
    }
    const edge = items.find((item) => item.flip).x - 40;
    let free = -Infinity;
    for (const [along, box] of column.sort((a, b) => a[0] - b[0])) {
      box.x = edge - box.w; box.y = Math.max(along, free);
      free = box.y + box.h + 20;
      this.column.add(box.index);
      this.columnLeft = Math.min(this.columnLeft, box.x);
      for (let i = box.parent; i > 0; i = items[i].parent) { // which may have nothing else to show
        items[i].members = items[i].members.filter((member) => member !== box.node);
      }
    }
  }

  // Move everything so that the drawing begins at the margin; returns its size.
  framed(box, edge) {
    if (!this.graph.readsNow || !box.id.length) {
      return [rounded(this.items[0].w), rounded(this.items[0].h)];
    }
    const low = [Infinity, Infinity], high = [-Infinity, -Infinity];
    const take = (x, y) => {
      low[0] = Math.min(low[0], x); low[1] = Math.min(low[1], y);
      high[0] = Math.max(high[0], x); high[1] = Math.max(high[1], y);
    };
    box.x.forEach((x, i) => { take(x, box.y[i]); take(x + box.w[i], box.y[i] + box.h[i]); });
    for (const p of edge.p) for (let i = 0; i < p.length; i += 2) take(p[i], p[i + 1]);
    const move = [MARGIN - low[0], MARGIN - low[1]];
    box.x = box.x.map((x) => rounded(x + move[0]));
    box.y = box.y.map((y) => rounded(y + move[1]));
    edge.p = edge.p.map((p) => p.map((v, i) => rounded(v + move[i % 2])));
    return [rounded(high[0] - low[0] + 2 * MARGIN), rounded(high[1] - low[1] + 2 * MARGIN)];
  }

  edges(pairs) {
    const edge = { s: [], t: [], p: [], label: [], kind: [] };
    const over = [];
    for (const pair of pairs) {
      const source = this.items[pair.source], target = this.items[pair.target];
      if (pair.route === null) { pair.kind = CROSSING; over.push(pair); continue; }
      if (pair.loose) {
        pair.way = [...this.end(source, true), ...this.end(target, false)];
        pair.kind = LONG;
      } else this.follow(pair, source, target);
    }
    const arriving = Map.groupBy(pairs.filter(({ way }) => way), ({ target }) => target);
    for (const [target, some] of arriving) this.spread(this.items[target], some);
    this.goAround(pairs, over);
    for (const { source, target, values, way, kind } of pairs) {
      edge.s.push(this.shown[source]); edge.t.push(this.shown[target]);
      edge.p.push(way.map(rounded));
      edge.kind.push(kind);
      const distinct = values.length === 1 ? 1 : new Set(values).size;
      edge.label.push(distinct > 1 ? `${distinct} tensors`
        : typesText(this.graph.types(values[0])));
    }
    return edge;
  }

  // Lead lines around boxes in their way, and across from half to half.
  goAround(pairs, over) {
    const router = new Router(this.items.map((item, i) =>
      (item.isOpen || this.shown[i] < 0 ? null : item)));
    const before = new Map(); // by source, a free line: others that begin like it are free, too
    for (const pair of pairs) {
      if (pair.kind === CROSSING) continue;
      const { way } = pair, other = before.get(pair.source);
      let same = 0;
      while (other && same < way.length && way[same] === other[same]) same += 1;
      const rest = way.slice(Math.max(0, (same >> 1 << 1) - 4));
      if (router.free(flattened(rest, pair.kind), [pair.source, pair.target], -1)) {
        before.set(pair.source, way);
        continue;
      }
      const found = this.around(router, way, pair);
      if (found) { pair.way = found; pair.kind = PLAIN; }
    }
    if (over.length) this.crossOver(router, over);
  }

  around(router, way, pair) {
    const { source, target } = pair;
    const n = way.length, up = this.items[target].flip ? -1 : 1;
    const out = this.items[source].flip ? -1 : 1;
    const start = [way[0], way[1] + 8 * out], end = [way[n - 2], way[n - 1] - 9 * up];
    const found = router.between(...start, ...end, source);
    if (!found) return null;
    router.take(found, source);
    return [way[0], way[1], ...found, way[n - 2], way[n - 1]];
  }

  // From half to half: out to the side, over the gap between the halves, and in from the side.
  crossOver(router, over) {
    const halves = this.items[0].children.map((c) => this.items[c]);
    const forward = halves.find((half) => !half.flip), backward = halves.find((half) => half.flip);
    // Boxes beside their readers are in the gap: other lines go to the left of them.
    const near = backward.x - 12, far = Math.min(near, this.columnLeft - 12);
    const exit = Math.min(forward.x + forward.w + 12, far - 20);
    const outs = new Map();
    const side = (index, right) => {
      const { x, y, w, h } = this.items[index];
      return [x + (right ? w : 0), y + h / 2, h];
    };
    // A way from a box's side to the vertical line at x, straight if possible.
    const lead = (index, x, right, y, value) => {
      const [sx, middle] = side(index, right);
      const sy = y ?? middle;
      if ((sx - x) * (right ? 1 : -1) > 0) return [sx, sy]; // the box is in the gap itself
      const straight = [sx, sy, x, sy], free = router.free(straight, [index], 1);
      const around = free ? null : router.across(sx + (right ? 8 : -8), sy, x, value);
      const line = around ? [sx, sy, ...around] : straight;
      if (free || around) router.take(line, value);
      return line;
    };
    // From the backward half there are none in a valid graph.
    const entering = over.filter(({ source }) => !this.items[source].flip);
    for (const { source } of entering) {
      if (!outs.has(source)) outs.set(source, lead(source, exit, true, null, source));
    }
    for (const [target, list] of Map.groupBy(entering, (pair) => pair.target)) {
      const height = (pair) => outs.get(pair.source).at(-1);
      list.sort((a, b) => height(a) - height(b));
      const [, y, h] = side(target, false);
      const step = list.length > 1 ? Math.min(9, h * 0.6 / (list.length - 1)) : 0;
      list.forEach((pair, turned) => {
        const at = y + (turned - (list.length - 1) / 2) * step;
        const enter = this.column.has(pair.source) ? near : far;
        const into = lead(target, enter, false, at, pair.source);
        const back = [];
        for (let i = into.length - 2; i >= 0; i -= 2) back.push(into[i], into[i + 1]);
        pair.way = [...outs.get(pair.source), ...back];
      });
    }
    for (const pair of over) {
      const back = this.items[pair.source].flip;
      const [x, y] = side(pair.source, !back), [endX, endY] = side(pair.target, back);
      pair.way ??= [x, y, endX, endY];
    }
  }

  follow(pair, source, target) {
    const way = this.end(source, true);
    let straight = true, meeting = false;
    for (const [container, edge, port] of pair.route) {
      const { left, top, flip, placed } = container, lane = placed.lanes[edge];
      straight &&= lane !== null;
      const at = port === -1 ? null : this.atPort(container, -2 - port);
      if (at && meeting) way.push(at[0], at[1]);
      for (let i = 0; i < lane?.length; i += 2) {
        way.push(left + lane[i], top + (flip ? placed.height - lane[i + 1] : lane[i + 1]));
      }
      if (at && !meeting) way.push(at[0], at[1]);
      meeting ||= port === -1;
    }
    way.push(...this.end(target, false));
    if (!straight && way.length === 4) { // bow out, so as not to hide behind a column of boxes
      const [x, y, endX, endY] = way, bow = Math.min(60 + Math.abs(endY - y) * 0.06, 400);
      way.splice(2, 0, (x + endX) / 2 + (endX >= x ? bow : -bow), (y + endY) / 2);
    }
    pair.way = way;
    pair.kind = straight ? PLAIN : LONG;
  }

  // The place of a port, on the border of its group's box.
  atPort(container, port) {
    const x = container.placed.corners[2 * (container.children.length + port)];
    const far = (container.portKinds[port] === IN) === container.flip ? 1 : 0;
    return [container.left + x, container.y + container.h * far];
  }

  end(item, leaving) {
    return [item.x + item.w * 0.5, item.y + item.h * (leaving !== item.flip ? 1 : 0)];
  }

  // Let the edges into one box end side by side, in the order of their arrival.
  spread(target, pairs) {
    if (pairs.length < 2) return;
    const step = Math.min(16, target.w * 0.6 / (pairs.length - 1));
    const ways = pairs.map(({ way }) => way).sort((a, b) => a[a.length - 4] - b[b.length - 4]);
    ways.forEach((way, turn) => {
      way[way.length - 2] += (turn - (ways.length - 1) / 2) * step;
    });
  }

  lines(item) {
    const { graph } = this;
    if (item.node >= 0) return graph.lines(item.node, true);
    if (item.group < 0) return [""];
    const { label, parameterBytes } = graph.facts[item.group];
    const count = item.members.reduce((sum, m) => sum + (graph.current[m] >= 0 ? 1 : 0), 0);
    let size = `${thousands(count)} node${count === 1 ? "" : "s"}`;
    if (parameterBytes && item.parts === 1) size += ` · ${sizeText(parameterBytes)} weights`;
    return [item.parts > 1 ? `${label} (${item.part + 1} of ${item.parts})` : label, size];
  }

  boxes() {
    const { graph } = this;
    const drawn = this.items.filter((_, i) => this.shown[i] >= 0);
    const list = (of) => drawn.map(of), places = (name) => list((item) => rounded(item[name]));
    const group = list((item) =>
      graph.groupId[item.node < 0 ? item.group : graph.group[item.node]] ?? "");
    return {
      id: list(({ node, part }, i) => (node >= 0 ? graph.id(node)
        : `group:${group[i]}${part ? `#${part + 1}` : ""}`)),
      kind: list(({ node }) => (node < 0 ? 1 : 0)),
      x: places("x"), y: places("y"), w: places("w"), h: places("h"),
      lines: list(({ lines }) => lines), group,
      open: list(({ isOpen }) => (isOpen ? 1 : 0)), depth: list(({ depth }) => depth),
      node: list(({ node }) => graph.current[node] ?? -1),
    };
  }
}

// Ports stand after the children, whose number is fixed by now; one is named -2 - its number.
function portOf(container, kind, source) {
  const key = 2 * source + (kind === IN ? 1 : 0);
  let port = container.ports.get(key);
  if (port === undefined) {
    port = container.portKinds.length;
    container.ports.set(key, port);
    container.portKinds.push(kind);
  }
  return -2 - port;
}

function edgeOf(container, source, target, value) {
  const children = container.children.length;
  const from = source <= -2 ? children - 2 - source : source;
  const to = target <= -2 ? children - 2 - target : target;
  const key = `${from},${to},${value}`;
  let edge = container.edges.get(key);
  if (edge === undefined) {
    edge = container.flat.length / 3;
    container.edges.set(key, edge);
    container.flat.push(from, to, value);
  }
  return edge;
}
