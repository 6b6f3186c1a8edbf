// Folds a tall stack of rows into columns side by side, about as wide as a screen.
//
// It is cut where everything above ends before anything below begins. Lines across a cut leave
// their column at the bottom, rise between the columns, and enter the next one from above; the
// lines of one cut are nested, so they cross each other no more than before.

const APART = 26, LANE = 7, CHANNEL = 14; // between columns; between connectors; before the first

// The last rank of every column but the last; none if the stack is not tall.
//   tall: the wished height of a column.
//   ends, starts: by rank, where everything up to it ends and everything after it begins.
//   passing: by rank, the number of lines that cross there.
export function cutsOf(tall, ends, starts, passing) {
  const last = ends.length - 1, height = ends[last];
  const columns = Math.round(height / tall);
  const cuts = [];
  let from = 0; // height at which the column begins
  for (let left = columns; left > 1; left--) {
    const wanted = (height - from) / left;
    let best = -1, least = Infinity;
    for (let r = (cuts.length ? cuts[cuts.length - 1] + 1 : 0); r < last; r++) {
      if (starts[r] < ends[r] || starts[r] === Infinity) continue;
      const off = Math.abs(ends[r] - from - wanted) / wanted;
      const price = off + 0.04 * passing[r];
      if (off < 0.6 && price < least) { least = price; best = r; }
    }
    if (best < 0) continue;
    cuts.push(best);
    from = starts[best];
  }
  return cuts;
}

// Put the ranks after each cut beside those before it; x and y are changed in place.
//   items: {rank, width, height, x, y, out}; `out` ports are at the end and follow the last column.
//   links: {u, v, exit, entry, value}, every line from an item to one of a later rank.
// Returns, by the "u v value" of each line across a cut, the points on its way.
export function fold(cuts, { rank, width, height, x, y, still }, links) {
  const column = new Int32Array(x.length);
  for (let i = 0; i < x.length; i++) while (column[i] < cuts.length && rank[i] > cuts[column[i]]) column[i]++;
  const count = cuts.length + 1;
  const left = new Float64Array(count).fill(Infinity), right = new Float64Array(count).fill(-Infinity);
  const top = new Float64Array(count).fill(Infinity), bottom = new Float64Array(count).fill(-Infinity);
  for (let i = 0; i < x.length; i++) {
    const c = column[i];
    left[c] = Math.min(left[c], x[i] - width[i] / 2);
    right[c] = Math.max(right[c], x[i] + width[i] / 2);
    if (still[i]) continue; // a port at the end, which goes below all columns
    top[c] = Math.min(top[c], y[i]);
    bottom[c] = Math.max(bottom[c], y[i] + height[i]);
  }
  const bundles = cuts.map((_, c) => Map.groupBy(
    links.filter(({ u, v }) => column[u] === c && column[v] === c + 1),
    ({ u, value }) => `${u} ${value}`));
  const channel = CHANNEL + LANE * Math.max(0, ...bundles.map((b) => b.size));
  const shift = new Float64Array(count);
  let at = left[0];
  for (let c = 0; c < count; c++) {
    shift[c] = at - left[c];
    at += right[c] - left[c] + (c < cuts.length ? 2 * APART + LANE * bundles[c].size : 0);
  }
  const down = (c) => (c ? top[0] + channel : top[0]);
  let end = 0;
  for (let c = 0; c < count; c++) end = Math.max(end, down(c) + bottom[c] - top[c]);
  const ways = new Map();
  bundles.forEach((bundle, c) => {
    const outer = [...bundle.values()].sort(([a], [b]) => b.exit - a.exit);
    const floor = down(c) + bottom[c] - top[c], roof = down(c + 1);
    outer.forEach((own, i) => {
      const low = floor + CHANNEL + LANE * i, high = roof - CHANNEL - LANE * (outer.length - 1 - i);
      const between = right[c] + shift[c] + APART + LANE * i;
      for (const { u, v, value, entry } of own) {
        const out = own[0].exit + shift[c], into = entry + shift[c + 1];
        ways.set(`${u} ${v} ${value}`, [out, low, between, low, between, high, into, high]);
      }
    });
    end = Math.max(end, floor + CHANNEL + LANE * outer.length);
  });
  for (let i = 0; i < x.length; i++) {
    const c = column[i];
    x[i] += shift[c];
    y[i] = still[i] ? end + CHANNEL : y[i] - top[c] + down(c);
  }
  return ways;
}
