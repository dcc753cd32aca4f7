// A world's drawing: pieces of text with the names of their colours.
import { html } from "./htm.js";

const WIDE = 50; // A picture has shorter lines; longer ones are sentences and may be broken.

export function Drawing({ pieces, label }) {
  const lines = pieces.map(([text]) => text).join("").split("\n");
  const isText = lines.some((line) => line.length > WIDE);
  return html`<pre class="drawing ${isText ? "text" : ""}" role="img" aria-label=${label}>
    ${pieces.map(([text, classes]) => html`<span class=${classes}>${text}</span>`)}
  </pre>`;
}
