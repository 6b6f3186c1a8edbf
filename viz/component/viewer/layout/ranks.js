// Where the boxes of one container go: a layered drawing of a small graph of rectangles.
//
// The method is Sugiyama's (1981) in its usual steps, each with a fast choice: longest-path ranks
// with sources pulled to their first reader, barycentre sweeps for the order (the sweep with the
// fewest crossings wins), and places across as in across.js. Long edges take lanes between the
// boxes; all edges that carry one value share a lane. Where heights differ much, boxes move up
// along the skyline of what is above them, so that a tall group does not push its neighbours down.
//
// Everything here is for a drawing from top to bottom, in pixels; the caller turns it.

import { placesAcross } from "./across.js";
import { cutsOf, fold } from "./fold.js";
import { rounded } from "./words.js";

// A box; a port where values enter at the top or leave at the bottom.
export const CHILD = 0, IN = 1, OUT = 2;

const GAP_ACROSS = 22, GAP_ALONG = 30, LANE = 10, BUCKET = 4;
const KEPT = 2048;

// A cache of answers by question, the latest last.
class Known extends Map {
  constructor(most) { super(); this.most = most; }

  of(key, make) {
    let answer = this.get(key);
    if (answer === undefined) answer = make(); else this.delete(key);
    this.set(key, answer);
    if (this.size > this.most) this.delete(this.keys().next().value);
    return answer;
  }
}

// Caches: places of whole problems; places without columns; orders, which depend on no size; and
// placements of the last tall problems, for columns of another height.
const known = new Known(KEPT), unfolded = new Known(KEPT), orders = new Known(KEPT), tallest = new Known(8);

// Lay one container out. A problem has, by position: `sizes`, width and height of every box in
// turn, (0, 0) for ports; `kinds`; `edges`, (from, to, value) in turn: edges with the same `from`
// and `value` share a lane, and there are no cycles; `ends`, for each edge how far right of its
// boxes' centres it starts and ends; `pull`, for each item the number of lines that leave it to the
// right of all (to the left if negative); `portOrder`, the place of each port (empty: any); `tall`,
// the height of a column beyond which rows are folded into several (0: never).
//
// The answer has the `corners` at the top left, x and y in turn, `width` and `height` of all, and
// in `lanes` the points of each edge; null for one too long for a lane.
export function place(problem) {
  if (!problem.kinds.length) return { corners: [], width: 0, height: 0, lanes: [], high: 0 };
  const { sizes, kinds, edges, ends, pull = [], tall = 0, portOrder = [] } = problem;
  const order = [kinds, edges, pull, portOrder].join(";");
  const key = [sizes, ends, order].join(";");
  return known.of(`${tall};${key}`, () => {
    const make = () => new Placement({ sizes, kinds, edges, ends, pull, portOrder }, order);
    const plain = unfolded.of(key, () => {
      const made = make(), answer = made.answer(null);
      if (tall && made.high >= 1.4 * tall) tallest.of(key, () => made);
      return answer;
    });
    if (!tall || plain.high < 1.4 * tall) return plain;
    return tallest.of(key, make).answer(tall);
  });
}

// The working state: boxes first, then one dummy for each rank that a lane passes.
class Placement {
  constructor(problem, orderKey) {
    this.problem = problem;
    this.orderKey = orderKey;
    const { kinds, sizes, edges } = problem;
    const count = this.count = kinds.length;
    this.edgeCount = edges.length / 3;
    this.kinds = kinds;
    this.width = []; this.height = [];
    for (let i = 0; i < count; i++) {
      this.width.push(Math.max(sizes[2 * i], LANE));
      this.height.push(sizes[2 * i + 1]);
    }
    Object.assign(this, ranks(count, kinds, edges));
    this.below = []; this.above = [];
    // How far right of a neighbour's centre an item's own has to be for a straight edge.
    this.belowShift = []; this.aboveShift = [];
    for (let i = 0; i < count; i++) this.addLinks();
    this.addLanes();
    const rows = orders.of(this.orderKey, () => this.order());
    this.x = this.across(rows);
    this.y = this.along(rows, this.x);
    this.high = 0;
    for (let i = 0; i < count; i++) this.high = Math.max(this.high, this.y[i] + this.height[i]);
  }

