// Makes elements, and files for the reader to save.

import { element } from "../viewer/parts.js";

// Gives an element a root of its own with one of the templates, which precede the script.
export function filled(at, template) {
  const root = at.shadowRoot ?? at.attachShadow({ mode: "open" });
  root.innerHTML = TEMPLATES[template];
  return root;
}

export function save(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

export function fileName(title, suffix) {
  return `${title.replace(/[^\w.-]+/g, "-").replace(/^-+|-+$/g, "") || "relascope"}.${suffix}`;
}
