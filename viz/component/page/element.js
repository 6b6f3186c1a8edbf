// The element <relascope-graph>. It draws one graph that it is given, or shows a page's data: from
// a JSON script block inside it, its `src` or, if it is a whole page, `?url=` or a dropped file.

import { element } from "../viewer/parts.js";
import { DATA, dataOf, fetched, fileText, reader } from "./load.js";
import { Page } from "./page.js";
import { draw, filled } from "./picture.js";
import { Place } from "./place.js";
import { damaged } from "./sections.js";

const BEGINS = ["tab", "step", "node", "cut"]; // the start, as in an address
const OFFER = "Drop a file here, or open one: a recording, a session's file, a graph's JSON, a page "
  + "that relascope wrote (-o FILE.html), or the data of one (-o FILE.page.json). It stays on this "
  + "machine.";

class RelascopeGraph extends HTMLElement {
  static get observedAttributes() { return ["src"]; }

  // A browser keeps these three for good; they call the script that was read last.
  connectedCallback() { this.begin(); }
  disconnectedCallback() { this.leave(); }
  attributeChangedCallback(name, before, src) { if (before !== src) this.follow(src); }

  get whole() { return this.hasAttribute("page"); }

  // One graph, as Streamlit gives it to a component.
  draw(given) {
    this.given = given;
    draw(this, given);
  }

  begin() {
    if (this.viewer?.gone) this.draw(this.given); // removed and put back
    const held = this.querySelector(DATA);
    const asked = this.whole ? new URLSearchParams(location.search).get("url") : null;
    const src = asked ?? this.getAttribute("src");
    if (this.shadowRoot || !(this.whole || held || src)) return;
    this.find = (selector) => this.shadowRoot.querySelector(selector);
    filled(this, "page");
    if (this.whole && !held) this.offer();
    if (held) this.take(held.textContent);
    else if (src !== null) this.take(fetched(src, asked !== null), src);
    else this.dataset.ready = "";
  }

  // Removed, unless it is moved elsewhere at once.
  async leave() {
    await null;
    if (!this.isConnected) this.viewer?.destroy();
  }

  follow(src) {
    if (!src || !this.isConnected || this.given) return;
    if (this.shadowRoot) this.take(fetched(src, false), src);
    else this.begin();
  }

  // A page without data of its own takes a file that is dropped or chosen.
  offer() {
    const take = (file) => {
      if (!file) return;
      history.replaceState(null, "", location.pathname); // the address was the other file's
      this.take(fileText(file), file.name);
    };
    const choose = element("input", { type: "file", class: "hidden",
      onchange: () => { take(choose.files[0]); choose.value = ""; } });
    this.find(".tools").prepend(choose,
      element("button", { type: "button", onclick: () => choose.click() }, "Open"));
    this.find("h1").textContent = "relascope";
    this.find("main").append(element("p", { class: "offer" }, OFFER));
    this.addEventListener("dragover", (event) => event.preventDefault());
    this.addEventListener("drop", (event) => {
      event.preventDefault();
      take(event.dataTransfer.files[0]);
    });
  }

  // Shows a file's text (or a promise of it) that is `from` elsewhere; a later call wins.
  async take(text, from) {
    const taken = this.taken = {};
    const told = [];
    try {
      const { blocks, digest } = dataOf(await text);
      const block = reader(blocks);
      const index = await block("index");
      if (taken !== this.taken) return;
      this.page?.end();
      const begins = BEGINS.map((name) => [name, this.getAttribute(name)]);
      const place = new Place(this.whole ? null : begins.filter(([, value]) => value !== null));
      this.page = new Page(this, { index, block, place, digest, from });
      this.dataset.shown = "";
    } catch (error) {
      if (taken !== this.taken) return;
      told.push(damaged(error, "file"));
    }
    this.find(".told").replaceChildren(...told);
    this.dataset.ready = "";
  }
}

// A tag is defined once: in a page open over an upgrade, the old class takes the new methods.
const known = customElements.get("relascope-graph");
if (known) {
  Object.defineProperties(known.prototype, Object.getOwnPropertyDescriptors(RelascopeGraph.prototype));
  for (const one of document.querySelectorAll("relascope-graph")) if (one.given) one.draw(one.given);
} else customElements.define("relascope-graph", RelascopeGraph);
