// The list of trajectories: filters, search, pages.
import { html, useEffect, useRef } from "./htm.js";
import * as f from "./format.js";
import { adapterName, Empty, link, Outcome, Pages } from "./parts.js";
import { useView } from "./source.js";

const NAMES = { text: "text", client: "client", world: "world", outcome: "outcome", purpose: "played to", split: "closing evaluation", round: "round", adapter: "adapter after round", task: "task", least: "tokens from", most: "tokens to", kept: "kept" };

export function WhyNone() {
  return html`<${Empty} title="A hub has no trajectories">
    They never leave the machines of its sites: a hub is sent adapters and counts, and nothing else. The operator of a site reads the site's own with <code>fedse view</code> and the site's folder.
  <//>`;
}

export function Trajectories({ source, run, asked, version, go }) {
  const { found, error, loading } = useView(source, run, "trajectories", asked, version);
  const search = useRef(null);
  const waiting = useRef(0);
  useEffect(() => () => clearTimeout(waiting.current), []);
  if (error) return html`<${Empty} title="This cannot be shown">${error}<//>`;
  if (!found) return html`<p class="wait">Reading the journals…</p>`;
  if (found.kind === "hub") return html`<${WhyNone} />`;
  const change = (changes) => go(link(run, "trajectories", { ...asked, page: "", ...changes }), true);
  const later = (changes) => {
    clearTimeout(waiting.current);
    waiting.current = setTimeout(() => change(changes), 200);
  };
  const set = Object.entries(asked).filter(([key]) => NAMES[key]);
  return html`<div class="browse ${loading ? "loading" : ""}">
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label class="search"><span>Search in what was said</span>
        <input id="search" ref=${search} type="search" placeholder='words, or "a phrase"   ( / )' value=${asked.text || ""} onInput=${(event) => later({ text: event.target.value })} /></label>
      ${["client", "world", "outcome", "purpose", "round"].map((key) => found.choices[key].length > 1 && html`<${Choice} key=${key} name=${key} label=${NAMES[key]} choices=${found.choices[key]} asked=${asked} change=${change} />`)}
      ${found.choices.split.length > 0 && html`<${Choice} name="split" label=${NAMES.split} choices=${found.choices.split} asked=${asked} change=${change} />`}
      <label><span>in the buffer</span><select value=${asked.kept || ""} onChange=${(event) => change({ kept: event.target.value })}>
        <option value="">any</option><option value="1" selected=${asked.kept === "1"}>kept</option><option value="0" selected=${asked.kept === "0"}>not kept</option></select></label>
      <label><span>task</span><input class="task" value=${asked.task || ""} placeholder="part of its id" onInput=${(event) => later({ task: event.target.value })} /></label>
      <label><span>agent tokens</span><span class="between"><input inputmode="numeric" aria-label="at least" placeholder="from" value=${asked.least || ""} onInput=${(event) => later({ least: event.target.value })} />
        <input inputmode="numeric" aria-label="at most" placeholder="to" value=${asked.most || ""} onInput=${(event) => later({ most: event.target.value })} /></span></label>
    </form>
    <div class="summary" role="status"><b>${f.plural(found.fitting, "trajectory").replace("trajectorys", "trajectories")}</b>${found.fitting !== found.total ? html` of ${f.count(found.total)}` : ""}
      ${set.map(([key, value]) => html` <button type="button" class="chip" onClick=${() => change({ [key]: "" })} aria-label="remove the filter ${NAMES[key]}">${NAMES[key]}: ${value} ✕</button>`)}
      ${found.of > found.total && html`<span class="aside">This report contains ${f.count(found.total)} of the run's ${f.count(found.of)} trajectories.</span>`}
    </div>
    ${found.problems.map((problem) => html`<p class="problem">${problem}</p>`)}
    ${found.rows.length === 0 ? html`<${Empty} title="None fits">${found.total ? "Take a filter away, or search for less." : source.live ? "No episode is stored yet: they come with the first complete round." : "This report was made without trajectories."}<//>` : html`<${List} run=${run} found=${found} asked=${asked} change=${change} />`}
    <${Pages} found=${found} change=${(page) => go(link(run, "trajectories", { ...asked, page: String(page) }))} />
  </div>`;
}

function Choice({ name, label, choices, asked, change }) {
  return html`<label><span>${label}</span><select name=${name} value=${asked[name] || ""} onChange=${(event) => change({ [name]: event.target.value })}>
    <option value="">any</option>
    ${choices.map(({ value, count }) => html`<option value=${String(value)} selected=${asked[name] === String(value)}>${value} (${f.count(count)})</option>`)}
  </select></label>`;
}

function List({ run, found, asked, change }) {
  const sort = (column) => {
    const next = asked.sort === `${column} down` ? `${column} up` : asked.sort === `${column} up` ? "" : `${column} down`;
    return html`<th class="n" aria-sort=${asked.sort?.startsWith(column) ? (asked.sort.endsWith("down") ? "descending" : "ascending") : "none"}>
      <button type="button" onClick=${() => change({ sort: next })}>${column}${asked.sort?.startsWith(column) ? (asked.sort.endsWith("down") ? " ↓" : " ↑") : ""}</button></th>`;
  };
  return html`<div class="scroll"><table class="list">
    <thead><tr><th>outcome</th><th>task</th><th>world</th><th class="wide">client</th><th>adapter</th><th class="wide">played to</th>${sort("steps")}${sort("tokens")}${sort("invalid")}${sort("score")}<th class="wide">buffer</th></tr></thead>
    <tbody>${found.rows.map(
      (row) => html`<tr key=${row.id} class=${row.outcome}>
        <td><${Outcome} outcome=${row.outcome} /></td>
        <th scope="row"><a class="row" href=${link(run, "trajectory", { ...asked, id: row.id, page: asked.page })}>${row.task}${row.attempt ? html` <small>attempt ${row.attempt + 1}</small>` : ""}</a></th>
        <td>${row.world}</td><td class="wide">${row.client}</td><td class="adapter">${adapterName(row)}</td><td class="wide">${row.split || row.purpose}</td>
        <td class="n">${row.steps}</td><td class="n">${f.count(row.tokens)}</td><td class="n ${row.invalid ? "bad" : ""}">${row.invalid}</td><td class="n">${f.decimal(row.score, 2)}</td><td class="wide">${row.kept ? "kept" : ""}</td></tr>`,
    )}</tbody>
  </table></div>`;
}
