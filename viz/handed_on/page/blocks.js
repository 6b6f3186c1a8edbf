// The file's data: JSON, deflated, as base64. Long texts stand once, in the pool.

const SIGN = "\u0001";
const known = new Map();

async function unpacked(id) {
  const text = document.getElementById(`block-${id}`).textContent;
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
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

function once(id) {
  if (!known.has(id)) known.set(id, unpacked(id));
  return known.get(id);
}

export async function block(id) {
  const name = `filled-${id}`;
  if (!known.has(name)) {
    known.set(name, Promise.all([once("pool"), unpacked(id)]).then(([pool, one]) =>
      filled(one, pool)));
  }
  return known.get(name);
}
