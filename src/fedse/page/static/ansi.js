// A world's drawing: pieces of text with the names of their colours.
import { html } from "./htm.js";

const WIDE = 50; // Signs that fit beside a conversation.
const WALL = "█";

export function Drawing({ pieces, label }) {
  const lines = pieces.map(([text]) => text).join("").split("\n");
  // Sentences may be broken; a map that is too wide is moved instead.
  const map = lines.filter((line) => line.includes(WALL));
  const wide = (map.length ? map : lines).some((line) => line.length > WIDE);
  const kind = map.length ? (wide ? "map" : "small map") : wide ? "text" : "";
  return html`<pre class="drawing ${kind}" role="img" aria-label=${label}>
    ${pieces.map(([text, classes]) => html`<span class=${classes}>${text}</span>`)}
  </pre>`;
}
