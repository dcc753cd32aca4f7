// Charts as SVG, drawn in the size they have on the screen, with the same numbers as a table.
import { html, useEffect, useRef, useState } from "./htm.js";
import { none } from "./format.js";

const COLOURS = 7;
const SHAPES = ["circle", "square", "triangle", "diamond"];
const SPACE = { top: 10, right: 14, bottom: 26, left: 42 };

export function useWidth(smallest = 180) {
  const box = useRef(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.max(smallest, Math.floor(entry.contentRect.width))));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  return [box, width];
}

function ticks(low, high, most) {
  const rough = (high - low) / Math.max(1, most) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

function Marker({ shape, x, y, hollow, colour }) {
  const classes = `marker s${colour} ${hollow ? "hollow" : ""}`;
  if (shape === "square") return html`<rect class=${classes} x=${x - 3.2} y=${y - 3.2} width="6.4" height="6.4" />`;
  if (shape === "triangle") return html`<path class=${classes} d="M${x} ${y - 4.2}l4 7h-8z" />`;
  if (shape === "diamond") return html`<path class=${classes} d="M${x} ${y - 4.6}l4.4 4.6l-4.4 4.6l-4.4 -4.6z" />`;
  return html`<circle class=${classes} cx=${x} cy=${y} r="3.6" />`;
}

// until: the last round there will be. series: [{name, dashed, points: [{x, y, low, high, hollow, note, href}]}]; lines: [{name, y, dashes}]
export function LineChart({ label, series, lines = [], height = 190, show = (y) => String(y), range, until = 0, xLabel = "round" }) {
  const [box, width] = useWidth();
  const [at, setAt] = useState(null);
  const all = series.flatMap((one) => one.points).filter((point) => point.y !== null && point.y !== undefined);
  const xs = [...new Set(all.map((point) => point.x))].sort((one, other) => one - other);
  if (!xs.length) return html`<div ref=${box} class="chart nothing">Nothing is measured yet.</div>`;
  const values = all.flatMap((point) => [point.y, point.low ?? point.y, point.high ?? point.y]);
  const [least, most] = range || [Math.min(0, ...values), Math.max(...values) || 1];
  const [first, last] = [xs[0], Math.max(until, xs[xs.length - 1])];
  const inner = { width: width - SPACE.left - SPACE.right, height: height - SPACE.top - SPACE.bottom };
  const x = (value) => SPACE.left + (last === first ? inner.width / 2 : ((value - first) / (last - first)) * inner.width);
  const y = (value) => SPACE.top + (1 - (value - least) / (most - least || 1)) * inner.height;
  const nearest = (event) => {
    const place = event.clientX - box.current.getBoundingClientRect().left;
    setAt(xs.reduce((one, other) => (Math.abs(x(other) - place) < Math.abs(x(one) - place) ? other : one)));
  };
  const move = (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const chosen = here.map(([, point]) => point.href).find(Boolean);
    if (event.key === "Enter" && chosen) location.hash = chosen;
    if (!steps) return;
    event.preventDefault();
    event.stopPropagation();
    const now = at === null ? (steps > 0 ? -1 : xs.length) : xs.indexOf(at);
    setAt(xs[Math.max(0, Math.min(xs.length - 1, now + steps))]);
  };
  const path = (points, key) => points.map((point, place) => `${place ? "L" : "M"}${x(point.x)} ${y(point[key])}`).join("");
  const here = at === null ? [] : series.map((one) => [one, one.points.find((point) => point.x === at)]).filter(([, point]) => point);
  return html`<figure ref=${box} class="chart">
    ${width > 0 &&
    html`<svg
      width=${width}
      height=${height}
      role="img"
      aria-label=${label}
      tabindex="0"
      onPointerMove=${nearest}
      onPointerLeave=${() => setAt(null)}
      onBlur=${() => setAt(null)}
      onKeyDown=${move}
    >
      ${ticks(least, most, Math.max(2, inner.height / 38)).map(
        (tick) => html`<g class="tick"><line x1=${SPACE.left} x2=${width - SPACE.right} y1=${y(tick)} y2=${y(tick)} />
          <text x=${SPACE.left - 7} y=${y(tick) + 4} text-anchor="end">${show(tick)}</text></g>`,
      )}
      ${ticks(first, last, Math.min(last - first, inner.width / 34) || 1)
        .filter(Number.isInteger)
        .map((tick) => html`<text class="tick" x=${x(tick)} y=${height - 8} text-anchor="middle">${tick}</text>`)}
      <text class="tick" x=${SPACE.left - 7} y=${height - 8} text-anchor="end">round</text>
      ${lines.map(
        (line) => html`<g class="bound"><line x1=${SPACE.left} x2=${width - SPACE.right} y1=${y(line.y)} y2=${y(line.y)} stroke-dasharray=${line.dashes} />
          <text x=${width - SPACE.right} y=${y(line.y) + (y(line.y) < SPACE.top + 14 ? 12 : -4)} text-anchor="end">${line.name}</text></g>`,
      )}
      ${at !== null && html`<line class="cursor" x1=${x(at)} x2=${x(at)} y1=${SPACE.top} y2=${height - SPACE.bottom} />`}
      ${series.map((one, place) => {
        const points = one.points.filter((point) => point.y !== null && point.y !== undefined);
        const banded = points.filter((point) => point.low !== undefined);
        const colour = (one.colour ?? place) % COLOURS;
        return html`<g>
          ${banded.length > 1 && html`<path class="band s${colour}" d="${path(banded, "high")}${path([...banded].reverse(), "low").replace("M", "L")}Z" />`}
          ${banded.length === 1 && html`<line class="whisker s${colour}" x1=${x(banded[0].x)} x2=${x(banded[0].x)} y1=${y(banded[0].low)} y2=${y(banded[0].high)} />`}
          <path class="curve s${colour} ${one.dashed ? "dashed" : ""}" d=${path(points, "y")} />
          ${points.map((point) => {
            const marker = html`<${Marker} shape=${SHAPES[(one.colour ?? place) % SHAPES.length]} x=${x(point.x)} y=${y(point.y)} hollow=${point.hollow} colour=${colour} />`;
            return point.href ? html`<a href=${point.href} aria-label="${one.name}, ${xLabel} ${point.x}: trajectories" tabindex="-1">${marker}</a>` : marker;
          })}
        </g>`;
      })}
    </svg>`}
    ${here.length > 0 &&
    html`<div class="tip ${x(at) > width / 2 ? "left" : "right"}" style=${x(at) > width / 2 ? { right: `${width - x(at) + 10}px` } : { left: `${x(at) + 10}px` }} role="status">
      <b>${xLabel} ${at}</b>
      ${here.map(([one, point]) => html`<div><span>${one.name}</span> ${show(point.y)}${point.note ? html` <i>${point.note}</i>` : ""}</div>`)}
    </div>`}
  </figure>`;
}

export function Legend({ names }) {
  return html`<ul class="legend">
    ${names.map(
      (name, place) => html`<li><svg width="22" height="12" aria-hidden="true"><line class="curve s${place % COLOURS}" x1="0" x2="22" y1="6" y2="6" />
        <${Marker} shape=${SHAPES[place % SHAPES.length]} x=${11} y=${6} colour=${place % COLOURS} /></svg>${name}</li>`,
    )}
  </ul>`;
}

// The same numbers for those who cannot see the chart, or want to copy them.
export function Numbers({ title, columns, rows }) {
  return html`<details class="numbers"><summary>Numbers</summary><div class="scroll"><table><caption>${title}</caption>
    <thead><tr>${columns.map((column) => html`<th scope="col">${column}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell, place) => (place ? html`<td>${cell ?? none}</td>` : html`<th scope="row">${cell}</th>`))}</tr>`)}</tbody>
  </table></div></details>`;
}

