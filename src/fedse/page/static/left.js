// What left each client, byte for byte, as its own ledger has it.
import { html, useState } from "./htm.js";
import * as f from "./format.js";
import { ClientPages, Empty, Pages, Tile } from "./parts.js";
import { useView } from "./source.js";

const PAGE = 100;

export function Left({ source, run, asked, version, go }) {
  const { found, error } = useView(source, run, "left", asked, version);
  if (error) return html`<${Empty} title="This cannot be shown">${error}<//>`;
  if (!found) return html`<p class="wait">Reading the ledgers…</p>`;
  if (found.kind === "hub")
    return html`<${Empty} title="A hub has no ledger of its sites">Each site writes down what leaves it, in a ledger of its own. Its operator reads it there with <code>fedse view</code> and the site's folder.<//>`;
  return html`<div class="left">
    <p class="aside">A client writes every field of an update into its ledger before it leaves: how many bytes, and their SHA-256. What is not in this list has not left. No trajectory, no text of a conversation is ever part of an update.</p>
    ${found.clients.length === 0 && html`<${Empty} title="Nothing has left yet">The ledger begins with the first update.<//>`}
    ${found.clients.map((client) => html`<${Ledger} key=${client.client} client=${client} />`)}
    <${ClientPages} source=${source} run=${run} view="left" found=${found} go=${go} />
  </div>`;
}

function Ledger({ client }) {
  const [page, setPage] = useState(0);
  const fields = [...new Set(client.lines.map((line) => line.field))];
  const stayed = client.stayed.reduce((total, part) => total + part.bytes, 0);
  const pages = Math.ceil(client.lines.length / PAGE);
  return html`<section class="panel"><header><h2>${client.client}</h2></header>
    <div class="tiles"><${Tile} label="Left" value=${f.bytes(client.bytes)} note="${f.count(client.bytes)} bytes, ${f.plural(client.lines.length, "field")}" />
      <${Tile} label="Stayed" value=${f.bytes(stayed)} note=${f.plural(client.stayed.reduce((total, part) => total + part.files, 0), "file")} /></div>
    ${client.unreadable > 0 && html`<p class="problem">${f.plural(client.unreadable, "line")} of the ledger cannot be read.</p>`}
    <div class="pair">
      <div><h3>What left, by field</h3><table><thead><tr><th>field</th><th class="n">times</th><th class="n">bytes</th></tr></thead><tbody>${fields.map((field) => {
        const lines = client.lines.filter((line) => line.field === field);
        return html`<tr><th scope="row"><code>${field}</code></th><td class="n">${lines.length}</td><td class="n">${f.count(lines.reduce((total, line) => total + line.bytes, 0))}</td></tr>`;
      })}</tbody></table></div>
      <div><h3>What stayed</h3><table><thead><tr><th>what</th><th class="n">files</th><th class="n">bytes</th></tr></thead><tbody>${client.stayed.map((part) => html`<tr><th scope="row">${part.what}</th><td class="n">${part.files}</td><td class="n">${f.count(part.bytes)}</td></tr>`)}</tbody></table></div>
    </div>
    <details><summary>Every entry (${f.count(client.lines.length)})</summary><div class="scroll"><table class="ledger">
      <thead><tr><th>time</th><th>task</th><th>field</th><th class="n">shape</th><th class="n">bytes</th><th>SHA-256</th></tr></thead>
      <tbody>${client.lines.slice(PAGE * page, PAGE * (page + 1)).map((line) => html`<tr><td>${f.when(line.time)}</td><td>${line.task}</td><td><code>${line.field}</code></td><td class="n">${line.shape.join(" × ")}</td><td class="n">${f.count(line.bytes)}</td><td><code title=${line.sha256}>${line.sha256}</code></td></tr>`)}</tbody></table></div>
      <${Pages} found=${{ page, pages }} change=${setPage} />
    </details></section>`;
}
