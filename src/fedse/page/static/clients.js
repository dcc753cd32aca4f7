// What each client did in each round, and how their updates fit together.
import { html, useState } from "./htm.js";
import * as f from "./format.js";
import { Bars, HeatMap, Legend, LineChart, Numbers } from "./chart.js";
import { ClientPages, Empty, Panel } from "./parts.js";
import { useView } from "./source.js";

export function Clients({ source, run, asked, version, go }) {
  const { found, error } = useView(source, run, "clients", asked, version);
  const [chosen, setChosen] = useState(null);
  if (error) return html`<${Empty} title="This cannot be shown">${error}<//>`;
  if (!found) return html`<p class="wait">Reading the reports…</p>`;
  const names = found.clients;
  const { rounds, buffers, side_by_side: pairs = {}, learned_shares: shares = {}, forgotten = {} } = found;
  const adapters = [...new Set(Object.values(forgotten).flatMap((rows) => Object.keys(rows).map(Number)))].sort((one, other) => one - other);
  const series = (value) => names.map((name, colour) => ({ name, colour, points: rounds.map((round) => ({ x: round.round, y: value(round.clients[name] || {}) })) })).filter((one) => one.points.some((point) => point.y !== null && point.y !== undefined));
  const chart = (title, note, value, show) => {
    const lines = series(value);
    if (!lines.length) return null;
    return html`<${Panel} title=${title} note=${note}><${LineChart} label="${title} of each client over rounds" series=${lines} show=${show} />
      <${Numbers} title=${title} columns=${["round", ...lines.map((line) => line.name)]} rows=${rounds.map((round, place) => [round.round, ...lines.map((line) => show(line.points[place].y))])} /><//>`;
  };
  const told = rounds.filter((round) => Object.keys(round.cosines).length);
  const at = told.find((round) => round.round === chosen) || told[told.length - 1];
  return html`<div class="clientsview">
    ${rounds.length === 0 && found.kind !== "site" && html`<${Empty} title="No round is complete yet">Numbers of the clients come with the first complete round.<//>`}
    <${ClientPages} source=${source} run=${run} view="clients" found=${found} go=${go} />
    ${names.length > 1 && html`<${Legend} names=${names} />`}
    ${Object.keys(buffers).length > 0 && html`<section><header class="section"><h2>What the buffers hold</h2><p>How many trajectories each buffer held after each round, and where they came from.</p></header>
      <div class="worlds">${names.map((name) => html`<${Buffer} key=${name} name=${name} rows=${buffers[name]} last=${rounds.length} here=${asked.client === name} />`)}</div></section>`}
    ${found.kind === "hub" && html`<p class="aside">Where the trajectories of a buffer came from is known to its site alone; the size of each buffer is told.</p>`}
    <div class="worlds">
      ${found.kind === "hub" && chart("Trajectories in the buffer", "as each client counts them", (entry) => entry.counts?.buffer, (y) => f.count(y))}
      ${chart("Successes while exploring", "share of the explored tasks", (entry) => (entry.counts?.explored ? entry.counts.successes / entry.counts.explored : null), f.share)}
      ${chart("Loss", "mean of the last epoch", (entry) => entry.loss, (y) => f.decimal(y, 3))}
      ${chart("Length of the update", "Euclidean norm of what the client changed", (entry) => entry.norm, (y) => f.decimal(y, 2))}
      ${chart("Effective step", "how much of its change each client finds again in the new shared adapter", (entry) => entry.step, f.share)}
      ${told.some((round) => round.product_gap !== null) && html`<${Panel} title="Product gap" note="share of the mean product that is lost by averaging A and B apart"><${LineChart} label="Product gap over rounds" series=${[{ name: "product gap", points: rounds.map((round) => ({ x: round.round, y: round.product_gap })) }]} show=${f.share} />
        <${Numbers} title="Product gap" columns=${["round", "product gap"]} rows=${rounds.map((round) => [round.round, f.percent(round.product_gap)])} /><//>`}
    </div>
    ${at && html`<${Panel} title="Directions of the updates" note="Cosine of each pair of clients in round ${at.round}: 1 is the same direction, 0 unrelated, −1 opposite.">
      <label class="slider">round ${at.round}<input type="range" min="0" max=${told.length - 1} value=${told.indexOf(at)} onInput=${(event) => setChosen(told[Number(event.target.value)].round)} /></label>
      <div class="pair">${Object.entries(at.cosines).map(([kind, matrix]) => html`<div><h3>${kind === "factors" ? "of the factors A and B" : "of the products BA"}</h3><${HeatMap} label="Cosines in round ${at.round}" names=${names} matrix=${matrix} /></div>`)}</div><//>`}
    ${Object.keys(pairs).length > 0 && html`<section><header class="section"><h2>Before and after aggregation</h2><p>Success on the same validation tasks with what the client had learned, and with what came back to it. Where the second is lower, aggregation took something away.</p></header>
      <div class="worlds">${Object.entries(pairs).map(([name, rows]) => html`<${BeforeAfter} key=${name} name=${name} rows=${rows} />`)}</div></section>`}
    ${Object.keys(shares).length > 0 && html`<${Panel} title="What a lesson is made of" note="share of each world in the tokens that a client learned from"><${Legend} names=${Object.keys(shares)} /><${LineChart} label="Shares of the worlds in each lesson" range=${[0, 1]} show=${f.share}
      series=${Object.entries(shares).map(([name, rows]) => ({ name, points: Object.entries(rows).map(([round, y]) => ({ x: Number(round), y })) }))} />
      <${Numbers} title="Shares" columns=${["world", ...rounds.map((round) => `round ${round.round}`)]} rows=${Object.entries(shares).map(([name, rows]) => [name, ...rounds.map((round) => f.percent(rows[round.round], 0))])} /><//>`}
    ${Object.keys(forgotten).length > 0 && html`<${Panel} title="What was forgotten" note="how far success on the same validation tasks is below its best round before; below 0, the adapter is the best so far"><${Legend} names=${Object.keys(forgotten)} /><${LineChart} label="What was forgotten in each world over rounds" show=${f.share}
      series=${Object.entries(forgotten).map(([name, rows]) => ({ name, points: Object.entries(rows).map(([round, y]) => ({ x: Number(round), y })) }))} />
      <${Numbers} title="Forgotten" columns=${["world", ...adapters.map((round) => `after round ${round}`)]} rows=${Object.entries(forgotten).map(([name, rows]) => [name, ...adapters.map((round) => f.percent(rows[round] ?? null, 0))])} /><//>`}
  </div>`;
}

function Buffer({ name, rows, last, here }) {
  const sources = [...new Set(rows.map((row) => row.source))].sort();
  const ends = [...rows.map((row) => row.round), last || 1];
  const rounds = [...Array(Math.max(...ends) + 1).keys()].slice(Math.min(...ends));
  const stacks = rounds.map((x) => ({ x, parts: Object.fromEntries(sources.map((source) => [source, sum(rows.filter((row) => row.source === source && row.round <= x))])) }));
  return html`<section class="panel world ${here ? "here" : ""}"><header><h3>${name}</h3><span class="now">${f.count(sum(rows))}</span></header>
    ${rows.length === 0 ? html`<p class="calm">It is empty.</p>` : html`<ul class="legend bars">${sources.map((source, place) => html`<li><span class="swatch s${place % 7}"></span>${source}</li>`)}</ul>
      <${Bars} label="${name}: trajectories in the buffer after each round" stacks=${stacks} names=${sources} height=${150} />
      <${Numbers} title="${name}: trajectories in the buffer" columns=${["round", ...sources]} rows=${stacks.map((stack) => [stack.x, ...sources.map((source) => stack.parts[source])])} />`}
  </section>`;
}

function sum(rows) {
  return rows.reduce((total, row) => total + row.count, 0);
}

function BeforeAfter({ name, rows }) {
  const entries = Object.entries(rows).map(([round, pair]) => [Number(round), ...pair]);
  return html`<section class="panel world"><header><h3>${name}</h3></header><${Legend} names=${["after learning", "after aggregation"]} />
    <${LineChart} label="${name}: success after learning and after aggregation" height=${160} range=${[0, 1]} show=${f.share}
      series=${["after learning", "after aggregation"].map((label, place) => ({ name: label, points: entries.map((entry) => ({ x: entry[0], y: entry[place + 1] })) }))} />
    <${Numbers} title="${name}: success" columns=${["round", "after learning", "after aggregation"]} rows=${entries.map(([round, ...shares]) => [round, ...shares.map((share) => f.percent(share))])} /></section>`;
}