  addLinks() {
    this.below.push([]); this.above.push([]);
    this.belowShift.push([]); this.aboveShift.push([]);
  }

  // All places, in columns of a height or in one.
  answer(tall) {
    const x = this.x.slice(), y = this.y.slice();
    const ways = tall ? this.folded(tall, x, y) : null;
    const { sizes, edges } = this.problem;
    let left = Infinity, right = -Infinity, bottom = -Infinity;
    for (let i = 0; i < x.length; i++) {
      left = Math.min(left, x[i] - this.width[i] / 2);
      right = Math.max(right, x[i] + this.width[i] / 2);
    }
    for (let i = 0; i < this.count; i++) bottom = Math.max(bottom, y[i] + this.height[i]);
    const corners = [];
    for (let i = 0; i < this.count; i++) {
      corners.push(rounded(x[i] - left - sizes[2 * i] / 2), rounded(y[i]));
    }
    for (const lane of this.lanes) this.laneStops(lane, x, y, left, ways);
    const lanes = this.via.map((way, e) => way && this.points(way, edges[3 * e + 1], y, left, ways));
    return { corners, width: rounded(right - left), height: rounded(bottom), lanes, high: this.high };
  }

  // Fold a tall stack; returns the ways of lines between columns, null if it cannot be cut.
  folded(tall, x, y) {
    const { edges, ends } = this.problem;
    const { count, kinds, rank, height } = this;
    const still = Uint8Array.from(x, (_, i) => (i < count && kinds[i] === OUT ? 1 : 0));
    let last = 0;
    for (let i = 0; i < x.length; i++) if (!still[i]) last = Math.max(last, rank[i]);
    const over = new Float64Array(last + 1), under = new Float64Array(last + 1).fill(Infinity);
    for (let i = 0; i < x.length; i++) {
      if (still[i]) continue;
      over[rank[i]] = Math.max(over[rank[i]], y[i] + height[i]);
      if (rank[i]) under[rank[i] - 1] = Math.min(under[rank[i] - 1], y[i]);
    }
    for (let r = 1; r <= last; r++) over[r] = Math.max(over[r], over[r - 1]);
    for (let r = last - 1; r >= 0; r--) under[r] = Math.min(under[r], under[r + 1]);
    const passing = new Int32Array(last + 1), links = [];
    const link = (u, v, exit, entry, value) => {
      links.push({ u, v, exit, entry, value });
      passing[Math.min(rank[u], last)] += 1;
    };
    for (const { source, value, start, dummies } of this.lanes) {
      dummies.forEach((d, k) => {
        if (k) link(dummies[k - 1], d, x[dummies[k - 1]], x[d], value);
        else link(source, d, x[source] + start, x[d], value);
      });
    }
    this.via.forEach((way, e) => {
      if (!way) return;
      const { lane: { source, value, start, dummies }, upTo } = way, target = edges[3 * e + 1];
      const u = upTo ? dummies[upTo - 1] : source;
      link(u, target, upTo ? x[u] : x[u] + start, x[target] + ends[2 * e + 1], value);
    });
    const cuts = cutsOf(tall, over, under, passing);
    if (!cuts.length) return null;
    return fold(cuts, { rank, width: this.width, height, x, y, still }, links);
  }

  // The places of a lane, without those between two others on one line down: `stops`, and for each
  // of its dummies how many of them precede its own place.
  laneStops(lane, x, y, left, ways) {
    const stops = lane.stops = [], before = lane.before = [], own = lane.own = [];
    let u = lane.source, last = null;
    const pass = (px, py) => {
      const n = stops.length;
      if (last && !(n && stops[n - 2] === last[0] && last[0] === px)) stops.push(...last);
      last = [px, py];
    };
    for (const d of lane.dummies) {
      const way = ways?.get(`${u} ${d} ${lane.value}`) ?? [];
      for (let i = 0; i < way.length; i += 2) pass(rounded(way[i] - left), rounded(way[i + 1]));
      pass(rounded(x[d] - left), rounded(y[d]));
      before.push(stops.length);
      own.push(last);
      u = d;
    }
  }

