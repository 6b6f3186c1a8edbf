// The element <relascope-graph>. It draws one graph that it is given, or shows the data of a page: what
// stands in it as a script block of JSON, what its `src` names, and where it is a whole page, the file
// of `?url=` or one that is dropped.

import { element } from "../viewer/parts.js";
import { reader } from "./blocks.js";
import { DATA, dataOf, fetched, fileText } from "./load.js";
import { filled } from "./made.js";
import { Page } from "./page.js";
import { draw } from "./picture.js";
import { Place } from "./place.js";
import { damaged } from "./sections.js";

const BEGINS = ["tab", "step", "node", "cut"]; // where a part of a page begins, as an address has it
const OFFER = "Drop a file here, or open one: a recording, a session's file, a graph's JSON, a page "
  + "that relascope wrote (-o FILE.html), or the data of one (-o FILE.page.json). It stays on this "
  + "machine.";

class RelascopeGraph extends HTMLElement {
  static get observedAttributes() { return ["src"]; }

  // A browser keeps these three for good; what they call is of the script that was read last.
  connectedCallback() { this.begin(); }
  disconnectedCallback() { this.leave(); }
  attributeChangedCallback(name, before, src) { if (before !== src) this.follow(src); }

  get whole() { return this.hasAttribute("page"); }

  // One graph, in what Streamlit gives a component.
  draw(given) {
    this.given = given;
    draw(this, given);
  }

  begin() {
    if (this.viewer?.gone) this.draw(this.given); // it was taken out and put in again
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

  // Taken out, unless it is put in elsewhere at once.
  async leave() {
    await null;
    if (!this.isConnected) this.viewer?.destroy();
  }

  follow(src) {
    if (!src || !this.isConnected || this.given) return;
    if (this.shadowRoot) this.take(fetched(src, false), src);
    else this.begin();
  }

  // A page without data of its own takes what is dropped on it, or chosen.
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

  // A file's text, or what will be one, and where it is `from`, if not from this page; a later one
  // takes the place of one that is on its way.
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

// No tag can be defined twice. In a page that stays open over an upgrade, it does from here on what
// the newer script says.
const known = customElements.get("relascope-graph");
if (known) {
  Object.defineProperties(known.prototype, Object.getOwnPropertyDescriptors(RelascopeGraph.prototype));
  for (const one of document.querySelectorAll("relascope-graph")) if (one.given) one.draw(one.given);
} else customElements.define("relascope-graph", RelascopeGraph);
