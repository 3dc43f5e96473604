// Draws numbers, tables, and maps of tensors; explore.js, which follows in the page, shows the tape with them.
// Text enters the page only as text nodes: no name can become markup.

const $ = (id) => document.getElementById(id);

function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function digits(value, most = 4) {
  if (typeof value === "string") return value === "inf" ? "∞" : value === "-inf" ? "−∞" : value === "nan" ? "NaN" : value;
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value).replace("-", "−");
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(most)));
  return text.replaceAll("-", "−").replace("e+", "e");
}

function bytes(n) {
  if (n < 1024) return `${n} B`;
  const power = Math.min(3, Math.floor(Math.log2(n) / 10));
  return `${(n / 1024 ** power).toPrecision(3)} ${["", "KiB", "MiB", "GiB"][power]}`;
}

function duration(seconds) {
  if (seconds === null) return "not measured";
  return seconds < 1e-3 ? `${(seconds * 1e6).toFixed(1)} µs` : `${(seconds * 1e3).toPrecision(3)} ms`;
}

const form = (shape) => shape.length ? `(${shape.join(", ")}${shape.length === 1 ? "," : ""})` : "()";

const note = (text) => make("p", { class: "note" }, text);

// Typesets the subscripts of "dW_hh" and "h_{t−1}".
function formula(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(/(?<![\p{L}\d])(LN|d?\p{L}|Σ)_(?:\{([^}]+)\}|([A-Za-z0-9]+))/gu)) {
    parts.push(text.slice(end, found.index) + found[1], make("sub", {}, found[2] ?? found[3]));
    end = found.index + found[0].length;
  }
  return [...parts, text.slice(end)];
}

// ── tensors ─────────────────────────────────────────────────────────────────────────────────────

function tint(cell, value, most) {
  if (typeof value !== "number") { cell.classList.add("odd"); return; }
  const share = most ? Math.min(1, Math.abs(value) / most) : 0;
  if (share) cell.style.background = `rgb(var(--${value < 0 ? "negative" : "positive"}) / ${(share * 0.42).toFixed(3)})`;
}

function drawTensor(tensor) {
  if (tensor.numbers) {
    const flat = tensor.numbers.flat();
    if (!flat.length) return note("no elements");
    if (flat.length === 1) return make("div", { class: "single", title: String(flat[0]) }, digits(flat[0]));
    const most = Math.max(...flat.filter((v) => typeof v === "number").map(Math.abs));
    const rows = tensor.numbers.map((row) => make("tr", {}, ...row.map((v) => {
      const cell = make("td", {}, digits(v, row.length > 4 ? 3 : 4));
      tint(cell, v, most);
      return cell;
    })));
    const table = make("table", { class: "numbers" }, make("tbody", {}, ...rows));
    cells(table, [rows.length, tensor.numbers[0].length],
      (row, column) => `${indexOf(tensor.shape, row, column)} ${String(tensor.numbers[row][column]).replace("-", "−")}`,
      (row, column) => rows[row].children[column].getBoundingClientRect(),
      (row, column) => {
        table.querySelector(".at")?.classList.remove("at");
        rows[row]?.children[column].classList.add("at");
      });
    return make("div", { class: "scroll" }, table);
  }
  if (!tensor.map) return note("no elements");
  return make("div", {}, heatmap(tensor), stats(tensor.stats),
    make("p", { class: "firsts", title: "the first elements" }, tensor.first.map((v) => digits(v)).join("  ") + " …"));
}

// The index of an element: the last axis is the columns, the others are the rows.
function indexOf(shape, row, column) {
  const index = shape.length ? [column] : [];
  for (const size of shape.slice(0, -1).reverse()) { index.unshift(row % size); row = Math.floor(row / size); }
  return `[${index.join(", ")}]`;
}

