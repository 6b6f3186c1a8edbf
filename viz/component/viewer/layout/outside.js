// The layout for who has no browser: one JSON value in, one out.

import { laidOutGraph } from "./graph.js";
import { layout } from "./layout.js";

export function layoutOutside({ block, opened, options }) {
  const drawn = layout(laidOutGraph(block), new Set(opened), options);
  return { ...drawn, shown: Array.from(drawn.shown) };
}
