// One trajectory to read as a conversation, with the world's drawing beside it, or beside another attempt at the same task.
import { html, useEffect, useState } from "./htm.js";
import * as f from "./format.js";
import { Drawing } from "./ansi.js";
import { wordDiff } from "./diff.js";
import { adapterName, Empty, link, Marked, Outcome } from "./parts.js";
import { useView, words } from "./source.js";

export function Trajectory({ source, run, asked, go }) {
  const { found, error } = useView(source, run, "trajectory", asked);
  const other = asked.with;
  const [step, setStep] = useState(0);
  useEffect(() => setStep(Number(asked.step || 0)), [asked.id]);
  const last = found ? found.said.length : 0;
  const { id: _, with: __, step: ___, ...list } = asked;
  const open = (id) => id && go(link(run, "trajectory", { ...list, id }));
  useEffect(() => {
    const pressed = (event) => {
      if (!found || event.target.closest("input, select, textarea, svg[tabindex]") || event.ctrlKey || event.metaKey || event.altKey) return;
      const act = {
        j: () => setStep(Math.min(last, step + 1)),
        k: () => setStep(Math.max(0, step - 1)),
        ArrowRight: () => open(found.around.next),
        ArrowLeft: () => open(found.around.previous),
        u: () => go(link(run, "trajectories", list)),
      }[event.key];
      if (act) {
        event.preventDefault();
        act();
      }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  });
  useEffect(() => {
    document.querySelector(".turn.here")?.scrollIntoView({ block: "nearest" });
  }, [step, found?.id]);
  if (error) return html`<${Empty} title="This cannot be shown">${error}<//>`;
  if (!found) return html`<p class="wait">Reading the journal…</p>`;
  const { around } = found;
  return html`<article class="trajectory">
    <nav class="around" aria-label="Trajectories">
      <a href=${link(run, "trajectories", list)}>← list</a>
      <span class="steps">
        <button type="button" disabled=${!around.previous} onClick=${() => open(around.previous)} title="arrow left">‹ previous</button>
        <span>${around.position ? `${f.count(around.position)} of ${f.count(around.fitting)}` : "not among those that fit"}</span>
        <button type="button" disabled=${!around.next} onClick=${() => open(around.next)} title="arrow right">next ›</button>
      </span>
    </nav>
    <header class="head">
      <h1><${Outcome} outcome=${found.outcome} /> ${found.task}</h1>
      <p>${found.client} · ${found.world}${found.category ? ` · ${found.category}` : ""} · adapter ${adapterName(found)} · ${found.split || found.purpose}${found.attempt ? ` · attempt ${found.attempt + 1}` : ""}</p>
    </header>
    ${other ? html`<${Beside} source=${source} run=${run} one=${found} asked=${asked} list=${list} />` : html`<${Single} found=${found} run=${run} list=${list} step=${Math.min(step, last)} setStep=${setStep} search=${words(asked.text || "")} />`}
  </article>`;
}

function Single({ found, run, list, step, setStep, search }) {
  const last = found.said.length;
  return html`<div class="reading">
    <div class="talk">
      ${found.rules && html`<details class="rules"><summary>System prompt</summary><pre>${found.rules}</pre></details>`}
      ${found.said.map((turn, place) => html`<${Turn} key=${place} turn=${turn} place=${place} here=${place === step} kept=${found.kept} choose=${() => setStep(place)} search=${search} />`)}
      <section class="turn end ${step === last ? "here" : ""}" onClick=${() => setStep(last)}>
        ${found.closing && html`<div class="world"><span class="who">world</span><pre><${Marked} text=${found.closing} found=${search} /></pre></div>`}
        <p class="verdict"><${Outcome} outcome=${found.outcome} /> score ${f.decimal(found.score, 2)}${Object.entries(found.rewards).map(([name, value]) => `, ${name} ${f.decimal(value, 2)}`).join("")}</p>
        ${found.error && html`<details open class="broken"><summary>${found.error}</summary><pre>${found.detail}</pre></details>`}
      </section>
    </div>
    <aside>
      <section class="panel drawn"><header><h2>The world</h2>${found.drawings.length > 0 && html`<span>${step === last ? "at the end" : `before action ${step + 1}`}</span>`}</header>
        ${found.drawings[step] ? html`<${Drawing} pieces=${found.drawings[step]} label="${found.world}, ${step === last ? "at the end" : `before action ${step + 1}`}" />` : html`<p class="calm">${found.note || "Not drawn."}</p>`}
        ${found.drawings[step] && found.note && html`<p class="calm">${found.note}</p>`}
        ${found.drawings.length > 1 && html`<label class="slider"><span class="hidden">Step</span><input type="range" min="0" max=${last} value=${step} onInput=${(event) => setStep(Number(event.target.value))} /></label>`}
      </section>
      <section class="panel"><header><h2>Tokens</h2><span>${f.count(found.tokens)} of ${f.count(found.context)} by the agent</span></header>
        <${Mask} mask=${found.mask} learned=${found.kept} />
      </section>
      <${Same} found=${found} run=${run} list=${list} />
    </aside>
  </div>`;
}

function Turn({ turn, place, here, kept, choose, search }) {
  const unparsed = !turn.action;
  return html`<section class="turn ${here ? "here" : ""}" aria-current=${here ? "step" : null} onClick=${choose}>
    <div class="world"><span class="who">world</span><pre><${Marked} text=${turn.observation} found=${search} /></pre>${turn.hint && html`<span class="flag quiet">hint</span><pre><${Marked} text=${turn.hint} found=${search} /></pre>`}</div>
    <div class="agent ${turn.learned ? "counted" : "masked"} ${kept && turn.learned ? "learned" : ""}" title=${turn.learned ? "in the loss mask" : "left out of the loss"}>
      <span class="who">agent <small>${place + 1}</small></span>
      ${unparsed
        ? html`<pre><${Marked} text=${turn.reply} found=${search} /></pre><span class="flag">no action could be read</span>`
        : html`${turn.thought && html`<pre class="thought"><${Marked} text=${turn.thought} found=${search} /></pre>`}<pre class="action"><${Marked} text=${turn.action} found=${search} /></pre>`}
      ${!turn.valid && !unparsed && html`<span class="flag">invalid action</span>`}
      ${!turn.learned && html`<span class="flag quiet">not in the loss</span>`}
      ${turn.likelihood && html`<span class="flag quiet" title="natural logarithm of the probability with which tokens were drawn: the mean, and the least likely token">log p ${f.decimal(turn.likelihood.mean, 2)}, least ${f.decimal(turn.likelihood.least, 2)}</span>`}
      ${turn.reward !== 0 && html`<span class="flag quiet">reward ${f.decimal(turn.reward, 2)}</span>`}
    </div>
  </section>`;
}

// Every token as a stripe: those of the agent that the loss counts, and all others.
function Mask({ mask, learned }) {
  const total = mask.reduce((sum, [, length]) => sum + length, 0);
  const counted = mask.reduce((sum, [flag, length]) => sum + flag * length, 0);
  if (!total) return html`<p class="calm">No tokens are stored.</p>`;
  let at = 0;
  return html`<svg class="mask" viewBox="0 0 ${total} 10" preserveAspectRatio="none" role="img" aria-label="${counted} of ${total} tokens are in the loss mask">
      <rect class="rest" width=${total} height="10" />
      ${mask.map(([flag, length]) => {
        const bar = flag ? html`<rect class="in" x=${at} width=${length} height="10" />` : null;
        at += length;
        return bar;
      })}
    </svg>
    <p class="key"><span class="in"></span> ${f.count(counted)} in the loss mask <span class="rest"></span> ${f.count(total - counted)} read only</p>
    <p class="calm">${learned ? "It is in the buffer that lessons are made of." : "It is not in the buffer: nothing is learned from it."}</p>`;
}

function Same({ found, run, list }) {
  return html`<section class="panel same"><header><h2>The same task</h2><span>${f.plural(found.same.length, "attempt")}</span></header>
    <table><tbody>${found.same.map(
      (row) => html`<tr class=${row.id === found.id ? "this" : ""}>
        <td><${Outcome} outcome=${row.outcome} /></td>
        <td><a href=${link(run, "trajectory", { ...list, id: row.id })}>${adapterName(row)}</a>${row.attempt ? html` <small>attempt ${row.attempt + 1}</small>` : ""}${row.client !== found.client ? html` <small>${row.client}</small>` : ""}</td>
        <td class="n">${row.id === found.id ? "this one" : html`<a href=${link(run, "trajectory", { ...list, id: found.id, with: row.id })}>compare</a>`}</td></tr>`,
    )}</tbody></table></section>`;
}

function Beside({ source, run, one, asked, list }) {
  const { found: other, error } = useView(source, run, "trajectory", { id: asked.with });
  if (error) return html`<${Empty} title="This cannot be shown">${error}<//>`;
  if (!other) return html`<p class="wait">Reading the journal…</p>`;
  const [left, right] = one.adapter <= other.adapter ? [one, other] : [other, one];
  const length = Math.max(left.said.length, right.said.length);
  const apart = [...Array(length).keys()].find((place) => left.said[place]?.reply !== right.said[place]?.reply);
  return html`<div class="beside">
    <p class="summary">${apart === undefined ? "Both say the same." : `They say the same up to step ${apart}; from step ${apart + 1} on they differ.`} <a href=${link(run, "trajectory", { ...list, id: one.id })}>Close the comparison</a></p>
    <div class="columns heads">${[left, right].map((item) => html`<h2><${Outcome} outcome=${item.outcome} /> <a href=${link(run, "trajectory", { ...list, id: item.id })}>${adapterName(item)}</a> <small>${item.client}, ${item.split || item.purpose}${item.attempt ? `, attempt ${item.attempt + 1}` : ""}</small></h2>`)}</div>
    ${[...Array(length).keys()].map((place) => html`<${Both} key=${place} place=${place} one=${left.said[place]} other=${right.said[place]} names=${[left, right].map(adapterName)} />`)}
    <div class="columns">${[left, right].map((item) => html`<div class="turn end" data-of=${adapterName(item)}>${item.closing && html`<div class="world"><span class="who">world</span><pre>${item.closing}</pre></div>`}<p class="verdict"><${Outcome} outcome=${item.outcome} /> score ${f.decimal(item.score, 2)}</p></div>`)}</div>
  </div>`;
}

function Both({ place, one, other, names }) {
  const seen = wordDiff(one?.observation || "", other?.observation || "");
  const said = wordDiff(one?.reply || "", other?.reply || "");
  return html`<div class="columns">${[one, other].map(
    (turn, side) => html`<div class="turn" data-of=${names[side]}>${turn
      ? html`<div class="world"><span class="who">world</span><pre><${Changed} parts=${seen[side]} side=${side} /></pre></div>
          <div class="agent ${turn.learned ? "counted" : "masked"}"><span class="who">agent <small>${place + 1}</small></span><pre><${Changed} parts=${said[side]} side=${side} /></pre>${!turn.valid && html`<span class="flag">invalid action</span>`}</div>`
      : html`<p class="calm">This one had ended.</p>`}</div>`,
  )}</div>`;
}

function Changed({ parts, side }) {
  return parts.map(([kind, text]) => (kind === "same" ? text : side ? html`<ins>${text}</ins>` : html`<del>${text}</del>`));
}