  // The places of an edge: its lane's up to where it leaves, then straight down to its target.
  points({ lane, upTo }, target, y, left, ways) {
    const points = upTo ? lane.stops.slice(0, lane.before[upTo - 1]) : [];
    if (upTo) points.push(...lane.own[upTo - 1]);
    const u = upTo ? lane.dummies[upTo - 1] : lane.source;
    const way = ways?.get(`${u} ${target} ${lane.value}`) ?? [];
    way.forEach((at, i) => points.push(rounded(i % 2 ? at : at - left)));
    const n = points.length;
    if (n && y[target] - points[n - 1] > 1.5 * GAP_ALONG) {
      points.push(points[n - 2], rounded(y[target] - GAP_ALONG));
    }
    return points;
  }

  addLanes() {
    const { edges, ends } = this.problem;
    const { count, rank } = this;
    const longest = count <= 300 ? 1000 : count <= 900 ? 40 : 12;
    const lanes = new Map();
    const span = (e) => rank[edges[3 * e + 1]] - rank[edges[3 * e]];
    const order = Array.from({ length: this.edgeCount }, (_, e) => e)
      .sort((a, b) => span(a) - span(b) || a - b);
    this.via = new Array(this.edgeCount).fill(null);
    for (const e of order) {
      const source = edges[3 * e], target = edges[3 * e + 1];
      const start = ends[2 * e], end = ends[2 * e + 1];
      const value = edges[3 * e + 2], key = source + " " + value;
      let lane = lanes.get(key);
      if (!lane) lanes.set(key, lane = { source, value, start, dummies: [] });
      const { dummies } = lane, wanted = rank[target] - rank[source] - 1;
      if (wanted - dummies.length > longest) continue;
      while (dummies.length < wanted) {
        const last = dummies.length ? dummies[dummies.length - 1] : source;
        const dummy = rank.length;
        rank.push(rank[last] + 1);
        this.still.push(this.still[source]);
        this.width.push(LANE);
        this.height.push(0);
        this.addLinks();
        this.link(last, dummy, dummies.length ? 0 : start);
        dummies.push(dummy);
      }
      this.via[e] = { lane, upTo: wanted };
      this.link(wanted ? dummies[wanted - 1] : source, target, (wanted ? 0 : start) - end);
    }
    this.lanes = [...lanes.values()];
  }

  link(upper, lower, shift) {
    const { count, width, height } = this;
    // Large boxes that are alike are put straight below each other, even if their ports are not.
    if (upper < count && lower < count && height[upper] > 100 && height[upper] === height[lower]
      && width[upper] === width[lower]) shift = 0;
    this.below[upper].push(lower);
    this.belowShift[upper].push(-shift);
    this.above[lower].push(upper);
    this.aboveShift[lower].push(shift);
  }

  order() {
    let last = 0;
    for (const r of this.rank) last = Math.max(last, r);
    const rows = Array.from({ length: last + 1 }, () => []);
    this.rank.forEach((rank, item) => rows[rank].push(item));
    if (rows.every((row) => row.length <= 1)) return rows;
    const fixed = this.fixedRows(rows);
    const size = this.rank.length;
    const pull = new Int32Array(size);
    pull.set(this.problem.pull);
    let best = null, least = Infinity;
    const swaps = size <= 600 ? 8 : size <= 2000 ? 2 : 0;
    const rounds = size <= 400 ? 12 : size <= 4000 ? 5 : 3;
    const starts = size <= 160 ? 8 : size <= 300 ? 4 : 1;
    for (let start = 0; start < starts && least; start++) {
      const now = rows.map((row, r) => (fixed[r] ? row.slice() : shuffled(row, start)));
      const at = new Float64Array(size);
      sweep(now, at, this.above, false, 0, fixed);
      for (let turn = 0; turn <= rounds && least; turn++) {
        if (turn % 2) sweep(now, at, this.below, true, 1, fixed);
        else if (turn) sweep(now, at, this.above, false, 1, fixed);
        if (swaps) this.swap(now, pull, swaps, fixed);
        const price = crossings(now, this.below, size) + pulled(now, pull);
        if (price < least) { best = now.map((r) => r.slice()); least = price; }
        for (const row of now) row.forEach((item, j) => { at[item] = (j + 0.5) / row.length; });
      }
    }
    return best;
  }

