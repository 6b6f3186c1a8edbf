// The words in a box, and estimates of their widths, the same wherever the layout is made.

export const TITLE = 13, SUBTITLE = 11, HEADER = 30; // heights in pixels of the drawing

export function rounded(value) { return Math.round(value * 10) / 10; }

const NARROW = new Set("ijlI.,:;|'![]()"), SLIM = new Set("ftr -"), WIDE = new Set("mwMW@%");
const LONGEST = 48; // characters of an edge's label

function em(char) {
  if (NARROW.has(char)) return 0.3;
  if (SLIM.has(char)) return 0.38;
  if (WIDE.has(char)) return 0.88;
  if (char === "…" || char === "—") return 0.95;
  return char !== char.toLowerCase() && char === char.toUpperCase() ? 0.68 : 0.58;
}

// The estimated width of a text in a sans-serif typeface, in the unit of `size`.
export function textWidth(text, size, bold = false) {
  let width = 0;
  for (const char of text) width += em(char);
  return width * size * (bold ? 1.06 : 1);
}

// A text, with an ellipsis if it is longer than `longest` characters.
export function shortened(text, longest) {
  return text.length <= longest ? text : text.slice(0, longest - 1) + "…";
}

// The types of a node's results, beside an edge.
export function typesText(types) {
  return types.length > 3 ? `${types.length} tensors` : shortened(types.join(", "), LONGEST);
}

// Bytes, readable: 1536 is "1.5 KiB".
export function sizeText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = bytes, unit = 0;
  while (size >= 1024 && unit < 4) { size /= 1024; unit += 1; }
  return unit ? `${size.toFixed(1)} ${units[unit]}` : `${bytes} B`;
}

// 1234567 is "1,234,567"; without locales, which not every V8 has.
export function thousands(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

export const TWO_LINES = 46; // height of a box with two lines

// Width and height of a node's box with these lines.
export function boxSize(lines) {
  let wide = textWidth(lines[0], TITLE, true);
  if (lines.length > 1) wide = Math.max(wide, textWidth(lines[1], SUBTITLE));
  return [Math.max(Math.round(wide + 28), 64), lines.length === 1 ? 32 : TWO_LINES];
}
