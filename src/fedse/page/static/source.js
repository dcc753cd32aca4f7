// Where the numbers come from: the server that `fedse view` started, or the report itself.
import { useEffect, useState } from "./htm.js";

const PAGE = 50;
export const LOOK = 5000; // Milliseconds between two looks at a run that goes on, where no event tells.

class Live {
  live = true;
  took = {}; // Milliseconds that the last answer of each view took: who watches a run must not slow it down.

  async runs() {
    return (await this.ask("api/runs")).runs;
  }

  async view(run, view, asked = {}) {
    const began = performance.now();
    const found = await this.ask(`api/${encodeURIComponent(run)}/${view}?${new URLSearchParams(asked)}`);
    this.took[view] = performance.now() - began;
    return found;
  }

  async ask(address) {
    const response = await fetch(address);
    const answer = await response.json();
    if (answer.refused) throw new Error(answer.refused);
    return answer;
  }

  // Tells of every event after a place. The browser comes back by itself, and names the last one it has heard of.
  follow(run, place, told) {
    const events = new EventSource(`api/${encodeURIComponent(run)}/events?after=${place}`);
    events.onmessage = (message) => told(JSON.parse(message.data));
    return () => events.close();
  }
}

class Report {
  live = false;

  constructor(content) {
    this.content = content;
  }

  async runs() {
    return this.content.runs;
  }

  async view(run, view, asked = {}) {
    const { episodes, views, choices, total } = this.content;
    if (view === "trajectories") {
      const fitting = sorted(episodes.filter((episode) => fits(episode, asked)), asked.sort || "");
      const page = Number(asked.page || 0);
      return {
        ...{ kind: views.overview.kind, rows: fitting.slice(PAGE * page, PAGE * (page + 1)), fitting: fitting.length },
        ...{ total: episodes.length, page, pages: Math.ceil(fitting.length / PAGE), choices, problems: [], of: total },
      };
    }
    if (view !== "trajectory") return views[view];
    const found = episodes.find((episode) => episode.id === asked.id);
    if (!found) throw new Error("This report does not contain this trajectory.");
    const fitting = sorted(episodes.filter((episode) => fits(episode, asked)), asked.sort || "").map((row) => row.id);
    const at = fitting.indexOf(found.id);
    const same = episodes.filter((one) => one.world === found.world && one.task === found.task);
    same.sort((one, other) => one.adapter - other.adapter || one.attempt - other.attempt);
    const around = { position: at + 1, fitting: fitting.length, previous: fitting[at - 1], next: at < 0 ? null : fitting[at + 1] };
    return { ...found, same, around };
  }

  follow() {
    return () => {};
  }
}

export function words(search) {
  return search
    .toLowerCase()
    .split('"')
    .flatMap((part, place) => (place % 2 ? [part] : part.split(/\s+/)))
    .filter(Boolean);
}

function fits(episode, asked) {
  const exact = ["client", "world", "outcome", "purpose", "split", "category", "round", "adapter", "kept"];
  if (exact.some((key) => asked[key] && String(episode[key]) !== asked[key])) return false;
  if (asked.task && !episode.task.toLowerCase().includes(asked.task.toLowerCase())) return false;
  if (asked.least && episode.tokens < Number(asked.least)) return false;
  if (asked.most && episode.tokens > Number(asked.most)) return false;
  if (!asked.text) return true;
  const said = episode.said.flatMap((step) => [step.observation, step.reply]);
  const text = [episode.task, ...said, episode.closing, episode.error, episode.detail].join("\n").toLowerCase();
  return words(asked.text).every((word) => text.includes(word));
}

function sorted(rows, order) {
  const [column, direction] = order.split(" ");
  if (!column) return rows;
  const sign = direction === "down" ? -1 : 1;
  return [...rows].sort((one, other) => sign * (one[column] - other[column]));
}

export function openSource() {
  const inside = document.getElementById("report");
  return inside ? new Report(JSON.parse(inside.textContent)) : new Live();
}

// At least so many milliseconds, and so many that a tenth of the time at most is spent on answers.
export function pause(source, view, least) {
  return Math.max(least, 10 * (source.took[view] || 0));
}

// What a view shows; what it showed before stays until the new is there.
export function useView(source, run, view, asked, version = 0) {
  const [state, setState] = useState({});
  const wanted = JSON.stringify([run, view, asked]);
  useEffect(() => {
    let wanting = true;
    source.view(run, view, asked).then(
      (found) => wanting && setState({ found, wanted }),
      (error) => wanting && setState({ error: error.message, wanted }),
    );
    return () => {
      wanting = false;
    };
  }, [wanted, version]);
  return { ...state, loading: state.wanted !== wanted };
}

// A view of several runs, each of which may go on: it is asked again only after its answer has come, for it may take longer
// than the time between two events.
export function useViewOfRuns(source, run, view, asked, version) {
  const [looks, setLooks] = useState(0);
  const shown = useView(source, run, view, asked, `${version} ${looks}`);
  useEffect(() => {
    if (!source.live || !shown.found?.running) return undefined;
    const waiting = setTimeout(() => setLooks((number) => number + 1), pause(source, view, LOOK));
    return () => clearTimeout(waiting);
  }, [shown.found]);
  return shown;
}
