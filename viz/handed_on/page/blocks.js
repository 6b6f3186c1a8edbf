// The file's data: JSON, deflated, as base64. Long texts stand once, in the pool.

import { unpack } from "../../component/viewer/parts.js";

const SIGN = "\u0001";
const known = new Map();

function unpacked(id) {
  const text = document.getElementById(`block-${id}`).textContent;
  return unpack(Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0)));
}

// Texts of the pool in place of their numbers.
function filled(value, pool) {
  if (typeof value === "string") {
    return value.startsWith(SIGN) ? pool[Number(value.slice(1))] : value;
  }
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      const one = value[i];
      if (typeof one === "string" || (typeof one === "object" && one)) value[i] = filled(one, pool);
    }
  } else if (typeof value === "object" && value) {
    for (const name of Object.keys(value)) value[name] = filled(value[name], pool);
  }
  return value;
}

function once(id, make) {
  if (!known.has(id)) known.set(id, make());
  return known.get(id);
}

export function block(id) {
  return once(id, async () =>
    filled(await unpacked(id), await once("pool", () => unpacked("pool"))));
}
