// What a run has reached, how far it has come, what it took and what went wrong.
import { html, useState } from "./htm.js";
import * as f from "./format.js";
import { Legend, LineChart, Numbers } from "./chart.js";
import { link, Panel, Tile } from "./parts.js";

const MOST = 24; // Worlds that are drawn unasked.

export function Overview({ run, found }) {
  const { worlds, means, clients, totals, problems, feed, tests } = found;
  const [first, last] = [means[0], means[means.length - 1]];
  const [most, setMost] = useState(MOST);
  const isSite = found.kind === "site";
  const table = isSite || html`<${Clients} run=${run} clients=${clients} />`;
  return html`<div class="overview">
    <p class="method">${found.method}, model ${found.model}</p>
    <div class="tiles">
      ${isSite || html`<${Tile} label="Rounds" value=${html`${found.done}<small> of ${found.planned}</small>`}
        note=${html`<progress max=${found.planned || 1} value=${found.done} aria-label="complete rounds"></progress>`} />`}
      ${last && html`<${Tile} label="Macro success" value=${f.percent(last.macro)} title="mean over worlds, on held-out validation tasks"
        note=${last === first ? `95 %: ${f.interval(last.macro_interval)}` : `${f.points(last.macro - first.macro)} points`} />`}
      ${last && html`<${Tile} label="Micro success" value=${f.percent(last.micro)} title="all validation episodes together" note="95 %: ${f.interval(last.micro_interval)}" />`}
      ${isSite || html`<${Tile} label=${found.left && found.running !== false ? "Time left" : "Time of the rounds"}
        value=${found.left && found.running !== false ? `≈ ${f.duration(found.left)}` : f.duration(totals.seconds)}
        note=${found.began ? `began ${f.when(found.began).slice(5, 16)}` : ""} />`}
      ${isSite || html`<${Tile} label="Exploration tokens" value=${f.short(totals.sampled)} title="sampled while exploring; learned from, once per epoch" note=${totals.learned === null ? "" : `${f.short(totals.learned)} learned from`} />`}
      ${isSite || html`<${Tile} label="Adapters sent" value=${f.bytes(totals.up)} title="by all clients to the server, and back" note="${f.bytes(totals.down)} broadcast" />`}
      <${Tile} label="Went wrong" value=${problems.length ? f.count(problems.length) : "nothing"} note=${problems.length ? html`<a href="#wrong" onClick=${jump}>see below</a>` : "no warning"} />
    </div>
    ${isSite && html`<p class="aside">This is a site's own folder. It has the site's trajectories and ledger; rounds and their results are at the hub.</p>`}
    ${found.running && table}
    ${means.length > 0 && html`<${Means} means=${means} until=${found.planned} />`}
    ${worlds.length > 0 && html`<section><header class="section"><h2>Success in each world</h2>
      <p>On held-out validation tasks, with 95 % intervals, after each round. Floor: a random policy; ceiling: the world's expert. Clearly above the floor: the interval is above that of the floor. A hollow mark has fewer tasks. Click a mark to read its episodes.</p></header>
      <div class="worlds">${worlds.slice(0, most).map((world) => html`<${World} key=${world.name} run=${run} world=${world} until=${found.planned} />`)}</div>
      ${worlds.length > most && html`<button type="button" onClick=${() => setMost(worlds.length)}>show all ${worlds.length}</button>`}</section>`}
    ${tests && html`<${Test} tests=${tests} />`}
    ${!found.running && table}
    <div class="pair">
      <section class="panel" id="wrong"><header><h2>What went wrong</h2></header>
        ${problems.length === 0 ? html`<p class="calm">Nothing: no warning, no refused update, no missing answer.</p>` : html`<ul class="log">${problems.map(
          (problem) => html`<li><time>${problem.round === null ? "" : `round ${problem.round}`}</time><span>${problem.text}${problem.times > 1 ? ` (${problem.times} times)` : ""}${problem.asked && found.kind === "run" ? html` · <a href=${link(run, "trajectories", problem.asked)}>read them</a>` : ""}</span></li>`,
        )}</ul>`}
      </section>
      ${feed.length > 0 && html`<${Panel} title="What happened last"><ul class="log">${[...feed].reverse().map((line) => html`<li><time>${f.clock(line.time)}</time><span>${line.text}</span></li>`)}</ul><//>`}
    </div>
    ${found.made_with.length > 0 && html`<p class="made">Made with ${found.made_with.join("; then with ")}.</p>`}
  </div>`;
}

function jump(event) {
  event.preventDefault();
  document.getElementById("wrong").scrollIntoView({ behavior: "smooth" });
}

function Means({ means, until }) {
  const points = (key) => means.map((point) => ({ x: point.adapter, y: point[key], low: point[`${key}_interval`][0], high: point[`${key}_interval`][1], note: `(${f.interval(point[`${key}_interval`])})` }));
  const last = means[means.length - 1];
  const told = `Macro success ${f.percent(means[0].macro)} at the beginning, ${f.percent(last.macro)} after round ${last.adapter}`;
  return html`<${Panel} title="All worlds together" note="Macro is the mean over worlds, micro counts all episodes alike. The bands are 95 % intervals.">
    <${Legend} names=${["macro", "micro"]} />
    <${LineChart} label=${told} height=${220} range=${[0, 1]} until=${until} show=${f.share} xLabel="after round"
      series=${[{ name: "macro", points: points("macro") }, { name: "micro", dashed: true, points: points("micro") }]} lines=${bounds(last)} />
    <${Numbers} title="Macro and micro success" columns=${["after round", "macro", "95 %", "micro", "95 %", "episodes"]}
      rows=${means.map((point) => [point.adapter, f.percent(point.macro), f.interval(point.macro_interval), f.percent(point.micro), f.interval(point.micro_interval), point.episodes])} />
  <//>`;
}

