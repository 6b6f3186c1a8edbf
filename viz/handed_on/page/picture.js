// A graph in the viewer: the page's own component, with this file in Streamlit's place.

import viewGraph from "../../component/viewer/viewer.js";
import { element } from "../../component/viewer/parts.js";
import { filled } from "./made.js";

export class Picture {
  constructor(name, height, place) {
    Object.assign(this, { name, height, place });
    this.at = element("div", { class: "picture" });
    this.root = filled(this.at, "viewer");
    this.asked = place.get("node") ?? null; // what the address names is looked at once
  }

  get viewer() { return this.root.relascopeViewer; }

  async show(drawing, focus = this.asked) {
    this.asked = null;
    const narrow = this.place.ours ? innerWidth < 700 : this.at.clientWidth < 700;
    const { place } = this, cut = place.get("cut");
    viewGraph({
      parentElement: this.root,
      data: {
        ...drawing,
        ...(cut === undefined || !drawing.show ? {} : { showing: 1, showAt: cut }),
        view: this.name,
        focus: focus ?? drawing.focus,
        viewHeight: narrow ? Math.min(this.height, Math.round(innerHeight * 0.7)) : this.height,
        details: drawing.details && !narrow,
      },
      setStateValue: (what, node) => what === "selected" && place.go({ node }),
      setTriggerValue: () => {},
      moved: (to) => place.go(to),
    });
    await this.viewer.receiving;
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
