// The texts of a show: the figures of a cut, its captures, and why one of them is kept.

import { sizeText } from "../layout/words.js";
import { button, element } from "../parts.js";

export const netPercent = (share) => `${share < 0 ? "" : "+"}${(share * 100).toFixed(1)} %`;
export function percent(share) {
  if (!share) return "none";
  if (share < 0.001) return "less than 0.1 %";
  return `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

function counted(count, one) { return `${count} ${one}${count === 1 ? "" : "s"}`; }

// The first of many names in a row, each once with its count.
function few(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  const words = [...counts].map(([name, n]) => (n > 1 ? `${name} (${n} times)` : name));
  return words.slice(0, 5).join(", ") + (words.length > 5 ? ` and ${words.length - 5} more` : "");
}

export function figures({ cut, cuts, at }, show) {
  const figure = (label, value, beside, title) => element("div", { title },
    element("span", {}, label), element("b", {}, value), element("small", {}, beside));
  const less = show.everything - cut.bytes;
  const masks = cut.saved.filter(({ sort, path }) => sort === "forced" && !path.length).length;
  const which = cut.title ? `${cut.title}, beside the frontier` : `cut ${at + 1} of ${cuts.length}`;
  return [
    figure("kept for the backward", sizeText(cut.bytes), less > 0
      ? `${percent(less / show.everything)} less than everything` : "everything that crosses",
    "Captures and dropout masks, each storage once"),
    figure("held at the peak", sizeText(cut.peak), `a whole step: ${cut.step}`,
    "The most held at any time: what is kept, and what the backward computes again"),
    figure("time added", netPercent(cut.net), `of the forward's, ${show.prices}`,
      `What the backward computes again (${percent(cut.share)}), less the writes and reads spared`),
    figure("captures", String(cut.saved.length - masks), `${counted(masks, "mask")} · ${
      at === show.chosen ? "chosen on the page" : which}`, which),
  ];
}

// A sentence on which cuts keep a capture.
function spread(show, id) {
  const { cuts } = show;
  const kept = cuts.filter((cut) => show.row(id, cut));
  if (kept.length === cuts.length) return "kept in every cut of the frontier";
  const whole = cuts.slice(cuts.indexOf(kept[0])).length === kept.length;
  return `kept in ${kept.length} of ${cuts.length} cuts${
    whole ? `, from ${sizeText(kept[0].bytes)} on` : ""}`;
}

const MEANT = {
  chosen: "At this price of time for bytes it is cheaper to keep it",
  forced: "It cannot be computed again, at any price",
  "by hand": "You chose so",
};

export function captureCard(show) {
  const { viewer: v, capture, cut } = show;
  const at = cut.saved.findIndex(({ id }) => id === capture);
  const move = (way, sign, label) => button(label, { class: "act", onclick: () => show.step(way) }, sign);
  const head = element("div", { class: "show-step" }, move(-1, "‹", "Previous capture (↑)"),
    element("span", { class: "grow" }, at < 0
      ? `${counted(cut.saved.length, "tensor")} kept` : `${at + 1} of ${cut.saved.length}`), move(1, "›", "Next capture (↓)"));
  if (at < 0) {
    const blue = "Blue is kept, dashed red computed again. Step through the captures to see why each "
      + "is kept and what would be computed in its place.";
    return element("section", { class: "show-card" }, head, element("p", {}, blue));
  }
  const { bytes, reason, sort, instead, whole, cost } = cut.saved[at];
  const n = v.nodeIndex.get(capture);
  const { node, strings } = v.drawing;
  const names = instead.map((id) => v.nodeIndex.get(id)).filter((i) => i !== undefined)
    .map((i) => node.title[i]);
  const title = n === undefined ? capture : node.title[n];
  const type = n === undefined ? "" : node.types[n].map((t) => strings[t]).join(", ");
  return element("section", { class: "show-card", "aria-live": "polite" }, head,
    element("h3", {}, title, element("span", { class: `sort ${sort.replace(" ", "-")}`,
      title: MEANT[sort] }, sort)),
    element("p", { class: "show-what" }, element("b", {}, bytes === null ? "unknown size"
      : bytes ? sizeText(bytes) : "no memory of its own"), ` ${type}`),
    n !== undefined && strings[node.scope[n]]
      ? element("p", { class: "show-what" }, element("code", {}, strings[node.scope[n]])) : null,
    element("p", {}, element("b", {}, "Why: "), `${reason}.`),
    instead.length && sort !== "forced" ? element("p", {}, element("b", {}, "Instead: "),
      `${whole ? "" : "at least "}${counted(instead.length, "node")} computed again (${few(names)}), `,
      `${percent(cost)} of the forward's time.`) : null,
    element("p", { class: "show-quiet" }, `${MEANT[sort]}; ${spread(show, capture)}.`));
}

export function captureList(show) {
  const { viewer: v, cut, capture } = show;
  const most = Math.max(1, ...cut.saved.map(({ bytes }) => bytes ?? 0));
  const rows = cut.saved.map(({ id, bytes, sort }) => {
    const n = v.nodeIndex.get(id);
    const bar = element("i", { class: sort === "forced" ? "forced" : "" });
    bar.style.width = `${Math.max(1, 100 * (bytes ?? 0) / most)}%`;
    return element("li", {}, element("button", { "aria-current": String(id === capture),
      title: n === undefined ? id : v.drawing.strings[v.drawing.node.scope[n]] || id,
      onclick: () => show.choose(id === capture ? null : id) },
    element("span", {}, n === undefined ? id : v.drawing.node.title[n],
      element("small", {}, n === undefined ? "" : v.drawing.strings[v.drawing.node.scope[n]])),
    element("small", {}, bytes ? sizeText(bytes) : "–"), element("div", { class: "bar-of" }, bar)));
  });
  return element("ol", { class: "show-list" }, ...rows);
}
