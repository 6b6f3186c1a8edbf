// The curve of an edge between its points.

export const PLAIN = 0, LONG = 1, CROSSING = 2; // with lanes; without; from forward to backward

const STEPS = 8;

// An edge's points with its curves cut into straight pieces.
export function flattened(p, kind) {
  const down = kind !== CROSSING;
  const line = [p[0], p[1]];
  for (let i = 2; i < p.length; i += 2) {
    const [x0, y0, x1, y1] = [p[i - 2], p[i - 1], p[i], p[i + 1]];
    if (x0 !== x1 && y0 !== y1) {
      for (let k = 1; k < STEPS; k++) {
        const u = k / STEPS, v = 1 - u;
        // A cubic with its tangents along its direction: straight there at even pace, an S across.
        const along = 3 * v * v * u * 0.5 + 3 * v * u * u * 0.5 + u * u * u;
        const across = 3 * v * u * u + u * u * u;
        line.push(x0 + (x1 - x0) * (down ? across : along),
          y0 + (y1 - y0) * (down ? along : across));
      }
    }
    line.push(x1, y1);
  }
  return line;
}

// Whether a line runs through a rectangle (Liang and Barsky, 1984).
export function meets(x0, y0, x1, y1, left, top, right, bottom) {
  let from = 0, to = 1;
  const dx = x1 - x0, dy = y1 - y0;
  for (const [p, q] of [[-dx, x0 - left], [dx, right - x0], [-dy, y0 - top], [dy, bottom - y0]]) {
    if (p === 0) { if (q <= 0) return false; continue; }
    const r = q / p;
    if (p < 0) from = Math.max(from, r); else to = Math.min(to, r);
    if (from >= to) return false;
  }
  return true;
}
