// A few lines about the node, group or edge under the pointer.

import { shortened } from "./layout/words.js";
import { bytesText, clamp, element, Part } from "./parts.js";

const LONGEST = 240; // characters of a line; the details card has them all

export class Tooltip extends Part {
  hide() { clearTimeout(this.timer); this.viewer.tip.classList.add("hidden"); }

  fill(i) {
    const v = this.viewer, { box, node, strings, groups } = v.drawing;
    const lines = [];
    if (box.kind[i]) {
      const group = groups[box.group[i]];
      lines.push(group.path, `${group.nodes.toLocaleString("en")} nodes`,
        v.capturesText(box.group[i]), group.operators.slice(0, 4).map(([op, count]) => `${count} × ${op}`).join(", "),
        "double-click to " + (box.open[i] ? "close" : "open"),
        group.alone ? "the arrow at its right opens it alone" : "");
    } else {
      const n = v.nodeIndex.get(box.id[i]);
      lines.push(node.full[n], node.types[n].map((t) => strings[t]).join(", "),
        bytesText(node.bytes[n]), strings[node.scope[n]], node.note[n],
        v.overlays.describe(n));
    }
    const [first, ...rest] = lines.map((line) => shortened(line ?? "", LONGEST));
    v.tip.replaceChildren(element("b", {}, first),
      ...rest.filter(Boolean).map((line) => element("span", {}, line)));
    v.tip.classList.remove("hidden");
  }

  place(sx, sy) {
    const v = this.viewer;
    if (v.tip.classList.contains("hidden")) return;
    const { offsetWidth: w, offsetHeight: h } = v.tip;
    v.tip.style.left = `${clamp(sx + 14, 4, Math.max(4, v.wide - w - 4))}px`;
    v.tip.style.top = `${sy + 18 + h > v.high ? Math.max(4, sy - h - 8) : sy + 18}px`;
  }
}
