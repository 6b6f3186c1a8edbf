// The edge between a pane and the picture. Width and fold are kept on the document's root for the
// page's style, and in the browser's storage for the next load.

import { recall, remember } from "./viewer/parts.js";

const LEAST = 180, MOST = 640, STEP = 16, USUAL = 232; // pixels

export default function (component) {
  const { data: { name, what }, parentElement } = component;
  const edge = parentElement.querySelector(".edge"), fold = parentElement.querySelector(".fold");
  const root = document.documentElement;
  let { width = USUAL, folded = false } = recall(`pane ${name}`, "localStorage") ?? {};

  const show = () => {
    root.style.setProperty(`--rs-pane-${name}`, `${width}px`);
    root.classList.toggle(`rs-fold-${name}`, folded);
    edge.setAttribute("aria-label", `Width of the pane: ${what}`);
    for (const [key, value] of Object.entries({ min: LEAST, max: MOST, now: folded ? 0 : width })) {
      edge.setAttribute(`aria-value${key}`, String(value));
    }
    const label = `${folded ? "Show" : "Fold"} the pane: ${what}`;
    fold.setAttribute("aria-label", label);
    fold.setAttribute("aria-expanded", String(!folded));
    fold.title = label;
  };
  const keep = () => {
    show();
    remember(`pane ${name}`, { width, folded }, "localStorage");
  };
  const widen = (to) => {
    width = Math.round(Math.max(LEAST, Math.min(MOST, to, innerWidth - 320)));
    folded = false;
    show();
  };

  fold.onclick = () => { folded = !folded; keep(); };
  edge.onpointerdown = (event) => {
    edge.setPointerCapture(event.pointerId);
    edge.classList.add("dragged");
    const left = event.clientX - (folded ? 0 : width);
    edge.onpointermove = (at) => widen(at.clientX - left);
    edge.onlostpointercapture = () => {
      edge.onpointermove = null;
      edge.classList.remove("dragged");
      keep();
    };
  };
  edge.ondblclick = () => { widen(USUAL); keep(); };
  edge.onkeydown = (event) => {
    const way = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
    if (way) widen(width + way);
    else if (event.key === "Enter") folded = !folded;
    else return;
    event.preventDefault();
    keep();
  };
  show();
}
