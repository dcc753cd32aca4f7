// The frame: where we are, which run, how it goes; keys and colours.
import { html, render, useEffect, useErrorBoundary, useRef, useState } from "./htm.js";
import * as f from "./format.js";
import { Clients } from "./clients.js";
import { Compare } from "./compare.js";
import { Left } from "./left.js";
import { Overview } from "./overview.js";
import { Dialog, Empty, link } from "./parts.js";
import { LOOK, openSource, pause, useView } from "./source.js";
import { Trajectories } from "./trajectories.js";
import { Trajectory } from "./trajectory.js";

const TABS = [
  ["overview", "Overview"],
  ["clients", "Clients"],
  ["trajectories", "Trajectories"],
  ["left", "What left"],
  ["compare", "Compare"],
];
const KEYS = [
  ["1 to 5", "the views"],
  ["/", "search in all trajectories"],
  ["j  k", "next and previous: row in the list, step in a trajectory"],
  ["Enter", "open the row"],
  ["→  ←", "next and previous trajectory"],
  ["u", "back to the list"],
  ["?", "this list"],
];
const source = openSource();

function readPlace() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [run = "", view = "overview"] = path.split("/").map(decodeURIComponent);
  return { run, view, asked: Object.fromEntries(new URLSearchParams(query)) };
}

