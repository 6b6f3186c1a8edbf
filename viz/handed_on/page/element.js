// The element <relascope-graph>. It shows the data of a page: what stands in it as a script block of
// JSON, what its `src` names, and where it is a whole page, the file of `?url=` or one that is dropped.

import { element, Refused } from "../../component/viewer/parts.js";
import { reader } from "./blocks.js";
import { DATA, dataOf, fetched, fileText } from "./load.js";
import { filled } from "./made.js";
import { Page } from "./page.js";
import { Place } from "./place.js";
import { damaged } from "./sections.js";

const BEGINS = ["tab", "step", "node", "cut"]; // where a part of a page begins, as an address has it
const OFFER = "Drop a file here, or open one: a recording, a session's file, a graph's JSON, a page "
  + "that relascope wrote (-o FILE.html), or the data of one (-o FILE.page.json). It stays on this "
  + "machine.";

class RelascopeGraph extends HTMLElement {
  static get observedAttributes() { return ["src"]; }

  get whole() { return this.hasAttribute("page"); }

  connectedCallback() {
    if (this.shadowRoot) return;
    this.find = (selector) => this.shadowRoot.querySelector(selector);
    filled(this, "page");
    const held = this.querySelector(DATA);
    const asked = this.whole ? new URLSearchParams(location.search).get("url") : null;
    const src = asked ?? this.getAttribute("src");
    if (this.whole && !held) this.offer();
    if (held) this.take(held.textContent);
    else if (src !== null) this.take(fetched(src, asked !== null), src);
    else this.dataset.ready = "";
  }

  attributeChangedCallback(name, before, src) {
    if (this.shadowRoot && before !== src && src) this.take(fetched(src, false), src);
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

customElements.define("relascope-graph", RelascopeGraph);