// stacks: [{x, parts: {name: count}}]
export function Bars({ label, stacks, names, height = 190, xLabel = "round" }) {
  const [box, width] = useWidth();
  const most = Math.max(1, ...stacks.map((stack) => names.reduce((sum, name) => sum + (stack.parts[name] || 0), 0)));
  const inner = { width: width - SPACE.left - SPACE.right, height: height - SPACE.top - SPACE.bottom };
  const slot = inner.width / Math.max(1, stacks.length);
  const bar = Math.min(56, slot * 0.72);
  const y = (value) => SPACE.top + (1 - value / most) * inner.height;
  const every = Math.ceil(stacks.length / Math.max(1, inner.width / 34));
  return html`<figure ref=${box} class="chart">
    ${width > 0 &&
    html`<svg width=${width} height=${height} role="img" aria-label=${label}>
      ${ticks(0, most, Math.max(2, inner.height / 38)).map(
        (tick) => html`<g class="tick"><line x1=${SPACE.left} x2=${width - SPACE.right} y1=${y(tick)} y2=${y(tick)} />
          <text x=${SPACE.left - 7} y=${y(tick) + 4} text-anchor="end">${tick}</text></g>`,
      )}
      <text class="tick" x=${SPACE.left - 7} y=${height - 8} text-anchor="end">round</text>
      ${stacks.map((stack, place) => {
        let below = 0;
        return html`<g>
          ${names.map((name, colour) => {
            const value = stack.parts[name] || 0;
            const top = y(below + value);
            const drawn = html`<rect class="bar s${colour % COLOURS}" x=${SPACE.left + slot * (place + 0.5) - bar / 2} width=${bar} y=${top} height=${y(below) - top}>
              <title>${xLabel} ${stack.x}: ${value} ${name}</title></rect>`;
            below += value;
            return value > 0 && drawn;
          })}
          ${place % every === 0 && html`<text class="tick" x=${SPACE.left + slot * (place + 0.5)} y=${height - 8} text-anchor="middle">${stack.x}</text>`}
        </g>`;
      })}
    </svg>`}
  </figure>`;
}

// Cosines from -1 to 1: blue for the same direction, orange for opposite ones, and the number in every cell.
export function HeatMap({ label, names, matrix }) {
  return html`<div class="scroll"><table class="heat" aria-label=${label}>
    <thead><tr><td></td>${names.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${matrix.map(
      (row, place) => html`<tr><th scope="row">${names[place]}</th>${row.map(
        (value) => html`<td class=${value === null ? "unknown" : value < 0 ? "against" : "along"} style=${{ "--strength": Math.min(1, Math.abs(value ?? 0)) }}>${value === null ? none : (Math.abs(value) < 0.005 ? 0 : value).toFixed(2)}</td>`,
      )}</tr>`,
    )}</tbody>
  </table></div>`;
}