  // Put ports in their order, if known; returns for each row whether it must stay as it is.
  fixedRows(rows) {
    const { count, kinds, problem: { portOrder } } = this;
    const children = kinds.filter((kind) => kind === CHILD).length;
    return rows.map((row) => {
      if (!portOrder.length || !row.every((i) => i < count && kinds[i] !== CHILD)) return false;
      row.sort((a, b) => portOrder[a - children] - portOrder[b - children]);
      return true;
    });
  }

  // Swap neighbours of a row while that leaves fewer crossings.
  swap(rows, pull, rounds, fixed) {
    const { above, below } = this;
    const place = new Int32Array(pull.length);
    for (const row of rows) row.forEach((item, j) => { place[item] = j; });
    const crossed = (a, b) => {
      let total = Math.max(pull[a], 0) + Math.max(-pull[b], 0);
      for (const near of [above, below]) {
        for (const u of near[a]) for (const v of near[b]) if (place[u] > place[v]) total += 1;
      }
      return total;
    };
    for (let round = 0, better = true; round < rounds && better; round++) {
      better = false;
      for (let r = 0; r < rows.length; r++) {
        const row = rows[r];
        if (fixed[r]) continue;
        for (let j = 1; j < row.length; j++) {
          const a = row[j - 1], b = row[j];
          if (above[a].length * above[b].length + below[a].length * below[b].length > 4000) continue;
          if (crossed(b, a) >= crossed(a, b)) continue;
          row[j - 1] = b; row[j] = a;
          place[b] = j - 1; place[a] = j;
          better = true;
        }
      }
    }
  }

  across(rows) {
    const { count, width } = this;
    const offsets = rows.map((row) => {
      let position = 0;
      return row.map((item, j) => {
        if (j) {
          const before = row[j - 1];
          const both = before >= count && item >= count;
          const gap = both ? 2 : GAP_ACROSS * (Math.max(before, item) >= count ? 0.6 : 1);
          position += (width[before] + width[item]) / 2 + gap;
        }
        return position;
      });
    });
    return placesAcross(rows, offsets, this.spine(this.above, this.aboveShift),
      this.spine(this.below, this.belowShift), count);
  }

  // Each item's links for computed values; those for weights are left out, as these go beside.
  spine(links, shifts) {
    const { still } = this;
    const kept = { links: [], shifts: [] };
    links.forEach((list, i) => {
      const moving = list.filter((other) => !still[other] && !still[i]);
      const some = moving.length && moving.length < list.length;
      kept.links.push(some ? moving : list);
      kept.shifts.push(some ? shifts[i].filter((_, k) => !still[list[k]]) : shifts[i]);
    });
    return kept;
  }

  along(rows, x) {
    let low = Infinity, high = 0;
    for (let i = 0; i < this.count; i++) {
      if (this.kinds[i] !== CHILD) continue;
      low = Math.min(low, this.height[i]);
      high = Math.max(high, this.height[i]);
    }
    return high > 1.5 * low ? this.skyline(rows, x) : this.rows(rows);
  }

  rows(rows) {
    const { count, kinds, height } = this;
    const y = new Float64Array(this.rank.length);
    let top = 0, bottom = 0;
    for (const row of rows) {
      let high = 0, ports = true;
      for (const i of row) {
        high = Math.max(high, height[i]);
        ports &&= i < count && kinds[i] !== CHILD;
      }
      for (const item of row) {
        const lane = item >= count || kinds[item] !== CHILD;
        y[item] = top + (lane ? high / 2 : (high - height[item]) / 2);
        bottom = Math.max(bottom, y[item]);
      }
      top += high + (ports ? GAP_ALONG * 0.6 : GAP_ALONG);
    }
    for (let i = 0; i < count; i++) if (kinds[i] === OUT) y[i] = bottom;
    return y;
  }

