// The picture without a browser: the painter's drawing as SVG, with a legend below.

import { textWidth } from "../layout/words.js";
import { Camera } from "../camera.js";
import { Overlays } from "../overlays.js";
import { Painter } from "../painter.js";
import { Theme } from "../theme.js";
import { SvgCanvas } from "./canvas.js";

const ROW = 22, MARGIN = 24, LEAST_WIDTH = 320; // of the legend
const BEYOND = 1e9; // pixels: all is in sight

// Makes each line with its arrow an element of its own.
class EdgePainter extends Painter {
  lines(list, colour, width) { for (const e of list) super.lines([e], colour, width, true); }
}

// Args: `data`, the viewer's input, with the groups `first` open; the theme's name; the typeface;
// and whether edges carry the types of their values.
export function pictureOutside({ data, theme, font, shapes }) {
  const v = new Camera(), canvas = new SvgCanvas();
  Object.assign(v, { block: data, toggles: {}, ratio: 1, finder: { boxes: [] } });
  v.theme = Object.assign(new Theme(v), { name: theme, font });
  v.overlays = Object.assign(new Overlays(v), { chosen: data.overlay });
  v.take(data);
  const { drawing, solid } = v, { box, edge, height } = drawing, { surfaces } = v.theme.look;
  v.theme.ground = surfaces.ground;
  const painter = new EdgePainter(v);
  const near = { left: -BEYOND, top: -BEYOND, right: BEYOND, bottom: BEYOND };
  Object.assign(painter, { box, edge, colours: surfaces, lit: null, seen: () => true, near });
  painter.start(canvas, 0, 0, 1);
  const boxes = (count, title) => {
    for (const i of count) {
      v.solid = [i]; v.byStyle = [[painter.box.style[i], [i]]];
      canvas.open({}, title(i));
      painter.drawSolid(); painter.drawText(1);
      canvas.close();
    }
  };
  const part = (name, draw) => { canvas.open({ class: name }); draw(); canvas.close(); };
  const wide = Math.max(drawing.width, LEAST_WIDTH);
  const legend = legendOf(v, wide), rows = (legend.at(-1)?.row ?? -1) + 1;
  const high = height + (rows && rows * ROW + MARGIN);
  canvas.fillStyle = surfaces.ground;
  canvas.fillRect(0, 0, wide, high);
  part("modules", () => painter.drawOpenGroups());
  part("edges", () => painter.drawEdges());
  part("nodes", () => boxes(solid, (i) => told(drawing, i)));
  v.solid = solid;
  part("names", () => painter.drawNames());
  if (shapes) part("types", () => painter.drawShapes());
  part("legend", () => {
    const list = (value) => legend.map(value);
    painter.box = { x: list((l) => l.x), y: list((l) => l.y), w: list(() => 22), h: list(() => 17),
      shape: list((l) => l.shape), style: list((l) => l.key), lines: list(() => [""]),
      kind: list(() => 0), role: list(() => "") };
    legend.forEach(({ key, shape, words, x, y }, i) => {
      if (shape === "line") {
        Object.assign(canvas, { strokeStyle: surfaces[key], lineWidth: 2 });
        canvas.beginPath(); canvas.moveTo(x, y + 8.5); canvas.lineTo(x + 22, y + 8.5); canvas.stroke();
      } else if (shape !== "title") boxes([i], () => "");
      Object.assign(canvas, { font: "12px", textAlign: "left", fillStyle: surfaces.groupText });
      canvas.fillText(words, x + 28, y + 8.5);
    });
  });
  return { text: canvas.text(), width: wide, height: high };
}

// Places the entries of the legend, in as many rows as needed.
function legendOf(v, wide) {
  let x = MARGIN, row = 0;
  const first = v.overlays.active.name ? [["", "title", v.overlays.active.title]] : [];
  return [...first, ...v.legendRows()].map(([key, shape, words]) => {
    const room = 44 + textWidth(words, 12);
    if (x > MARGIN && x + room > wide - MARGIN) { x = MARGIN; row += 1; }
    x += room;
    return { key, shape, words, row, x: x - room, y: v.drawing.height + ROW * row };
  });
}

function told({ box, node, groups, strings }, i) {
  const n = box.node[i];
  if (n < 0) return `${groups[box.group[i]].path}: ${groups[box.group[i]].nodes} nodes`;
  const types = node.types[n].map((t) => strings[t]).join(", ");
  return [node.full[n], types, strings[node.scope[n]], node.note[n]].filter(Boolean).join("\n");
}
