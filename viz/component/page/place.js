// Where the reader is, as in the address: #tab=passes&step=3&node=…

// An element within another page, whose address is not its own, begins at `given`.
export class Place extends Map {
  constructor(given) {
    super(given ?? asked());
    this.ours = !given;
  }

  go(changes) {
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === undefined || value === "") this.delete(name);
      else this.set(name, String(value));
    }
    if (!this.ours) return;
    try {
      history.replaceState(null, "", `#${new URLSearchParams([...this])}`);
    } catch { /* in a frame without an address of its own */ }
  }

  // When somebody types another address, or follows a link to one.
  onAddress(then, signal) {
    if (!this.ours) return;
    addEventListener("hashchange", () => {
      this.clear();
      for (const [name, value] of asked()) this.set(name, value);
      then();
    }, { signal });
  }
}

function asked() { return new URLSearchParams(location.hash.slice(1)); }