function bounds(point) {
  return [
    { name: "floor", y: point.floor, dashes: "2 4" },
    { name: "ceiling", y: point.ceiling, dashes: "7 4" },
  ].filter((line) => line.y !== null && line.y !== undefined);
}

function World({ run, world, until }) {
  const rows = world.rows.filter((row) => row.success !== null);
  if (!rows.length) return null;
  const most = Math.max(...rows.map((row) => row.episodes));
  const [first, last] = [rows[0], rows[rows.length - 1]];
  const points = rows.map((row) => ({
    ...{ x: row.adapter, y: row.success, low: row.interval[0], high: row.interval[1], hollow: row.episodes < most },
    note: `(${f.interval(row.interval)}), ${row.episodes} tasks`,
    href: link(run, "trajectories", { client: row.client, world: row.world, purpose: "evaluate", adapter: String(row.adapter) }),
  }));
  const above = world.above === null ? "Not clearly above the floor yet." : world.above === 0 ? "Clearly above the floor from the beginning." : `Clearly above the floor from round ${world.above} on.`;
  const told = `${world.name}: success ${f.percent(first.success)} at the beginning, ${f.percent(last.success)} after round ${last.adapter}. ${above}`;
  return html`<section class="panel world">
    <header><h3>${world.name}</h3><span class="now">${f.percent(last.success)}</span></header>
    <p class="above">${above}</p>
    <${LineChart} label=${told} height=${170} range=${[0, 1]} until=${until} show=${f.share} xLabel="after round" series=${[{ name: "success", points }]} lines=${bounds(world)} />
    <${Numbers} title="${world.name}: success" columns=${["after round", "success", "95 %", "tasks", "invalid actions", "steps", "tokens", "errors"]}
      rows=${rows.map((row) => [row.adapter, f.percent(row.success), f.interval(row.interval), row.episodes, f.percent(row.invalid), f.decimal(row.steps, 1), f.decimal(row.tokens, 0), row.errors])} />
  </section>`;
}

function Test({ tests }) {
  return html`<${Panel} title="Test, adapter after round ${tests.round}" note="Macro ${f.percent(tests.macro)}, micro ${f.percent(tests.micro)} (95 %: ${f.interval(tests.micro_interval)}).">
    <div class="scroll"><table>
      <thead><tr><th>client</th><th>world</th><th class="n">success</th><th class="n">95 %</th><th class="n">floor</th><th class="n">ceiling</th><th class="n">tasks</th></tr></thead>
      <tbody>${tests.worlds.map((row) => html`<tr><td>${row.client}</td><td>${row.world}</td><td class="n">${f.percent(row.success)}</td><td class="n">${f.interval(row.interval)}</td>
        <td class="n">${f.percent(row.floor)}</td><td class="n">${f.percent(row.ceiling)}</td><td class="n">${row.episodes}</td></tr>`)}</tbody>
    </table></div><//>`;
}

function Clients({ run, clients }) {
  return html`<${Panel} title="Clients" note="What each does now, and what its newest round was like.">
    <div class="scroll"><table class="clients">
      <thead><tr><th>client</th><th>now</th><th class="n">round</th><th class="n">explored</th><th class="n">successes</th><th class="n">errors</th><th class="n">buffer</th><th class="n">loss</th><th class="n">sent in all</th></tr></thead>
      <tbody>${clients.map(
        (row) => html`<tr><th scope="row"><a href=${link(run, "clients", { client: row.client })}>${row.client}</a></th><td><span class="state ${row.doing.split(" ")[0]}">${row.doing || f.none}</span></td>
        <td class="n">${row.round ?? f.none}</td><td class="n">${f.count(row.explored)}</td><td class="n">${f.count(row.successes)}</td><td class="n">${f.count(row.errors)}</td>
        <td class="n">${f.count(row.buffer)}</td><td class="n">${f.decimal(row.loss)}</td><td class="n">${f.bytes(row.bytes)}</td></tr>`,
      )}</tbody>
    </table></div><//>`;
}
