// The layout for who has no browser: one JSON value in, one out.

import { laidOutGraph } from "../../../viz/component/viewer/layout/graph.js";
import { layout } from "../../../viz/component/viewer/layout/layout.js";

export function layoutOutside({ block, opened }) {
  const drawn = layout(laidOutGraph(block), new Set(opened));
  return { ...drawn, shown: Array.from(drawn.shown) };
}
