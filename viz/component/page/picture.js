// A graph in the viewer, in an element with a root of its own.

import { element } from "../viewer/parts.js";
import { Viewer } from "../viewer/viewer.js";

// Gives an element a root of its own with one of the templates, which precede the script.
export function filled(at, template) {
  const root = at.shadowRoot ?? at.attachShadow({ mode: "open" });
  root.innerHTML = TEMPLATES[template];
  return root;
}

// Draws the graph in `given`'s `data` in an element; `given` also has the callbacks.
export function draw(host, given) {
  const before = host.viewer;
  if (!(before instanceof Viewer) || before.gone) {
    before?.destroy();
    host.viewer = new Viewer(filled(host, "viewer"), before);
  }
  host.viewer.tell = given.setStateValue;
  host.viewer.trigger = given.setTriggerValue;
  host.viewer.moved = given.moved ?? (() => {}); // in a show
  return host.viewer.receive(given.data);
}

export class Picture {
  constructor(name, height, place) {
    Object.assign(this, { name, height, place });
    this.at = element("div", { class: "picture" });
    this.asked = place.get("node") ?? null; // looked at once
  }

  get viewer() { return this.at.viewer; }

  async show(drawing) {
    const { asked, place } = this, cut = place.get("cut");
    this.asked = null;
    const narrow = place.ours ? innerWidth < 700 : this.at.clientWidth < 700;
    await draw(this.at, {
      data: {
        ...drawing,
        ...(cut === undefined || !drawing.show ? {} : { showing: 1, showAt: cut }),
        view: this.name,
        focus: asked ?? drawing.focus,
        viewHeight: narrow ? Math.min(this.height, Math.round(innerHeight * 0.7)) : this.height,
        details: drawing.details && !narrow,
      },
      setStateValue: (what, node) => what === "selected" && place.go({ node }),
      setTriggerValue: () => {},
      moved: (to) => place.go(to),
    });
  }

  // Look at a node of the drawing.
  go(key) {
    if (!this.viewer?.drawing || !this.viewer.exists(key)) return;
    this.viewer.focus(key);
    this.at.scrollIntoView({ block: "nearest" });
  }

  // The current view as a picture.
  seen() {
    return new Promise((done) => this.viewer.main.toBlob(done, "image/png"));
  }
}
