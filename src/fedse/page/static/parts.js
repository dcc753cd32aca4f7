// Small pieces that several views are made of.
import { html, useEffect, useRef } from "./htm.js";

const SIGNS = { success: "✓", failure: "✗", error: "!" };

export function Outcome({ outcome }) {
  return html`<span class="outcome ${outcome}"><b aria-hidden="true">${SIGNS[outcome]}</b> ${outcome}</span>`;
}

export function Tile({ label, value, note, title }) {
  return html`<div class="tile" title=${title || ""}>
    <div class="label">${label}</div>
    <div class="value">${value}</div>
    <div class="note">${note}</div>
  </div>`;
}

export function Panel({ title, note, children, wide }) {
  return html`<section class="panel ${wide ? "wide" : ""}">
    <header><h2>${title}</h2>${note && html`<p>${note}</p>`}</header>
    ${children}
  </section>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><h2>${title}</h2><p>${children}</p></div>`;
}

// Parts of a text that were searched for stand out.
export function Marked({ text, found = [] }) {
  if (!found.length || !text) return text;
  const small = text.toLowerCase();
  // Some letters are longer in the other case; then nothing is marked rather than the wrong place.
  if (small.length !== text.length) return text;
  const parts = [];
  let at = 0;
  while (at < text.length) {
    const places = found.map((word) => [small.indexOf(word, at), word.length]).filter(([place]) => place >= 0);
    if (!places.length) break;
    const [place, length] = places.reduce((one, other) => (other[0] < one[0] ? other : one));
    parts.push(text.slice(at, place), html`<mark>${text.slice(place, place + length)}</mark>`);
    at = place + length;
  }
  return [...parts, text.slice(at)];
}

export function Pages({ found, change }) {
  if (found.pages < 2) return null;
  return html`<nav class="pages" aria-label="Pages">
    <button type="button" disabled=${found.page === 0} onClick=${() => change(found.page - 1)}>← previous</button>
    <span>page ${found.page + 1} of ${found.pages}</span>
    <button type="button" disabled=${found.page + 1 >= found.pages} onClick=${() => change(found.page + 1)}>next →</button>
  </nav>`;
}

// There may be a thousand clients; a report has the first of them.
export function ClientPages({ source, run, view, found, go }) {
  if (found.pages < 2) return null;
  if (!source.live) return html`<p class="aside">This report shows the first ${found.clients.length} of ${found.total} clients.</p>`;
  return html`<${Pages} found=${found} change=${(page) => go(link(run, view, { page: String(page) }))} />`;
}

export function Dialog({ open, close, title, children }) {
  const dialog = useRef(null);
  useEffect(() => {
    if (open && !dialog.current.open) dialog.current.showModal();
    if (!open && dialog.current.open) dialog.current.close();
  }, [open]);
  return html`<dialog ref=${dialog} onClose=${close} onClick=${(event) => event.target === dialog.current && close()}>
    <header><h2>${title}</h2><button type="button" onClick=${close} aria-label="Close">✕</button></header>
    ${children}
  </dialog>`;
}

export function link(run, view, asked = {}, ...rest) {
  const given = Object.entries(asked).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return `#/${[run, view, ...rest].map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

export function adapterName(row) {
  if (row.split === "after_learning") return `the client's own, round ${row.round}`;
  return row.adapter < 0 ? "none, a demonstration" : row.adapter === 0 ? "before any round" : `after round ${row.adapter}`;
}