  skyline(rows, x) {
    const { count, kinds, width, height, above } = this;
    let left = Infinity, right = -Infinity;
    for (let i = 0; i < x.length; i++) {
      left = Math.min(left, x[i] - width[i] / 2);
      right = Math.max(right, x[i] + width[i] / 2);
    }
    left -= GAP_ACROSS; right += GAP_ACROSS;
    const cells = Math.trunc((right - left) / BUCKET) + 2;
    const sky = new Float64Array(cells);
    const y = new Float64Array(x.length);
    // Narrower than the horizontal distances, so that neighbours never touch.
    const half = (item) => (item < count ? width[item] / 2 + 2 : 1);
    const start = (item) => Math.trunc((x[item] - half(item) - left) / BUCKET);
    const end = (item) => Math.trunc((x[item] + half(item) - left) / BUCKET) + 1;
    for (const row of rows) {
      // A box at the end of a lane comes first and keeps the lane free down to itself.
      const last = (item) => (above[item].some((a) => a >= count) ? 0 : 1);
      for (const item of row.slice().sort((a, b) => last(a) - last(b))) {
        if (item < count && kinds[item] === IN) continue;
        const a = start(item), b = end(item);
        let where = 0;
        for (let c = a; c < b; c++) where = Math.max(where, sky[c]);
        for (const link of above[item]) {
          const port = link < count && kinds[link] === IN;
          const gap = port ? GAP_ALONG * 0.6 : link < count ? GAP_ALONG : 12;
          where = Math.max(where, y[link] + height[link] + gap);
        }
        y[item] = where;
        sky.fill(where + height[item] + (item >= count ? 6 : GAP_ALONG), a, b);
        if (item >= count) continue;
        for (const link of above[item]) {
          if (link < count) continue;
          for (let c = start(link); c < end(link); c++) sky[c] = Math.max(sky[c], where - 4);
        }
      }
    }
    this.sinkSources(y, x, start, end, cells);
    let bottom = 0;
    for (let i = 0; i < x.length; i++) {
      if (i >= count || kinds[i] !== OUT) bottom = Math.max(bottom, y[i] + height[i]);
    }
    for (let i = 0; i < count; i++) if (kinds[i] === OUT) y[i] = bottom + GAP_ALONG * 0.6;
    return y;
  }

  // Move boxes that read nothing down towards their first reader, as far as there is room.
  sinkSources(y, x, start, end, cells) {
    const { count, kinds, height, above, below } = this;
    const roof = new Float64Array(cells).fill(Infinity);
    const order = Array.from({ length: x.length }, (_, i) => i)
      .sort((a, b) => y[b] - y[a] || a - b);
    for (const item of order) {
      const a = start(item), b = end(item);
      if (item < count && kinds[item] === CHILD && !above[item].length) {
        let reach = Infinity;
        for (const reader of below[item]) reach = Math.min(reach, y[reader]);
        let lowest = reach === Infinity ? -Infinity : reach - GAP_ALONG;
        for (let c = a; c < b; c++) lowest = Math.min(lowest, roof[c]);
        lowest -= height[item];
        if (lowest > y[item] && lowest !== Infinity) y[item] = lowest;
      }
      const limit = y[item] - (item >= count ? 6 : GAP_ALONG);
      for (let c = a; c < b; c++) roof[c] = Math.min(roof[c], limit);
    }
  }
}

