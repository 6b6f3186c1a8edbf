// Where the reader is, as the address says: #tab=passes&step=3&node=…

export const place = new Map(new URLSearchParams(location.hash.slice(1)));

export function go(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") place.delete(name);
    else place.set(name, String(value));
  }
  const hash = `#${new URLSearchParams([...place])}`;
  try {
    history.replaceState(null, "", hash);
  } catch { /* in a frame without an address of its own */ }
}

// When somebody types another address, or follows a link to one.
export function onAddress(then) {
  addEventListener("hashchange", () => {
    place.clear();
    for (const [name, value] of new URLSearchParams(location.hash.slice(1))) place.set(name, value);
    then();
  });
}
