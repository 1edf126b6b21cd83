// The tracks of the packed strip. Each draws into its own band, `at(token)` gives the pixel.
// What is narrower than a pixel is merged: 50,000 nodes cost one scan of typed arrays.

const GUTTER = 58;
const AXIS = 18;
const LANES = 14;
const ANCESTOR = 10; // pixels

function drawNodes(g, v, d, theme, band) {
  const lanes = d.lanes;
  const h = band.height / lanes;
  const painted = new Float64Array(lanes).fill(-1);
  for (let i = 0; i < d.count; i++) {
    if (d.reach[i] <= v.x0 || d.start[i] >= v.x1) continue;
    const lane = d.laneOf(i);
    const left = Math.max(v.at(d.start[i]), GUTTER);
    const right = Math.min(v.at(d.end[i]), v.width);
    const marked = i === d.node || d.onPath[i];
    if (right > GUTTER && right < painted[lane] + 0.75 && !marked) continue;
    const y = band.top + lane * h;
    const tint = theme.depths[Math.min(d.level[i], theme.depths.length - 1)];
    const far = Math.min(v.at(d.reach[i]), v.width);
    if (far > Math.max(right, GUTTER)) {
      g.fillStyle = tint + (theme.mode === "dark" ? "30" : "2e");
      g.fillRect(Math.max(right, GUTTER), y, far - Math.max(right, GUTTER), h - 1);
    }
    // An ancestor whose own tokens have left the window stands at its edge, as wide as a mark.
    if (right <= GUTTER) {
      g.fillStyle = i === d.node ? theme.red : d.onPath[i] ? theme.orange : tint;
      g.fillRect(GUTTER, y, Math.min(ANCESTOR, far - GUTTER), h - 1);
      continue;
    }
    g.fillStyle = i === d.node ? theme.red : d.onPath[i] ? theme.orange : tint;
    const gap = right - left > 3 ? 0.5 : 0;
    g.fillRect(left, y, Math.max(right - left - gap, 0.75), h - 1);
    painted[lane] = Math.max(right, painted[lane]);
    if (i === d.node && right - left > 2) {
      g.strokeStyle = theme.text;
      g.lineWidth = 1;
      g.strokeRect(left + 0.5, y + 0.5, right - left - 1, h - 2);
    }
  }
}

function drawPadding(g, v, d, theme, bottom) {
  const left = Math.max(v.at(d.used), GUTTER);
  const right = Math.min(v.at(d.cap), v.width);
  if (right <= left) return;
  g.strokeStyle = theme.text;
  g.lineWidth = 1;
  hatch(g, left, AXIS, right - left, bottom - AXIS, 8, 0.2);
  const words = "padding";
  const wide = g.measureText(words).width + 10;
  if (right - left > wide) {
    g.fillStyle = theme.background;
    g.fillRect(left + 4, AXIS + 4, wide, 17);
    g.fillStyle = theme.text;
    g.fillText(words, left + 9, AXIS + 16);
  }
}

function niceStep(span, ticks) {
  const raw = span / ticks;
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= raw) || raw;
}

function drawAxis(g, v, d, theme) {
  g.fillStyle = theme.text;
  g.globalAlpha = 0.75;
  const step = Math.max(niceStep(v.x1 - v.x0, (v.width - GUTTER) / 110), 1);
  for (let t = Math.ceil(v.x0 / step) * step; t < v.x1; t += step) {
    const x = v.at(t);
    const words = counted(t);
    g.fillRect(x, AXIS - 5, 1, 5);
    if (x + 4 + g.measureText(words).width < v.width) g.fillText(words, x + 4, 12);
  }
  g.globalAlpha = 1;
  if (d.node < 0) return;
  // Where the chosen branch stands, even if its node is a pixel wide.
  const left = Math.max(v.at(d.start[d.node]), GUTTER);
  const right = Math.min(Math.max(v.at(d.reach[d.node]), left + 2), v.width);
  g.fillStyle = theme.red;
  if (right > left) g.fillRect(left, AXIS - 3, right - left, 3);
}