// Shows the number of the cell that the pointer is over, or, with the arrow keys, of the one that has the focus.
function cells(box, [height, width], text, where, mark = () => {}) {
  const tip = $("tip");
  let [row, column] = [0, 0];
  const show = () => {
    const { left, bottom, top } = where(row, column);
    tip.textContent = text(row, column);
    tip.hidden = false;
    tip.style.left = `${Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${bottom + 4 + tip.offsetHeight > innerHeight ? top - 4 - tip.offsetHeight : bottom + 4}px`;
  };
  const leave = () => { tip.hidden = true; mark(-1, -1); };
  box.tabIndex = 0;
  box.setAttribute("aria-label", `${height} × ${width} numbers; the arrow keys move along them`);
  box.onpointermove = ({ clientX, clientY }) => {
    const outer = box.getBoundingClientRect();
    const cell = box.rows ? document.elementFromPoint(clientX, clientY)?.closest("td") : null;
    if (box.rows && !cell) { tip.hidden = true; return; }
    [row, column] = cell ? [cell.parentElement.rowIndex, cell.cellIndex]
      : [(clientY - outer.top) / outer.height * height, (clientX - outer.left) / outer.width * width].map((at) => Math.max(0, Math.floor(at)));
    [row, column] = [Math.min(row, height - 1), Math.min(column, width - 1)];
    show();
  };
  box.onpointerleave = () => { tip.hidden = true; };
  box.onfocus = () => { if (box.matches(":focus-visible")) { mark(row, column); show(); } };
  box.onblur = leave;
  box.onkeydown = (event) => {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [];
    if (down === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    [row, column] = [Math.max(0, Math.min(height - 1, row + down)), Math.max(0, Math.min(width - 1, column + right))];
    mark(row, column);
    show();
  };
}

// The places of a sample along an axis, as values.py chooses them: evenly spaced, with the first and the last.
function samplePlace(k, taken, length) {
  if (taken < 2) return 0;
  const at = k * (length - 1) / (taken - 1), below = Math.floor(at);
  return at - below === 0.5 ? below + below % 2 : Math.round(at);   // NumPy rounds halves to even numbers
}

const levelOf = (raw, i) => (raw.charCodeAt(i) << 24) >> 24;

function heatmap(tensor) {
  const [height, width] = tensor.map_shape;
  const scale = Math.max(2, Math.min(10, Math.floor(256 / width)));
  const canvas = make("canvas", { width, height, role: "img", title: `a sample of ${height} × ${width} evenly spaced elements; full color is ±${digits(tensor.scale)}` });
  canvas.style.width = `${width * scale}px`;
  canvas.style.height = `${Math.max(height * scale, 12)}px`;
  const style = getComputedStyle(document.documentElement);
  const channel = (name) => style.getPropertyValue(name).trim().split(/\s+/).map(Number);
  const colors = [channel("--negative"), channel("--positive")];
  const raw = atob(tensor.map), context = canvas.getContext("2d"), image = context.createImageData(width, height);
  for (let i = 0; i < raw.length; i++) {
    const level = levelOf(raw, i);
    const [r, g, b] = level === -128 ? [192, 38, 211] : colors[level > 0 ? 1 : 0];
    image.data.set([r, g, b, level === -128 ? 255 : Math.round(Math.abs(level) / 127 * 235)], 4 * i);
  }
  context.putImageData(image, 0, 0);
  const columns = tensor.shape.at(-1), rows = tensor.shape.slice(0, -1).reduce((a, b) => a * b, 1);
  cells(canvas, [height, width], (row, column) => {
    const level = levelOf(raw, row * width + column);
    return `${indexOf(tensor.shape, samplePlace(row, height, rows), samplePlace(column, width, columns))} ${
      level === -128 ? "NaN" : `≈ ${digits(level / 127 * tensor.scale, 2)}`}`;
  }, (row, column) => {
    const box = canvas.getBoundingClientRect(), [x, y] = [box.width / width, box.height / height];
    return { left: box.left + column * x, top: box.top + row * y, bottom: box.top + (row + 1) * y };
  });
  return canvas;
}

function stats(found) {
  const list = make("dl", { class: "stats" });
  const row = (name, text, odd) => list.append(make("dt", {}, name), make("dd", odd ? { class: "odd" } : {}, text));
  for (const name of ["min", "max", "mean", "std"]) if (name in found) row(name, digits(found[name]));
  row("zeros", `${digits(Number((found.zeros * 100).toPrecision(3)))} %`);
  if (found.nan) row("NaN", String(found.nan), true);
  if (found.inf) row("∞", String(found.inf), true);
  return list;
}
