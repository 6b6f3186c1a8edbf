// The meanings of colours. An overlay has a value for some nodes, a number or a word. Numbers take
// one of four steps of a scale from light to dark, words a colour and a letter; if an overlay has
// `styles`, each node has one of the palette's, and its words are their labels.

import { element, LEAVES, Part } from "./parts.js";
import { sizeText, thousands } from "./layout/words.js";

const STEPS = 4, SORTS = 8; // of the scale, and colours for words
const HALF = { forward: "forward", captured: "forward", backward: "backward" }; // by a node's role

export function valueText(value, unit) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value;
  if (unit === "bytes") return sizeText(Math.round(value));
  if (unit === "share") return `${(value * 100).toPrecision(3)} %`;
  if (!Number.isFinite(value) || Math.abs(value) > 1e300) return "not a number";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return thousands(value);
  return value.toPrecision(3);
}

// Where the steps of a scale begin: in equal ratios if values differ much, else equally apart.
export function stepsOf(values) {
  let low = Infinity, high = -Infinity, least = Infinity; // the least above 0
  for (const value of values) {
    if (typeof value !== "number" || !Number.isFinite(value)) continue;
    low = Math.min(low, value); high = Math.max(high, value);
    if (value > 0) least = Math.min(least, value);
  }
  if (low >= high) return [];
  const ratio = low >= 0 && high / Math.max(low, high / 1e6) > 8;
  if (ratio) low = Math.max(least, high / 1e4);
  return Array.from({ length: STEPS - 1 }, (_, k) => (ratio
    ? low * (high / low) ** ((k + 1) / STEPS) : low + (high - low) * (k + 1) / STEPS));
}

// A person's own values, { id or name or module: number or word }, for the nodes of a drawing.
export function ownValues(text, drawing) {
  let given;
  try { given = JSON.parse(text); } catch (wrong) { throw new Error(`It is not JSON: ${wrong.message}.`); }
  if (given === null || typeof given !== "object" || Array.isArray(given)) {
    throw new Error('It is not a JSON object such as {"node id or name": 1.5}.');
  }
  const { node, strings } = drawing;
  const values = new Array(node.id.length).fill(null);
  const used = new Set();
  for (const [name, value] of Object.entries(given)) {
    if (typeof value !== "number" && typeof value !== "string") {
      throw new Error(`The value of ${JSON.stringify(name)} is neither a number nor a string.`);
    }
  }
  for (let n = 0; n < values.length; n++) {
    for (const key of [node.id[n], node.full[n], strings[node.scope[n]]]) {
      if (!Object.hasOwn(given, key)) continue;
      used.add(key);
      values[n] ??= given[key];
    }
  }
  return { values, unknown: Object.keys(given).filter((key) => !used.has(key)) };
}

export class Overlays extends Part {
  chosen = ""; // "" is what Python coloured
  own = null;

  // By name: Python's colours and overlays first, then the ones of every graph.
  all() {
    const { drawing: d } = this.viewer;
    const { node, strings } = d, { listed } = this;
    if (listed?.block === this.viewer.block && listed.own === this.own
      && listed.styles === node.style) return listed.all; // a show paints the nodes itself
    const all = [this.styled("", d.colours, node.style), ...(d.overlays ?? [])];
    const also = (name, title, styles) => {
      if (d.colours !== title) all.push(this.styled(name, title, styles));
    };
    const sorts = node.sort ?? node.style;
    if (this.viewer.halves.size) {
      also("roles", "Forward & backward", node.role.map((role, n) => (
        role === "captured" || role && !LEAVES.has(node.kind[n]) ? role : sorts[n])));
    }
    also("operators", "Operators", sorts);
    for (const [name, title, unit] of [["bytes", "Bytes of the result", "bytes"],
      ["flops", "FLOPs, estimated", ""]]) {
      if (node[name]?.some(Boolean)) all.push({ name, title, unit, whole: "sum", values: node[name] });
    }
    const scopes = node.scope.map((s) => strings[s] || null);
    if (scopes.some(Boolean) && !all.some((o) => o.name === "module")) {
      all.push({ name: "module", title: "Module", values: scopes });
    }
    if (this.own) all.push(this.own);
    this.listed = { block: this.viewer.block, own: this.own, styles: node.style, all };
    return all;
  }

  styled(name, title, styles) {
    const known = this.viewer.theme.styles;
    return { name, title, styles, values: styles.map((key) => known[key]?.label ?? key) };
  }

  get active() { return this.all().find((o) => o.name === this.chosen) ?? this.all()[0]; }

  // A node's value with its title; "" without one.
  describe(n) {
    const { title, unit, values } = this.active, text = valueText(values[n], unit);
    return text && `${title}: ${text}`;
  }

  // A small piece in a node's colour, with its sign.
  swatch(n) {
    const { theme, drawing: { node, shapes } } = this.viewer;
    const mark = element("i", { class: `swatch ${shapes[node.kind[n]]}`, "aria-hidden": "true" });
    theme.dress(mark, this.key(n));
    return mark;
  }

  // Colour anew without moving anything.
  apply() {
    const v = this.viewer;
    v.restyle();
    v.fillLegend();
    v.details.show();
    v.table.show();
    v.minimap.draw();
    v.redraw();
  }