// The row of each item: the longest way from a start.
function ranks(count, kinds, edges) {
  const below = Array.from({ length: count }, () => []);
  const above = Array.from({ length: count }, () => []);
  for (let e = 0; e < edges.length; e += 3) {
    below[edges[e]].push(edges[e + 1]);
    above[edges[e + 1]].push(edges[e]);
  }
  const first = kinds.includes(IN) ? 1 : 0;
  const rank = Array.from(kinds, (kind) => (kind === IN ? 0 : first));
  const order = [], waiting = above.map((a) => a.length);
  for (let i = 0; i < count; i++) if (!waiting[i]) order.push(i);
  for (let done = 0; done < order.length; done++) {
    for (const reader of below[order[done]]) if (!--waiting[reader]) order.push(reader);
  }
  if (order.length < count) throw new Error("the boxes of one container must not form a cycle");
  for (const item of order) for (const a of above[item]) {
    rank[item] = Math.max(rank[item], rank[a] + 1);
  }
  // Nodes that depend on nothing that changes (a weight, its transpose) go beside their reader.
  const still = Array.from(kinds, (kind) => kind === CHILD);
  for (const item of order) still[item] &&= above[item].every((a) => still[a]);
  for (let at = count - 1; at >= 0; at--) {
    const item = order[at];
    if (!still[item] || !below[item].length || above[item].length > 1) continue;
    let near = Infinity;
    for (const reader of below[item]) near = Math.min(near, rank[reader]);
    rank[item] = Math.max(rank[item], near - 1);
  }
  if (kinds.includes(OUT)) {
    let last = 0;
    for (let i = 0; i < count; i++) if (kinds[i] !== OUT) last = Math.max(last, rank[i]);
    for (let i = 0; i < count; i++) if (kinds[i] === OUT) rank[i] = last + 1;
  }
  const used = [...new Set(rank)].sort((a, b) => a - b);
  const index = new Map(used.map((r, i) => [r, i]));
  return { rank: rank.map((r) => index.get(r)), still };
}

// A row as it is at first, then backwards, then in a fixed pseudo-random order.
function shuffled(row, start) {
  if (start < 2) return start ? row.slice().reverse() : row.slice();
  const made = row.slice();
  let seed = start * 7919 + row.length;
  for (let j = made.length - 1; j > 0; j--) {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    const k = seed % (j + 1);
    [made[j], made[k]] = [made[k], made[j]];
  }
  return made;
}

// Sort each row by the mean place of its neighbours, and set places on the way.
function sweep(rows, at, near, up, skip, fixed) {
  const keys = new Float64Array(at.length);
  for (let turn = skip; turn < rows.length; turn++) {
    const r = up ? rows.length - 1 - turn : turn, row = rows[r];
    if (row.length > 1 && !fixed[r]) {
      for (let j = 0; j < row.length; j++) {
        const item = row[j], links = near[item];
        let sum = 0;
        for (const link of links) sum += at[link];
        keys[item] = links.length ? sum / links.length : at[item] || j / row.length;
      }
      row.sort((a, b) => keys[a] - keys[b]);
    }
    const step = 1 / row.length;
    for (let j = 0; j < row.length; j++) at[row[j]] = (j + 0.5) * step;
  }
}

// The number of items beside lines on their way out to a side.
function pulled(rows, pull) {
  let total = 0;
  for (const row of rows) {
    for (let j = 0; j < row.length; j++) {
      const by = pull[row[j]];
      total += by > 0 ? by * (row.length - 1 - j) : -by * j;
    }
  }
  return total;
}

// The number of crossings between neighbouring rows, counted with a tree over the ends so far.
function crossings(rows, below, size) {
  const where = new Int32Array(size);
  for (const row of rows) for (let j = 0; j < row.length; j++) where[row[j]] = j;
  let total = 0;
  for (let r = 0; r + 1 < rows.length; r++) {
    const wide = rows[r + 1].length;
    const tree = new Int32Array(wide + 1);
    let seen = 0;
    for (const item of rows[r]) {
      for (const reader of below[item]) {
        let before = 0; // ends seen at or left of this one
        for (let k = where[reader] + 1; k > 0; k -= k & -k) before += tree[k];
        total += seen - before;
      }
      for (const reader of below[item]) {
        for (let k = where[reader] + 1; k <= wide; k += k & -k) tree[k] += 1;
        seen += 1;
      }
    }
  }
  return total;
}
