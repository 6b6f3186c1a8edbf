// A canvas that records drawing as SVG: each path as it is traced, text as text.

import { rounded, textWidth } from "../layout/words.js";

const STATE = ["fillStyle", "strokeStyle", "lineWidth", "font", "textAlign", "globalAlpha", "dash"];
const ANCHORS = { center: "middle", right: "end" };
const SIGNS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

function escaped(text) { return String(text).replace(/[&<>"]/g, (sign) => SIGNS[sign]); }

function tag(name, attributes) {
  const given = Object.entries(attributes).filter(([, value]) => value !== null && value !== "");
  return [name, ...given.map(([key, value]) => `${key}="${escaped(value)}"`)].join(" ");
}

// Attributes for a CSS colour, its opacity apart for older tools.
function colour(name, value) {
  if (!/^#[0-9a-f]{8}$/i.test(value)) return { [name]: value };
  const opacity = (parseInt(value.slice(7), 16) / 255).toPrecision(3);
  return { [name]: value.slice(0, 7), [`${name}-opacity`]: opacity };
}

export class SvgCanvas {
  made = []; // finished tags, and unfinished elements
  path = "";
  kept = [];
  globalAlpha = 1;
  dash = [];

  // Begin a group for all drawing until `close`, with a tooltip.
  open(attributes, title = "") {
    this.made.push(`<${tag("g", attributes)}>`);
    if (title) this.made.push(`<title>${escaped(title)}</title>`);
  }

  close() { this.made.push("</g>"); }

  write(name, attributes, text = null) {
    const opacity = this.globalAlpha < 1 ? Math.round(this.globalAlpha * 100) / 100 : null;
    this.made.push({ name, attributes: { ...attributes, opacity }, text });
  }

  text() {
    return this.made.map((one) => {
      if (typeof one === "string") return one;
      const { name, attributes, text } = one;
      return `<${tag(name, attributes)}${text === null ? "/>" : `>${escaped(text)}</${name}>`}`;
    }).join("\n");
  }

  save() { this.kept.push([0, Object.fromEntries(STATE.map((name) => [name, this[name]]))]); }

  restore() {
    const [groups, state] = this.kept.pop();
    for (let k = 0; k < groups; k++) this.close();
    Object.assign(this, state);
  }

  translate(x, y) { this.transform(`translate(${rounded(x)} ${rounded(y)})`); }

  scale(x) { if (x !== 1) this.transform(`scale(${x})`); }

  transform(transform) {
    this.open({ transform });
    this.kept.at(-1)[0] += 1;
  }

  setTransform() {} // the picture has its own coordinates

  setLineDash(dash) { this.dash = dash; }

  beginPath() { this.path = ""; }

  moveTo(x, y) { this.add("M", x, y); }

  lineTo(x, y) { this.add("L", x, y); }

  bezierCurveTo(...points) { this.add("C", ...points); }

  closePath() { this.path += "Z"; }

  add(sign, ...numbers) {
    this.path += sign + numbers.map(rounded).join(" ");
    this.at = numbers.slice(-2);
  }

  // A round corner, here a parabola.
  arcTo(x1, y1, x2, y2, r) {
    const beside = (x, y) => {
      const share = r / (Math.hypot(x - x1, y - y1) || 1);
      return [x1 + (x - x1) * share, y1 + (y - y1) * share];
    };
    this.lineTo(...beside(...this.at));
    this.add("Q", x1, y1, ...beside(x2, y2));
  }

  ellipse(x, y, rx, ry) {
    this.moveTo(x + rx, y);
    for (const way of [-1, 1]) this.add("A", rx, ry, 0, 0, 1, x + way * rx, y);
  }

  roundRect(x, y, w, h, radii) {
    let [a, b, c, d] = typeof radii === "number" ? Array(4).fill(radii) : radii;
    const fit = Math.min(1, w / (a + b), h / (b + c), w / (c + d), h / (d + a));
    [a, b, c, d] = [a, b, c, d].map((r) => r * fit);
    const corner = (r, toX, toY) => { if (r) this.add("A", r, r, 0, 0, 1, toX, toY); };
    this.moveTo(x + a, y);
    this.lineTo(x + w - b, y); corner(b, x + w, y + b);
    this.lineTo(x + w, y + h - c); corner(c, x + w - c, y + h);
    this.lineTo(x + d, y + h); corner(d, x, y + h - d);
    this.lineTo(x, y + a); corner(a, x + a, y);
    this.closePath();
  }

  fill() { this.write("path", { d: this.path, ...colour("fill", this.fillStyle) }); }

  stroke() {
    const line = { ...colour("stroke", this.strokeStyle), "stroke-width": rounded(this.lineWidth),
      "stroke-dasharray": this.dash.join(" ") };
    const last = this.made.at(-1)?.attributes; // the last filled element
    if (last?.d === this.path && !last.stroke) Object.assign(last, line);
    else this.write("path", { d: this.path, fill: "none", ...line });
  }

  fillRect(x, y, width, height) {
    const [left, top, wide, high] = [x, y, width, height].map(rounded);
    const place = { x: left, y: top, width: wide, height: high };
    this.write("rect", { ...place, ...colour("fill", this.fillStyle) });
  }

  get face() {
    const [, weight, size] = /^(?:(\d+) )?([\d.]+)px/.exec(this.font);
    return { weight: weight ?? null, size: Number(size) };
  }

  measureText(text) {
    const { weight, size } = this.face;
    return { width: textWidth(text, size, weight !== null) };
  }

  strokeText() { // for the text that is filled next
    this.outline = { ...colour("stroke", this.strokeStyle), "stroke-width": this.lineWidth,
      "stroke-linejoin": "round", "paint-order": "stroke" };
  }

  fillText(text, x, y) { // y is its middle
    const { weight, size } = this.face, { outline } = this;
    this.outline = null;
    if (!text) return;
    this.write("text", { x: rounded(x), y: rounded(y + size * 0.35), "font-size": size,
      "font-weight": weight, "text-anchor": ANCHORS[this.textAlign] ?? null,
      ...colour("fill", this.fillStyle), ...outline }, text);
  }
}
