// Runs side by side: curves with bands, success with intervals, paired differences.
import { html } from "./htm.js";
import * as f from "./format.js";
import { Legend, LineChart, Numbers, useWidth } from "./chart.js";
import { Empty, link, Panel } from "./parts.js";
import { useViewOfRuns } from "./source.js";

export function Compare({ source, run, runs, asked, version, go }) {
  const chosen = asked.runs ? asked.runs.split(",") : runs.map(({ name }) => name);
  const { found, error, loading } = useViewOfRuns(source, run, "compare", { runs: chosen.join(","), against: asked.against || "" }, version);
  const toggle = (name) => {
    const next = chosen.includes(name) ? chosen.filter((one) => one !== name) : runs.map((one) => one.name).filter((one) => chosen.includes(one) || one === name);
    // Labels depend on what is compared.
    go(link(run, "compare", { ...asked, against: "", runs: next.join(",") || " " }), true);
  };
  return html`<div class="compare">
    <fieldset class="choose"><legend>Runs</legend>${runs.map(({ name }) => html`<label><input type="checkbox" checked=${chosen.includes(name)} onChange=${() => toggle(name)} /> ${name}</label>`)}</fieldset>
    ${loading ? html`<p class="wait">Comparing…</p>` : error ? html`<${Empty} title="These cannot be compared">${error}<//>` : html`<${Found} found=${found} run=${run} asked=${asked} go=${go} />`}
  </div>`;
}

function Found({ found, run, asked, go }) {
  const { methods, pairs } = found;
  const labels = methods.map((method) => method.label);
  const worlds = Object.keys(methods[0]?.worlds ?? {});
  const curves = [...methods, ...found.unfinished].map((one, colour) => ({ name: one.label, colour, points: curve(one) }));
  const drawn = curves.map((one) => one.name);
  const several = methods.some((method) => method.seeds.length > 1);
  return html`
    ${found.notes.length > 0 && html`<ul class="notes" aria-label="Notes">${found.notes.map((note) => html`<li>${note}</li>`)}</ul>`}
    <${Panel} title="Macro success over rounds" note="On validation tasks. ${several ? "With several seeds: their mean, and from the lowest to the highest; with one: its 95 % interval." : "The bands are 95 % intervals."}">
      <${Legend} names=${drawn} />
      <${LineChart} label="Macro success of each method over rounds" height=${250} range=${[0, 1]} show=${f.share} series=${curves} xLabel="after round" />
      <${Numbers} title="Macro success over rounds" columns=${["after round", ...drawn]} rows=${rounds(curves).map((x) => [x, ...curves.map((one) => f.percent(one.points.find((point) => point.x === x)?.y))])} />
    <//>
    ${methods.length > 0 && html`<${Panel} title="Success on ${found.split} tasks" note="Percent with 95 % intervals, after the last round.">
      <div class="scroll"><table><thead><tr><th>method</th><th class="n">seeds</th><th class="n">rounds</th>${worlds.map((name) => html`<th class="n">${name}</th>`)}<th class="n">macro</th><th class="n">micro</th></tr></thead>
      <tbody>${methods.map((method) => html`<tr><th scope="row">${method.label}</th><td class="n">${method.seeds.length}</td><td class="n">${method.rounds}</td>
        ${worlds.map((name) => html`<td class="n">${f.percent(method.worlds[name].success)}<br /><small>${f.interval(method.worlds[name].interval)}</small></td>`)}
        <td class="n"><b>${f.percent(method.macro)}</b><br /><small>${f.interval(method.macro_interval)}</small></td><td class="n">${f.percent(method.micro)}<br /><small>${f.interval(method.micro_interval)}</small></td></tr>`)}</tbody></table></div>
    <//>`}
    ${pairs.length > 0 && html`<${Panel} title="Paired differences" note="On the same tasks, in points, with 95 % intervals: right of the line the first is better.">
      ${labels.length > 2 && html`<label class="slider">against <select value=${asked.against || pairs[0].ours} onChange=${(event) => go(link(run, "compare", { ...asked, against: event.target.value }), true)}>${labels.map((label) => html`<option value=${label} selected=${label === (asked.against || pairs[0].ours)}>${label}</option>`)}</select></label>`}
      ${pairs.map((pair) => html`<${Pair} key="${pair.ours}|${pair.theirs}" pair=${pair} />`)}
    <//>`}
    ${found.definition && html`<p class="made">${found.definition}.</p>`}`;
}

function curve(method) {
  const runs = method.means;
  const places = [...new Set(runs.flat().map((point) => point.adapter))].sort((one, other) => one - other);
  return places.map((x) => {
    const there = runs.map((points) => points.find((point) => point.adapter === x)).filter(Boolean);
    const values = there.map((point) => point.macro);
    const [low, high] = there.length > 1 ? [Math.min(...values), Math.max(...values)] : there[0].macro_interval;
    return { x, y: values.reduce((total, value) => total + value, 0) / values.length, low, high, note: `(${f.interval([low, high])})` };
  });
}

function rounds(curves) {
  return [...new Set(curves.flatMap((one) => one.points.map((point) => point.x)))].sort((one, other) => one - other);
}

function Pair({ pair }) {
  const rows = [
    ["macro", pair.macro, pair.macro_interval, pair.p_holm],
    ...Object.entries(pair.by_world).map(([name, world]) => [name, world.share, world.interval, pair.by_world_holm[name]]),
  ];
  return html`<section class="difference"><h3>${pair.ours} <small>against</small> ${pair.theirs}</h3><p class="calm">${pair.verdict}; ${f.plural(pair.tasks, "task")}, ${f.plural(pair.seeds.length, "seed")}${pair.seeds_interval ? `; over the seeds alone ${f.points(pair.seeds_interval[0])} to ${f.points(pair.seeds_interval[1])} (Student's t)` : ""}.</p>
    <${Forest} label="Differences between ${pair.ours} and ${pair.theirs}" rows=${rows} /></section>`;
}

const WIDE = { left: 140, right: 200, high: 26 };
const NARROW = { left: 90, right: 10, high: 42 };

// A point with its interval for each row, around a line at zero.
function Forest({ label, rows }) {
  const [box, width] = useWidth();
  const { left, right, high } = width < 560 ? NARROW : WIDE;
  const most = Math.max(0.05, ...rows.flatMap(([, , bounds]) => bounds.map(Math.abs)));
  const x = (value) => left + (0.5 + value / most / 2.1) * (width - left - right);
  return html`<figure ref=${box} class="chart">${width > 0 && html`<svg width=${width} height=${high * rows.length + 6} role="img" aria-label="${label}: ${rows.map(([name, value, bounds]) => `${name} ${f.points(value)} (${f.points(bounds[0])} to ${f.points(bounds[1])})`).join("; ")}">
    <line class="cursor" x1=${x(0)} x2=${x(0)} y1="0" y2=${high * rows.length} />
    ${rows.map(([name, value, bounds, p], place) => {
      const y = high * place + 13;
      const sure = bounds[0] > 0 || bounds[1] < 0;
      return html`<g class=${sure ? "s0" : "s6"}><text x=${left - 12} y=${y + 4} text-anchor="end">${name}</text>
        <line class="whisker thick" x1=${x(bounds[0])} x2=${x(bounds[1])} y1=${y} y2=${y} /><circle class="marker ${sure ? "" : "hollow"}" cx=${x(value)} cy=${y} r="4" />
        <text x=${width < 560 ? 0 : width - right + 14} y=${width < 560 ? y + 20 : y + 4}>${f.points(value)} (${f.points(bounds[0])} to ${f.points(bounds[1])}), p ${p < 0.001 ? "< 0.001" : `= ${p.toFixed(3)}`}</text></g>`;
    })}
  </svg>`}</figure>`;
}
