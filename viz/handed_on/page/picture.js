// A graph in the viewer: the page's own component, with this file in Streamlit's place.

import viewGraph from "../../component/viewer/viewer.js";
import { element } from "../../component/viewer/parts.js";
import { filled } from "./made.js";
import { go, place } from "./place.js";

export class Picture {
  constructor(name, height) {
    this.name = name;
    this.height = height;
    this.at = element("div", { class: "picture" });
    this.root = filled(this.at, "viewer");
    this.asked = place.get("node") ?? null; // what the address names is looked at once
  }

  get viewer() { return this.root.relascopeViewer; }

  show(drawing, focus = this.asked) {
    this.asked = null;
    const narrow = innerWidth < 700;
    viewGraph({
      parentElement: this.root,
      data: {
        ...drawing,
        view: this.name,
        focus: focus ?? drawing.focus,
        viewHeight: narrow ? Math.min(this.height, Math.round(innerHeight * 0.7)) : this.height,
        details: drawing.details && !narrow,
      },
      setStateValue: (what, node) => what === "selected" && go({ node }),
      setTriggerValue: () => {},
    });
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
