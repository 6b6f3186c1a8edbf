// Horizontal places for layered rows: long straight runs, few bends.
//
// The method is Brandes and Köpf's "Fast and simple horizontal coordinate assignment" (2001): items
// are aligned with a median neighbour into vertical blocks, blocks are packed side by side, once
// for each of the four combinations of up or down and left or right, and every item takes the mean
// of its two middle answers. Edges may start and end beside their items' centres, so the items of
// a block carry a shift. Packing is a longest path over the graph of blocks.

// The centres of all items.
//   rows: the items, from the first row to the last, each row in its order.
//   offsets: for each row rising positions whose differences are the least distances.
//   above: for each item, in `links` its neighbours in the row above that it may be straight under,
//     and in `shifts` how far right of each of them it has to be for that; below likewise.
//   firstDummy: items from this number on are points of long edges.
export function placesAcross(rows, offsets, above, below, firstDummy) {
  const count = above.links.length;
  const place = new Int32Array(count);
  for (const row of rows) for (let j = 0; j < row.length; j++) place[row[j]] = j;
  const crossed = crossedLinks(rows, above.links, place, firstDummy);
  const turnedRows = rows.slice().reverse(), turnedOffsets = offsets.slice().reverse();
  const answers = [];
  for (const upward of [false, true]) {
    const { links, shifts } = upward ? below : above;
    const order = upward ? turnedRows : rows, gaps = upward ? turnedOffsets : offsets;
    for (const mirrored of [false, true]) {
      const [root, shift] = align(order, links, shifts, place, crossed, upward, mirrored);
      answers.push(pack(order, gaps, root, shift, mirrored));
    }
  }
  return balance(answers, count);
}

// Edges that cross a stretch of a long edge: they must bend, for long edges stay straight.
function crossedLinks(rows, above, place, firstDummy) {
  const count = above.length;
  const crossed = new Set();
  for (let r = 1; r < rows.length; r++) {
    const upper = rows[r - 1], row = rows[r];
    let left = -1, start = 0;
    for (let j = 0; j < row.length; j++) {
      const item = row[j];
      const inner = item < firstDummy ? -1 : above[item].find((u) => u >= firstDummy) ?? -1;
      if (inner < 0 && j < row.length - 1) continue;
      const right = inner >= 0 ? place[inner] : upper.length;
      for (let k = start; k <= j; k++) {
        const reader = row[k];
        for (const source of above[reader]) {
          const at = place[source];
          const both = reader >= firstDummy && source >= firstDummy;
          if ((at < left || at > right) && !both) crossed.add(source * count + reader);
        }
      }
      left = right; start = j + 1;
    }
  }
  return crossed;
}

// Join each item with a median neighbour if that crosses no other join of the row.
function align(order, links, shifts, place, crossed, upward, mirrored) {
  const count = place.length;
  const root = new Int32Array(count), shift = new Float64Array(count);
  const taken = new Uint8Array(count);
  for (let i = 0; i < count; i++) root[i] = i;
  for (const row of order) {
    let last = mirrored ? Infinity : -1;
    for (let at = 0; at < row.length; at++) {
      const item = row[mirrored ? row.length - 1 - at : at];
      const near = links[item];
      const n = near.length;
      if (!n) continue;
      const byPlace = n === 1 ? [0]
        : Array.from(near, (_, k) => k).sort((a, b) => place[near[a]] - place[near[b]] || a - b);
      const low = (n - 1) >> 1, high = n >> 1;
      for (let turn = 0; turn <= high - low; turn++) {
        const k = byPlace[mirrored ? high - turn : low + turn];
        const neighbour = near[k];
        const pair = upward ? item * count + neighbour : neighbour * count + item;
        const free = mirrored ? place[neighbour] < last : place[neighbour] > last;
        if (free && !taken[neighbour] && !crossed.has(pair)) {
          taken[neighbour] = 1;
          root[item] = root[neighbour];
          shift[item] = shift[neighbour] + shifts[item][k];
          last = place[neighbour];
          break;
        }
      }
    }
  }
  return [root, shift];
}

// Blocks as far to one side as they go, then back towards what they are packed against.
function pack(rows, offsets, root, shift, mirrored) {
  const count = root.length;
  const from = [], to = [], gaps = [];
  const waiting = new Int32Array(count);
  const first = new Int32Array(count).fill(-1);
  for (let r = 0; r < rows.length; r++) {
    const row = rows[r], offset = offsets[r];
    for (let j = 1; j < row.length; j++) {
      const left = row[j - 1], right = row[j];
      let a = root[left], b = root[right];
      if (mirrored) [a, b] = [b, a];
      from.push(a); to.push(b);
      gaps.push(offset[j] - offset[j - 1] + shift[left] - shift[right]);
      waiting[b] += 1;
    }
  }
  const next = new Int32Array(from.length);
  for (let e = from.length - 1; e >= 0; e--) { next[e] = first[from[e]]; first[from[e]] = e; }
  const x = new Float64Array(count);
  const sorted = [];
  for (let i = 0; i < count; i++) if (root[i] === i && !waiting[i]) sorted.push(i);
  for (let done = 0; done < sorted.length; done++) {
    const block = sorted[done];
    for (let e = first[block]; e >= 0; e = next[e]) {
      x[to[e]] = Math.max(x[to[e]], x[block] + gaps[e]);
      if (!--waiting[to[e]]) sorted.push(to[e]);
    }
  }
  for (let at = sorted.length - 1; at >= 0; at--) {
    const block = sorted[at];
    let least = Infinity;
    for (let e = first[block]; e >= 0; e = next[e]) least = Math.min(least, x[to[e]] - gaps[e]);
    if (least !== Infinity) x[block] = Math.max(x[block], least);
  }
  const sign = mirrored ? -1 : 1;
  const answer = new Float64Array(count);
  for (let i = 0; i < count; i++) answer[i] = sign * x[root[i]] + shift[i];
  return answer;
}

// Move the four answers to the narrowest one's side, then take the mean of the middle two.
function balance(answers, count) {
  const ends = answers.map((answer) => {
    let low = Infinity, high = -Infinity;
    for (const v of answer) { if (v < low) low = v; if (v > high) high = v; }
    return [low, high];
  });
  const narrow = ends.reduce((a, b) => (b[1] - b[0] < a[1] - a[0] ? b : a));
  const moves = ends.map(([low, high], k) => (k % 2 ? narrow[1] - high : narrow[0] - low));
  const middle = new Float64Array(count);
  const four = new Float64Array(4);
  for (let i = 0; i < count; i++) {
    for (let k = 0; k < 4; k++) four[k] = answers[k][i] + moves[k];
    four.sort();
    middle[i] = (four[1] + four[2]) / 2;
  }
  return middle;
}
