// The layout for who has no browser: one JSON value in, one out.

import { laidOutGraph } from "../../../viz/component/viewer/layout/graph.js";
import { layout } from "../../../viz/component/viewer/layout/layout.js";

export function layoutOutside({ block, opened, options }) {
  const drawn = layout(laidOutGraph(block), new Set(opened), options);
  return { ...drawn, shown: Array.from(drawn.shown) };
}
