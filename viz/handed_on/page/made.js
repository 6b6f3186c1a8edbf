// Elements, and files that the reader saves.

export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

// A root of its own for an element, with what a template of the file has.
export function filled(at, template) {
  const root = at.attachShadow({ mode: "open" });
  root.append(document.getElementById(template).content.cloneNode(true));
  return root;
}

export function save(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

export function fileName(title, suffix) {
  return `${title.replace(/[^\w.-]+/g, "-").replace(/^-+|-+$/g, "") || "relascope"}.${suffix}`;
}