function usePlace() {
  const [place, setPlace] = useState(readPlace());
  useEffect(() => {
    const changed = () => setPlace(readPlace());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const go = (hash, replace = false) => {
    if (replace) history.replaceState(null, "", hash);
    else location.hash = hash;
    setPlace(readPlace());
  };
  return [place, go];
}

// Counts up whenever something happened in the run, not more than a few times per second, and now and then while it goes on:
// the end of a process is no event, and a site keeps no log of them.
function useNews(run, place, running) {
  const [version, setVersion] = useState(0);
  useEffect(() => {
    if (!source.live || place === undefined) return undefined;
    let waiting = 0;
    const stop = source.follow(run, place, () => {
      waiting =
        waiting ||
        setTimeout(() => {
          waiting = 0;
          setVersion((number) => number + 1);
        }, pause(source, "overview", 300));
    });
    return () => {
      clearTimeout(waiting);
      stop();
    };
  }, [run, place === undefined]);
  useEffect(() => {
    if (!source.live || !running) return undefined;
    const looking = setInterval(() => setVersion((number) => number + 1), LOOK);
    return () => clearInterval(looking);
  }, [running]);
  return version;
}

function App({ runs }) {
  const [place, go] = usePlace();
  const [help, setHelp] = useState(false);
  const run = runs.some(({ name }) => name === place.run) ? place.run : runs[0].name;
  useKeys(run, go, () => setHelp(true));
  return html`<${Run} key=${run} runs=${runs} run=${run} place=${place} go=${go} />
    <${Dialog} open=${help} close=${() => setHelp(false)} title="Keys"><dl class="keys">${KEYS.map(([keys, what]) => html`<dt><kbd>${keys}</kbd></dt><dd>${what}</dd>`)}</dl><//>`;
}

function Run({ runs, run, place, go }) {
  const [known, setKnown] = useState({});
  const version = useNews(run, known.place, known.running);
  const { found, error } = useView(source, run, "overview", {}, version);
  useEffect(() => {
    if (found) setKnown({ place: known.place ?? found.place, running: found.running || found.kind === "site" });
  }, [found]);
  const view = place.run === run ? place.view : "overview";
  const now = view === "trajectory" ? "trajectories" : view;
  useEffect(() => {
    document.title = `${run} · ${TABS.find(([name]) => name === now)?.[1] || ""} · fedse`;
    // Not all views fit side by side on a telephone.
    document.querySelector(".bar nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [run, now]);
  return html`<header class="bar">
      <a class="brand" href=${link(run, "overview")}>fedse</a>
      ${runs.length > 1
        ? html`<select class="run" aria-label="Run" value=${run} onChange=${(event) => go(link(event.target.value, now))}>${runs.map(({ name }) => html`<option value=${name} selected=${name === run}>${name}</option>`)}</select>`
        : html`<span class="run">${run}</span>`}
      <nav aria-label="Views">${TABS.filter(([name]) => name !== "compare" || runs.length > 1).map(([name, title]) => html`<a href=${link(run, name)} aria-current=${name === now ? "page" : null}>${title}</a>`)}</nav>
      <${State} found=${found} />
      <${Theme} />
    </header>
    <main>${error && view === "overview" ? html`<${Empty} title="This cannot be shown">${error}<//>` : found || error ? html`<${Shown} key=${view} view=${view} run=${run} found=${found} runs=${runs} asked=${place.run === run ? place.asked : {}} version=${version} go=${go} />` : html`<p class="wait">Reading the run…</p>`}</main>`;
}

function Shown({ view, run, runs, found, asked, version, go }) {
  const [problem] = useErrorBoundary();
  if (problem) return html`<${Empty} title="This view broke">${String(problem)}<//>`;
  const given = { source, run, asked, version, go };
  if (view === "clients") return html`<${Clients} ...${given} />`;
  if (view === "trajectories") return html`<${Trajectories} ...${given} />`;
  if (view === "trajectory") return html`<${Trajectory} ...${given} />`;
  if (view === "left") return html`<${Left} ...${given} />`;
  // Only a whole round moves a curve.
  if (view === "compare") return html`<${Compare} runs=${runs} ...${given} version=${`${found?.running} ${found?.done}`} />`;
  return html`<${Overview} run=${run} found=${found} />`;
}

function State({ found }) {
  if (!found) return null;
  if (!source.live) return html`<span class="status">report</span>`;
  if (found.kind === "site") return html`<span class="status">site</span>`;
  const over = found.done >= found.planned;
  if (found.running && !found.round) return html`<span class="status live" role="status"><i aria-hidden="true"></i>preparing</span>`;
  if (found.running && !over) return html`<span class="status live" role="status"><i aria-hidden="true"></i>round ${found.round} of ${found.planned}${found.left ? `, about ${f.duration(found.left)} left` : ""}</span>`;
  if (found.running) return html`<span class="status live" role="status"><i aria-hidden="true"></i>closing evaluation</span>`;
  return html`<span class="status" role="status">${over ? "finished" : `stopped after round ${found.done} of ${found.planned}`}</span>`;
}

function Theme() {
  const order = { auto: "light", light: "dark", dark: "auto" };
  const [theme, setTheme] = useState("auto");
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }, [theme]);
  return html`<button type="button" class="theme" title="Colours: ${theme}" aria-label="Colours: ${theme}" onClick=${() => setTheme(order[theme])}>${{ auto: "◐", light: "○", dark: "●" }[theme]}</button>`;
}

function useKeys(run, go, help) {
  const now = useRef(null);
  now.current = { run, go, help };
  useEffect(() => {
    const pressed = (event) => {
      const { run, go, help } = now.current;
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (event.target.closest("input, select, textarea")) {
        if (event.key === "Escape") {
          event.preventDefault(); // A browser would empty the field.
          event.target.blur();
        }
        return;
      }
      const act = keyed(event.key, run, go, help);
      if (act) {
        event.preventDefault();
        act();
      }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
}

function keyed(key, run, go, help) {
  if (key === "?") return help;
  if (key === "/") {
    return () => {
      if (!document.getElementById("search")) go(link(run, "trajectories"));
      setTimeout(() => document.getElementById("search")?.focus(), 60);
    };
  }
  const tab = TABS[Number(key) - 1];
  if (tab) return () => go(link(run, tab[0]));
  const rows = [...document.querySelectorAll("a.row")];
  const steps = { j: 1, k: -1 }[key];
  if (!rows.length || !steps) return null;
  const at = rows.indexOf(document.activeElement);
  return () => rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + steps))].focus();
}

source.runs().then(
  (runs) => render(html`<${App} runs=${runs} />`, document.body),
  (error) => render(html`<${Empty} title="The page cannot be shown">${error.message}<//>`, document.body),
);
