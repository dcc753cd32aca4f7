// Which words of two texts are the same: the longest common sequence of words.

const MOST = 1200; // Longer texts are compared by their beginnings and ends alone.

function pieces(text) {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) || [];
}

// [[kind, text]] for each of the two texts; kind is "same" or "only".
export function wordDiff(one, other) {
  const [left, right] = [pieces(one), pieces(other)];
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start += 1;
  let end = 0;
  while (end < left.length - start && end < right.length - start && left[left.length - 1 - end] === right[right.length - 1 - end]) end += 1;
  const [mine, theirs] = [left.slice(start, left.length - end), right.slice(start, right.length - end)];
  const kept = common(mine, theirs);
  const marks = (words, places) => words.map((word, place) => [places.has(place) ? "same" : "only", word]);
  const around = (middle, words) => joined([...words.slice(0, start).map((word) => ["same", word]), ...middle, ...words.slice(words.length - end).map((word) => ["same", word])]);
  return [around(marks(mine, new Set(kept.map(([place]) => place))), left), around(marks(theirs, new Set(kept.map(([, place]) => place))), right)];
}

// Pairs of places at which both have the same word, in order, as many as there can be.
function common(one, other) {
  if (!one.length || !other.length || one.length > MOST || other.length > MOST) return [];
  const width = other.length + 1;
  const lengths = new Uint16Array((one.length + 1) * width);
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] =
        one[i] === other[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < one.length && j < other.length) {
    if (one[i] === other[j]) found.push([i++, j++]);
    else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i += 1;
    else j += 1;
  }
  return found;
}

function joined(parts) {
  const found = [];
  for (const [kind, word] of parts) {
    const last = found[found.length - 1];
    if (last && last[0] === kind) last[1] += word;
    else found.push([kind, word]);
  }
  return found;
}
