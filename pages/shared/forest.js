// The forest: every tree a thin bar, as long as it is full, as dark as its rows share.
// Bars wrap into columns; the canvas is as high as the window on them and draws only what is seen.

const ROW = 13;
const BAR = 9;
const HIGHEST = 236;
const NARROWEST = 58;
const FEW = 14;

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const { root, part, canvas, tip, live } = partsOf(parentElement, "forest");
  const view = part(".view");
  view.setAttribute("aria-label", data.label);

  const order = decode(data.order, Int32Array);
  const tokens = decode(data.tokens, Int32Array);
  const rows = decode(data.rows, Int32Array);
  const reuse = decode(data.reuse, Float32Array);
  const count = order.length;
  const most = reuse.reduce((a, b) => Math.max(a, b), 1.01);
  const chosenAt = order.indexOf(data.tree);
  if (root.chosen !== data.tree || root.sort !== data.order) {
    root.cursor = chosenAt;
    root.columns = 0;
  }
  root.chosen = data.tree;
  root.sort = data.order;
  let columns = 1, cell = 1, lines = 1, height = ROW;

  function layOut() {
    const width = canvas.clientWidth;
    const widest = Math.max(Math.floor(width / NARROWEST), 1);
    columns = Math.min(Math.max(Math.ceil(count / FEW), 1), widest);
    lines = Math.ceil(count / columns);
    cell = width / columns;
    height = Math.min(lines * ROW + 4, HIGHEST);
    view.style.height = height + "px";
    part(".spacer").style.height = Math.max(lines * ROW + 4 - height, 0) + "px";
  }

  const place = (i) => [(i % columns) * cell, Math.floor(i / columns) * ROW + 2 - view.scrollTop];

  const draw = timed(root, canvas, () => {
    layOut();
    const g = cleared(canvas, height);
    if (root.columns !== columns) showChosen();
    const theme = themeOf(root);
    const first = Math.max(Math.floor(view.scrollTop / ROW), 0) * columns;
    const last = Math.min(first + (Math.ceil(height / ROW) + 1) * columns, count);
    const room = cell - 5;
    for (let i = first; i < last; i++) {
      const tree = order[i];
      const [x, y] = place(i);
      const full = Math.max(room * Math.min(tokens[tree] / data.cap, 1), 1);
      g.globalAlpha = 0.2;
      g.fillStyle = theme.text;
      g.fillRect(x + 1, y, room, BAR);
      g.globalAlpha = 1;
      g.fillStyle = shade(reuse[tree], theme);
      g.fillRect(x + 1, y, full, BAR);
      if (tree === data.rowTree) {
        g.fillStyle = theme.orange;
        g.fillRect(x + 1, y + BAR - 3, full, 3);
      }
      if (tree === data.tree) outline(g, x, y, room, theme.red, 2);
      if (i === root.cursor && root.byKey) outline(g, x, y, room, theme.text, 1);
    }
    root.dataset.columns = columns;
  });

  // Another tree, another order or another width: bring the chosen tree into view.
  function showChosen() {
    root.columns = columns;
    const y = Math.floor(chosenAt / columns) * ROW;
    if (y < view.scrollTop || y + ROW > view.scrollTop + height) {
      view.scrollTop = Math.max(y - height / 2, 0);
    }
  }

  function outline(g, x, y, room, color, width) {
    g.strokeStyle = color;
    g.lineWidth = width;
    g.strokeRect(x + 0.5, y - 0.5, room + 1, BAR + 1);
  }

  // Faint where nothing is shared, strong where the most is: five steps.
  function shade(times, theme) {
    const share = Math.log(Math.max(times, 1)) / Math.log(most);
    const step = Math.min(Math.floor((1 - share) * 5), 4);
    return theme.depths[step];
  }

  function at(event) {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / cell);
    const line = Math.floor((event.clientY - box.top + view.scrollTop - 1) / ROW);
    const i = line * columns + column;
    return column < columns && line >= 0 && i < count ? i : -1;
  }

  function words(i) {
    if (i < 0) return "";
    const tree = order[i];
    return `tree ${counted(tree)}: ${many(tokens[tree], "token")}, `
      + `${counted(data.cap - tokens[tree])} padding, ${many(rows[tree], "row")}, `
      + `${reuse[tree].toFixed(2)}× reuse`;
  }

  function moveTo(i) {
    root.cursor = Math.min(Math.max(i, 0), count - 1);
    root.byKey = true;
    const y = Math.floor(root.cursor / columns) * ROW;
    if (y < view.scrollTop) view.scrollTop = y;
    if (y + ROW > view.scrollTop + height) view.scrollTop = y + ROW + 4 - height;
    draw();
    const [x, top] = place(root.cursor);
    showTip(tip, words(root.cursor), x, top, canvas.clientWidth);
    live.textContent = words(root.cursor);
  }

  view.onscroll = draw;
  view.onpointermove = (event) => {
    const box = canvas.getBoundingClientRect();
    showTip(tip, words(at(event)), event.clientX - box.left, event.clientY - box.top,
      canvas.clientWidth);
  };
  view.onpointerleave = () => { tip.hidden = true; };
  view.onblur = () => { tip.hidden = true; root.byKey = false; draw(); };
  view.onclick = (event) => {
    const i = at(event);
    if (i >= 0 && order[i] !== data.tree) setTriggerValue("picked", order[i]);
  };
  onKeys(view, {
    ArrowRight: () => moveTo(root.cursor + 1), ArrowLeft: () => moveTo(root.cursor - 1),
    ArrowDown: () => moveTo(root.cursor + columns), ArrowUp: () => moveTo(root.cursor - columns),
    Home: () => moveTo(0), End: () => moveTo(count - 1),
    Enter: () => setTriggerValue("picked", order[root.cursor]),
  });
  return keepDrawn(root, canvas, draw);
}
