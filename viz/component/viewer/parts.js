// Helpers for several parts of the viewer.

import { sizeText } from "./layout/words.js";

// Most bytes of a file, and of its contents: a small file can unpack to more than a browser holds.
export const MOST = 2 ** 29;
export const LEAVES = new Set(["input", "parameter", "constant"]); // keep their own colours

// An error with a sentence for people on why something is not shown.
export class Refused extends Error {}

// Reads deflated JSON, as bytes or base64; raises Refused if it takes more than `left`.
export async function unpack(packed, left = { bytes: MOST }) {
  const bytes = typeof packed === "string"
    ? Uint8Array.from(atob(packed), (c) => c.charCodeAt(0)) : packed;
  const chunks = [];
  const count = new WritableStream({ write(chunk) {
    if ((left.bytes -= chunk.length) < 0) {
      throw new Refused(`This file takes more than ${sizeText(MOST)} unpacked, and is not shown.`);
    }
    chunks.push(chunk);
  } });
  await new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")).pipeTo(count);
  return new Response(new Blob(chunks)).json();
}

// Values that the browser keeps, if it may and has room, for this tab over reloads, or this page.
export function remember(name, value, keeper = "sessionStorage") {
  try { window[keeper].setItem(`relascope ${name}`, JSON.stringify(value)); } catch { /* so be it */ }
}

export function recall(name, keeper = "sessionStorage") {
  try { return JSON.parse(window[keeper].getItem(`relascope ${name}`)); } catch { return null; }
}

// One job of the viewer.
export class Part {
  constructor(viewer) { this.viewer = viewer; }
}

export function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

export function bytesText(bytes) {
  if (bytes === null || bytes === undefined) return "not known";
  const short = sizeText(bytes);
  return bytes < 1024 ? short : `${short} (${bytes.toLocaleString("en")} bytes)`;
}

// Attributes that are null are left out; a class may be a list with false entries.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made[name] = value;
    else if (Array.isArray(value)) made.setAttribute(name, value.filter(Boolean).join(" "));
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

// A button with a label that is read out, and shown under the pointer.
export function button(label, attributes, ...children) {
  return element("button", { type: "button", title: label, "aria-label": label, ...attributes },
    ...children);
}
