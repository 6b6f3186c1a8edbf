// The page's colours, read from the page itself, and the palette for them.

import { Part } from "./parts.js";

const NEVER = { light: {}, dark: {} };

export class Theme extends Part {
  // Read the theme if it changed; whether it did.
  read() {
    const { backgroundColor, fontFamily } = getComputedStyle(this.viewer.root);
    if (backgroundColor === this.ground && fontFamily === this.font) return false;
    const parts = (backgroundColor.match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
    const light = 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] > 128;
    Object.assign(this, { ground: backgroundColor, font: fontFamily, name: light ? "light" : "dark" });
    this.viewer.root.classList.toggle("dark", !light);
    return true;
  }

  get look() { return (this.viewer.drawing?.palette ?? NEVER)[this.name]; }

  get styles() { return this.look.styles; }

  // Give an element the colours and the sign of a style.
  dress(element, key) {
    const look = this.styleOf(key);
    const { style } = element;
    if (element.matches(".bar")) { // only a role's bars
      style.borderColor = this.look.surfaces.closedStroke;
      if (look.side !== "right") style.borderLeft = `5px solid ${look.stroke}`;
      if (look.side !== "left") style.borderRight = `5px solid ${look.stroke}`;
      return;
    }
    style.background = look.fill; style.borderColor = look.stroke; style.color = look.text;
    if (look.dash?.length) style.borderStyle = look.dash[0] > 3 ? "dashed" : "dotted";
    if (look.thick) style.borderWidth = "2.5px";
    if (element.matches(".ellipse, .pill, .octagon, .double")) return; // their shape is the sign
    if (look.side && look.side !== "right") style.borderLeftWidth = "5px";
    if (look.side && look.side !== "left") style.borderRightWidth = "5px";
    element.textContent = look.mark ?? "";
  }

  styleOf(key) {
    const known = this.styles[key];
    if (known) return known;
    const [name, mark] = key.split("|"); // a word's colour and letter
    if (mark && this.styles[name]) return { ...this.styles[name], mark };
    const { closed, closedStroke, closedText } = this.look.surfaces; // of a closed group
    return { fill: closed, stroke: closedStroke, text: closedText };
  }
}
