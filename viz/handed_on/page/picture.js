// A graph in the viewer: the page's own component, with this file in Streamlit's place.

import { make } from "./made.js";
import { go, place } from "./place.js";

export class Picture {
  constructor(name, height) {
    this.name = name;
    this.height = height;
    this.at = make("div", { class: "picture" });
    this.root = this.at.attachShadow({ mode: "open" });
    this.root.append(document.getElementById("viewer").content.cloneNode(true));
    this.asked = place.get("node") ?? null; // what the address names is looked at once
  }

  get viewer() { return this.root.relascopeViewer; }

  // Modules that the reader opened or closed stay so in what is drawn next; where the drawing came
  // with its places, the viewer lays it out anew from then on.
  show(drawing, focus = this.asked) {
    this.asked = null;
    this.drawing = drawing;
    const narrow = innerWidth < 700;
    const own = this.toggles ? { drawn: undefined, toggles: this.toggles, told: this.turns ?? "" } : {};
    viewGraph({
      parentElement: this.root,
      data: {
        ...drawing,
        ...own,
        view: this.name,
        focus: focus ?? drawing.focus,
        viewHeight: narrow ? Math.min(this.height, Math.round(innerHeight * 0.7)) : this.height,
        details: drawing.details && !narrow,
      },
      setStateValue: (what, value) => this.told(what, value),
      setTriggerValue: () => {},
    });
  }

  told(what, value) {
    if (what === "selected") go({ node: value });
    else if (what === "toggles" && this.viewer.block.drawn) {
      this.toggles = value.groups;
      this.turns = String(Number(this.turns ?? 0) + 1);
      this.show(this.drawing, null);
    } else if (what === "toggles") this.toggles = value.groups;
  }

  // Look at a node of the drawing.
  go(key) {
    if (!this.viewer?.drawing || !this.viewer.exists(key)) return;
    this.viewer.focus(key);
    this.at.scrollIntoView({ block: "nearest" });
  }

  // What is seen now, as a picture.
  seen() {
    return new Promise((done) => this.viewer.main.toBlob(done, "image/png"));
  }
}
