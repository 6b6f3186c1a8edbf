// The two curves of a show: bytes against time along the frontier, and bytes held over one step.

import { sizeText } from "../layout/words.js";
import { element } from "../parts.js";
import { netPercent } from "./words.js";

const WIDE = 300, HIGH = 74, EDGE = 7; // of a chart in its own units

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function chart(label, ...children) {
  return drawn("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img",
    "aria-label": label }, ...children);
}

// A point, drawn as a line without length to be round even in a stretched chart.
function dot(x, y, name) {
  return drawn("path", { d: `M${x} ${y}h0.001`, class: name });
}

export function frontierChart(show) {
  const { cuts, at } = show;
  const low = Math.min(...cuts.map((c) => c.bytes)), high = Math.max(...cuts.map((c) => c.bytes));
  const nets = cuts.map((c) => c.net), least = Math.min(...nets);
  const most = Math.max(least + 1e-9, ...nets);
  const x = (c) => EDGE + (WIDE - 2 * EDGE) * (high > low ? (c.bytes - low) / (high - low) : 0.5);
  const y = (c) => HIGH - EDGE - (HIGH - 2 * EDGE) * (c.net - least) / (most - least);
  const line = cuts.filter((c) => !c.title).map((c) => `${x(c)},${y(c)}`).join(" ");
  const points = cuts.map((c, k) => {
    const words = `${c.title || "Cut"}: ${sizeText(c.bytes)} kept, ${netPercent(c.net)} time`;
    const point = dot(x(c), y(c), k === at ? "now" : c.title ? "beside" : "point");
    const around = dot(x(c), y(c), "hit");
    around.append(drawn("title", {}, words));
    around.addEventListener("click", () => show.go(k));
    return [point, around];
  });
  return chart("Bytes kept against time added; a point is a cut",
    drawn("polyline", { points: line, class: "line" }), ...points.flat());
}

export function heldChart(show) {
  const { cut, cuts, capture } = show;
  const end = Math.max(...cuts.map((c) => c.forward + c.backward));
  const most = Math.max(1, ...cuts.map((c) => c.peak));
  const x = (step) => WIDE * step / end;
  const y = (bytes) => HIGH - (HIGH - 2 * EDGE) * bytes / most;
  let path = `M0 ${HIGH}`;
  for (const [step, bytes] of cut.held) path += `H${x(step)}V${y(bytes)}`;
  path += `H${x(cut.forward + cut.backward)}V${HIGH}Z`;
  const parts = [drawn("path", { d: path, class: "area" }),
    drawn("path", { d: `M${x(cut.forward)} 0V${HIGH}`, class: "turn" }),
    drawn("path", { d: `M0 ${y(cut.peak)}H${WIDE}`, class: "peak" })];
  const row = capture === null ? null : show.row(capture);
  if (row) {
    const from = row.begin, to = row.end ?? cut.forward + cut.backward;
    parts.push(drawn("rect", { x: x(from), y: 0, width: Math.max(1, x(to) - x(from)), height: HIGH,
      class: "life" }));
  }
  const forward = element("span", { style: `width: ${100 * cut.forward / end}%` }, "forward");
  const now = row ? `held from step ${row.begin} to ${row.end ?? "the end"}` : `peak ${sizeText(cut.peak)}`;
  return element("div", { class: "show-held-words" },
    chart("Bytes held over one step of training", ...parts),
    element("div", {}, forward, element("span", {}, "backward")), element("span", {}, now));
}