  // The style of each box of a drawing under the chosen overlay.
  paint(drawing) {
    const overlay = this.active, { name, styles, values } = overlay;
    const { box, groups, node } = drawing, { halves } = this.viewer;
    box.role = box.node.map((n, i) => (n < 0 ? halves.get(box.group[i]) ?? "" : node.role[n]));
    if (styles) {
      this.key = (n) => styles[n];
      box.style = box.node.map((n, i) => (n >= 0 ? styles[n]
        : name === "" ? groups[box.group[i]].style : name === "roles" && box.role[i] || "group"));
      const crosses = groups["forward:"] && groups["backward:"];
      const more = name !== "" ? this.legendOfRoles(drawing) : [["crossing", null, "line"]];
      this.legend = [...this.legendOfStyles(drawing, styles),
        ...(name === "roles" || (name === "" && !crosses) ? [] : more)];
      return;
    }
    const words = [...new Set(values.filter((x) => typeof x === "string"))].sort((a, b) =>
      a.localeCompare(b, "en", { numeric: true }));
    const sort = new Map(words.map((word, k) => [word, `sort${k % SORTS}|${letters(k)}`]));
    const limits = overlay.limits ?? stepsOf(values);
    const styleOf = (value) => {
      if (value === null || value === undefined) return "heat0";
      if (typeof value === "string") return sort.get(value);
      return `heat${Math.min(STEPS, 1 + limits.filter((limit) => !(value <= limit)).length)}`;
    };
    const whole = this.wholes(drawing, overlay);
    this.key = (n) => styleOf(values[n]);
    box.style = box.node.map((n, i) => styleOf(n < 0 ? whole.get(box.group[i]) : values[n]));
    this.legend = [...this.legendOf(overlay, limits, sort, values), ...this.legendOfRoles(drawing)];
  }

  // The meanings of the bars, if the colour means something else.
  legendOfRoles({ node }) {
    return Object.keys(HALF).filter((role) => node.role.includes(role))
      .map((role) => [role, null, "bar"]);
  }

  // The styles in the picture, in the palette's order, each with its shape.
  legendOfStyles({ node, shapes }, styles) {
    const shown = new Map();
    styles.forEach((key, n) => {
      const shape = shapes[node.kind[n]];
      if (!(shown.get(key) <= shape)) shown.set(key, shape); // the first of several by name
    });
    return Object.keys(this.viewer.theme.styles).filter((key) => shown.has(key))
      .map((key) => [key, null, shown.get(key)]);
  }

  // By group its half, if all its nodes with a role are in one.
  halves(drawing) {
    return this.wholes(drawing, { values: drawing.node.role.map((role) => HALF[role] ?? null) });
  }

  // The value of a closed group: the sum or the largest of its numbers, or its one word.
  wholes(drawing, overlay) {
    const { groups, node } = drawing;
    const whole = new Map();
    for (let n = 0; n < node.id.length; n++) {
      const value = overlay.values[n];
      if (value === null || value === undefined) continue;
      for (let g = node.group[n]; g; g = groups[g].parent) {
        const now = whole.get(g);
        if (now === undefined) whole.set(g, value);
        else if (typeof value === "string") { if (now !== value) whole.set(g, null); }
        else if (now !== null) whole.set(g, overlay.whole === "sum" ? now + value : Math.max(now, value));
      }
    }
    return whole;
  }

  legendOf(overlay, limits, sort, values) {
    if (sort.size) {
      const most = [...sort].slice(0, 60).map(([word, key]) => [key, word]);
      return sort.size > 60 ? [...most, ["heat0", `and ${sort.size - 60} more`]] : most;
    }
    const known = values.filter((x) => typeof x === "number");
    const text = (value) => valueText(value, overlay.unit);
    const ends = [known.reduce((a, b) => Math.min(a, b), Infinity), ...limits,
      known.reduce((a, b) => Math.max(a, b), -Infinity)];
    const steps = limits.length ? ends.slice(1) : [ends.at(-1)];
    const entries = steps.map((end, k) => [`heat${k + 1}`,
      overlay.labels?.[k] ?? (limits.length ? `${text(ends[k])} to ${text(end)}` : text(end))]);
    const none = values.some((x) => x === null || x === undefined);
    return none ? [["heat0", overlay.none ?? "no value"], ...entries] : entries;
  }

  // The list in the toolbar.
  offer() {
    const v = this.viewer, names = this.all();
    if (!names.some((o) => o.name === this.chosen)) this.chosen = "";
    v.colours.replaceChildren(
      ...names.map((o) => element("option", { value: o.name }, o.title)),
      element("option", { value: "own…" }, "From a file (JSON)…"));
    v.colours.value = this.chosen;
  }

  async open(file) {
    const v = this.viewer;
    try {
      const { values, unknown } = ownValues(await file.text(), v.drawing);
      this.own = { name: "own", title: file.name, values, whole: "max" };
      const all = unknown.length;
      v.say(all ? `${all} of its names are neither a node's nor a module's here, such as `
        + `${JSON.stringify(unknown[0])}.` : "");
      this.chosen = "own";
    } catch (wrong) {
      v.say(`${file.name} cannot be shown. ${wrong.message}`);
    }
    this.offer();
    this.apply();
  }
}

function letters(k) {
  return (k >= 26 ? letters(Math.floor(k / 26) - 1) : "") + String.fromCharCode(97 + k % 26);
}