// The highest value of each pixel as an area; value(i, token) is that of node i before `token`.
function drawProfile(g, v, d, theme, band, value, most, height) {
  const tops = new Float64Array(Math.ceil(v.width) + 1);
  for (let i = d.firstIn(v.x0); i < d.count && d.start[i] < v.x1; i++) {
    const last = Math.min(Math.floor(v.at(d.end[i])), tops.length - 1);
    for (let x = Math.max(Math.floor(v.at(d.start[i])), GUTTER); x <= last; x++) {
      const token = Math.min(v.token(x + 1), d.end[i]);
      if (token > d.start[i]) tops[x] = Math.max(tops[x], value(i, token));
    }
  }
  g.fillStyle = theme.depths[2];
  for (let x = GUTTER; x < v.width; x++) {
    const h = tops[x] > 0 ? Math.max(height(tops[x], most) * (band.height - 1), 1) : 0;
    g.fillRect(x, band.top + band.height - h, 1, h);
  }
  g.fillStyle = theme.text;
  g.globalAlpha = 0.25;
  g.fillRect(GUTTER, band.top + band.height, v.width - GUTTER, 1);
  g.globalAlpha = 1;
}

// Runs of tokens that are trained on; each pixel as strong as the share that it covers.
function drawTrained(g, v, d, theme, band) {
  const share = new Float32Array(Math.ceil(v.width) + 1);
  let low = 0, high = d.trained.length / 2;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (d.trained[2 * middle + 1] <= v.x0) low = middle + 1; else high = middle;
  }
  for (let r = low; 2 * r < d.trained.length && d.trained[2 * r] < v.x1; r++) {
    const left = Math.max(v.at(d.trained[2 * r]), GUTTER);
    const right = Math.min(v.at(d.trained[2 * r + 1]), v.width);
    for (let x = Math.floor(left); x < right; x++) {
      share[x] += Math.min(right, x + 1) - Math.max(left, x);
    }
  }
  g.fillStyle = theme.text;
  for (let x = GUTTER; x < v.width; x++) {
    if (share[x] <= 0) continue;
    g.globalAlpha = 0.15 + 0.65 * Math.min(share[x], 1);
    g.fillRect(x, band.top, 1, band.height);
  }
  g.globalAlpha = 1;
}

function drawPath(g, v, d, theme, band) {
  g.fillStyle = theme.orange;
  for (const i of d.path) {
    if (d.end[i] <= v.x0 || d.start[i] >= v.x1) continue;
    const left = Math.max(v.at(d.start[i]), GUTTER);
    g.fillRect(left, band.top, Math.max(Math.min(v.at(d.end[i]), v.width) - left, 1), band.height);
  }
}

// One cell a token once they are wide enough to be read; until then a hint.
function drawTokens(g, v, d, theme, band) {
  const cell = v.at(1) - v.at(0);
  g.fillStyle = theme.text;
  if (!d.words || cell < 9) {
    g.globalAlpha = 0.6;
    g.fillText("zoom in to read the tokens", GUTTER + 4, band.top + 14);
    g.globalAlpha = 1;
    return;
  }
  d.words.forEach((word, n) => {
    const token = d.wordsFrom + n;
    const left = v.at(token);
    if (left + cell <= GUTTER || left >= v.width) return;
    g.save();
    g.beginPath();
    g.rect(Math.max(left, GUTTER), band.top, cell - 1, band.height);
    g.clip();
    g.globalAlpha = token === d.token ? 1 : 0.1;
    g.fillStyle = token === d.token ? theme.red : theme.text;
    g.fillRect(left, band.top, cell - 1, band.height);
    g.globalAlpha = 1;
    g.fillStyle = token === d.token ? "#ffffff" : theme.text;
    g.fillText(word, left + 3, band.top + 14);
    g.restore();
  });
}

function drawName(g, theme, band) {
  g.fillStyle = theme.text;
  g.globalAlpha = 0.75;
  g.fillText(band.name, 0, band.top + Math.min(band.height / 2 + 4, 10), GUTTER - 6);
  if (band.most) g.fillText("≤ " + counted(band.most), 0, band.top + 22, GUTTER - 6);
  g.globalAlpha = 1;
}
