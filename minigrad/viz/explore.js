// Reads the tape that the page carries (explore.py, tape_of) and lets the reader step through it; values.js draws.
const tape = JSON.parse(document.getElementById("tape").textContent);
const { entries, tensors, sources, equations } = tape;
const ROW = 30, CARDS = 12;

const title = (k) => entries[k].name ?? entries[k].op;
const valueOf = (number) => drawTensor(tensors[number]);
const low = "₀₁₂₃₄₅₆₇₈₉";
const subscript = (k) => String(k).replace(/\d/g, (d) => low[d]);

// "x…" means x₀, x₁, and so on.
function symbol(names, k) {
  const tail = names.length - 1;
  if (tail >= 0 && k >= tail && names[tail].endsWith("…")) return names[tail].slice(0, -1) + (k > tail || names.length === 1 ? subscript(k - tail) : subscript(0));
  return names[k] ?? `input ${k}`;
}

// ── derived from the tape ───────────────────────────────────────────────────────────────────────

const uses = entries.map(() => []);                 // entry -> the entries that read it
entries.forEach((entry, k) => new Set(entry.inputs).forEach((i) => { if (i !== null) uses[i].push(k); }));
const inside = entries.map(() => []);               // recurrent layer -> time step -> operation
entries.forEach((entry, k) => { if (entry.parent !== null) inside[entry.parent].push(k); });
// Without a recording, an output is known where an entry that reads it saves it.
entries.forEach((entry) => entry.inputs.forEach((j, i) => {
  if (j !== null && entry.read[i] !== null) (entries[j].saved_outs ??= {})[entry.routes[i]] = entry.read[i];
}));

// ── state ───────────────────────────────────────────────────────────────────────────────────────

const opened = new Set();                           // the entries whose inside is shown
let order = [], place = new Map(), N = 0;            // the entries in the order of the forward pass, and where each is
let steps = [], back = new Map(), STEPS = 0;         // the entries of each step, and where backward visits each one
let held = [];                                       // bytes on the tape after each step
let now = 0, playing = null, picked = null;          // picked: the entry asked for, of a step of several
let shown = [];                                      // the entries that match the search
const entryAt = (t) => steps[t]?.[0];
const stepOf = (k, backward) => (backward ? back : place).get(k);

function arrange() {
  order = [];
  const add = (k) => { order.push(k); if (opened.has(k)) inside[k].forEach(add); };
  entries.forEach((entry, k) => { if (entry.parent === null) add(k); });
  place = new Map(order.map((k, at) => [k, at]));
  steps = order.map((k) => [k]);
  for (const k of [...order].reverse()) {               // leaves that follow each other are one step of backward
    if (entries[k].leaf && steps.length > order.length && entries[steps.at(-1)[0]].leaf) steps.at(-1).push(k);
    else steps.push([k]);
  }
  [N, STEPS, held] = [order.length, steps.length, []];
  back = new Map(steps.slice(N).flatMap((step, t) => step.map((k) => [k, N + t])));
  for (let t = 0, sum = 0; t < STEPS; t++) {
    for (const k of steps[t]) sum += (t < N ? 1 : -1) * entries[k].held;
    held.push(sum);
  }
  $("slider").max = String(STEPS - 1);
  drawCurve();
}

// Opens or closes an entry, and goes there if the place in the tape is no longer shown.
function toggle(k) {
  const backward = now >= N;
  let here = entryAt(now);
  if (!opened.delete(k)) opened.add(k);
  arrange();
  while (!place.has(here)) here = entries[here].parent;
  now = stepOf(here, backward);
  rows.replaceChildren();
  built.clear();
  match();
  render();
}

function go(t, k = null) {
  picked = k;
  now = Math.max(0, Math.min(STEPS - 1, t));
  render();
}

// ── the local picture ───────────────────────────────────────────────────────────────────────────

// An operation of a time step has the step's name instead of a number.
function label(k) {
  const outer = entries[k].parent;
  return outer === null ? `#${k}` : entries[entries[k].made ? k : outer].op;
}

function reference(k) {
  const entry = entries[k];
  return make("button", { class: "ref", type: "button", title: [...entry.scope, title(k)].join(" › "), onclick: () => visit(k) },
    entry.made ? label(k) : `${label(k)} ${title(k)}`);
}

// A card: a symbol, where it comes from, its form, and what is known of it, side by side.
function card(symbols, origin, info, contents, kind = "card") {
  return make("article", { class: kind },
    make("header", {}, make("span", { class: "symbol" }, ...symbols), origin, make("span", { class: "form" }, info)),
    make("div", { class: "pair" }, ...contents));
}

const headed = (text, content, options = {}) => make("div", options, make("h3", {}, text), content);
const gradient = (content, text = "gradient") => headed(text, content, { class: "gradient" });
const described = ({ shape, dtype }) => `${form(shape)} ${dtype}`;
const named = (k) => entries[k].parent === null ? [title(k)] : formula(title(k));

// The gradient of entry j as far as it is known while entry k is visited.
function gradientOf(j, output, k) {
  const count = uses[j].length, waiting = uses[j].filter((user) => user < k).length;
  const number = entries[j].grads?.[output] ?? null;
  return gradient(waiting ? note(`${count - waiting} of ${count} uses have contributed; the rest come later`)
    : number !== null ? valueOf(number)
    : note(entries[j].grads ? "no gradient arrived at this output" : "no gradient passed here"),
  count > 1 ? `gradient, summed over ${count} uses` : "gradient");
}

function entryCard(name, j, output, k, backward) {
  const entry = entries[j], number = entry.outs?.[output] ?? entry.saved_outs?.[output] ?? null;
  const info = number !== null ? described(tensors[number]) : `${output ? "" : form(entry.shape)} ${entry.dtype}`;
  const value = number !== null ? valueOf(number)
    : note(entry.leaf ? "not kept: this leaf no longer exists" : "not kept: run the forward pass under viz.record()");
  return card(formula(name), j === k ? null : reference(j), info,
    [headed("value", value), backward ? gradientOf(j, output, k) : null]);
}

// A number that a time step read or computed.
function stepCard([name, number, grad], backward) {
  return card(formula(name), null, described(tensors[number]), [headed("value", valueOf(number)),
    backward ? gradient(grad === null ? note("no gradient passed here") : valueOf(grad)) : null]);
}

function constantCard(name, number) {
  const [info, content] = number === null ? ["", note("a constant that backward does not read, or omitted")]
    : [`${described(tensors[number])}, `, headed("value, saved for backward", valueOf(number))];
  return card(formula(name), null, `${info}no gradient`, [content], "card given");
}

// The button that shows the inside of an entry, or why it has none.
function opener(k) {
  const steps = inside[k].filter((i) => entries[i].made).length;
  if (!inside[k].length) return entries[k].note ? note(entries[k].note) : null;
  return make("button", { class: "opener", type: "button", "aria-expanded": String(opened.has(k)), title: "Enter", onclick: () => toggle(k) },
    `${opened.has(k) ? "▾ close the" : "▸ open the"} ${steps || inside[k].length} ${steps ? "time steps" : "operations"}`);
}

function several(cards) {
  const box = make("div", { class: "cards" }, ...cards.slice(0, CARDS).map((build) => build()));
  if (cards.length > CARDS) {
    box.append(make("button", { class: "ref", type: "button", onclick: (event) => {
      event.target.replaceWith(...cards.slice(CARDS).map((build) => build()));
    } }, `and ${cards.length - CARDS} more`));
  }
  return box;
}

function picture(k, backward) {
  const entry = entries[k], equation = equations[entry.equation];
  const ins = entry.made ? entry.given.map((row) => () => stepCard(row, backward)) : entry.inputs.flatMap((j, i) => {
    const name = symbol(equation.inputs, i);
    return name ? [() => j === null ? constantCard(name, entry.read[i]) : entryCard(name, j, entry.routes[i], k, backward)] : [];
  });
  const count = Math.max(entry.outs?.length ?? 0, entry.grads?.length ?? 0, 1);
  const outs = entry.made ? entry.made.map((row) => () => stepCard(row, backward))
    : Array.from({ length: count }, (_, o) => () => entryCard(symbol(equation.outputs, count > 1 ? o : 0), k, o, k, backward));
  const arrow = () => make("span", { class: "arrow", "aria-hidden": "true" }, backward ? "↑" : "↓");
  const middle = make("div", { class: "operation" }, ins.length ? arrow() : null, make("strong", {}, ...named(k)),
    make("span", { class: "scope" }, entry.scope.join(" › ")),
    make("span", { class: "brief" }, ...formula(backward ? equation.backward : equation.forward)), opener(k), arrow());
  const users = uses[k].length
    ? ["read by ", ...uses[k].slice(0, CARDS).map(reference), uses[k].length > CARDS ? ` and ${uses[k].length - CARDS} more` : ""]
    : entry.parent !== null ? ["inside of ", reference(entry.parent)] : ["the end of the tape: backward begins here"];
  show(...(ins.length ? [several(ins)] : []), middle, several(outs), make("p", { class: "users" }, ...users));
}

function show(...parts) {
  $("picture").replaceChildren(...parts);
  $("picture").scrollTop = 0;
}

// Leaves, at the end of the backward pass.
function leavesPicture(leaves) {
  const own = entries[leaves[0]].parent === null, first = Math.min(...leaves);
  show(make("div", { class: "operation" }, make("strong", {}, `${leaves.length} leaves`),
    make("span", { class: "scope" }, own ? "each adds its gradient to its grad" : "what the layer read")),
  several(leaves.map((j) => () => card(named(j), null, described(entries[j]), [gradientOf(j, 0, first)]))));
}

// ── equation, source, costs ─────────────────────────────────────────────────────────────────────

function code(numbers, lines, here) {
  return make("pre", { class: "code" }, ...lines.map((text, i) => make("span",
    { "data-line": String(numbers[i] ?? ""), ...(numbers[i] === here ? { class: "here" } : {}) }, text || " ")));
}

let excerptOpen = false;

function details(k, backward) {
  const entry = entries[k], equation = equations[entry.equation], box = $("details");
  const section = (name, ...content) => make("section", {}, make("h2", {}, name), ...content);
  const parts = [section("equation",
    make("div", { class: `equation${backward ? "" : " live"}` }, ...formula(equation.forward)),
    make("div", { class: `equation${backward ? " live" : ""}` }, ...formula(equation.backward)),
    equation.source ? make("p", { class: "paper" }, equation.source) : null,
    excerpt(equation))];
  if (entry.source !== null) {
    const line = sources[entry.source];
    parts.push(section("your code", make("p", { class: "place" }, `${line.file}, line ${line.line}`),
      line.lines.length ? code(line.lines.map((_, i) => line.first + i), line.lines, line.line) : note("the text of this line is no longer available")));
  } else if (!entry.leaf) {
    parts.push(section("your code", note("not recorded: run the forward pass under viz.record()")));
  }
  const costs = make("dl", { class: "costs" });
  const row = (name, text) => costs.append(make("dt", {}, name), make("dd", {}, text));
  if (!entry.leaf) {
    row("forward, Python included", duration(entry.forward));
    row("backward, Python included", duration(entry.backward));
  }
  row("saved for backward", bytes(entry.saved_bytes));
  row("of these, newly held", bytes(entry.held));
  row("held by the tape after this step", bytes(held[now]));
  const same = (number) => {
    const input = entry.inputs.findIndex((j) => j !== null && entries[j].outs?.includes(number));
    if (input >= 0) return `equal to ${symbol(equation.inputs, input)}`;
    const output = entry.outs?.indexOf(number) ?? -1;
    return output >= 0 ? `equal to ${symbol(equation.outputs, output)}` : "";
  };
  const saved = make("ul", { class: "saved" }, ...entry.saved.map((number) => {
    const equal = same(number), head = `${described(tensors[number])}${equal ? `, ${equal}` : ""}`;
    const item = make("details", {}, make("summary", {}, head));
    item.addEventListener("toggle", () => { if (item.open && item.children.length === 1) item.append(valueOf(number)); });
    return make("li", {}, item);
  }));
  parts.push(entry.parent === null ? section("cost", costs, entry.saved.length ? saved : null)
    : section("cost", note("The layer ran all time steps as one operation, and its entry shows what that cost. Here its composition was run again, for this page.")));
  box.replaceChildren(...parts);
}

function excerpt(equation) {
  if (!equation.excerpt) return null;
  const { file, numbers, lines } = equation.excerpt;
  const box = make("details", {}, make("summary", {}, "the source of its backward"), make("p", { class: "place" }, `${file}, line ${numbers[0]}`), code(numbers, lines));
  box.open = excerptOpen;
  box.addEventListener("toggle", () => { if (box.isConnected) excerptOpen = box.open; });
  return box;
}

// ── the list: only the rows in view exist ───────────────────────────────────────────────────────

const list = $("list"), rows = $("rows"), built = new Map();

function buildRow(k) {
  const entry = entries[k];
  const scope = entry.name === null && !entry.made ? entry.scope.at(-1) ?? "" : "";     // a name says where it is
  const depth = entry.parent === null ? 0 : entries[entry.parent].made ? 2 : 1;
  const expands = inside[k].length > 0;
  return make("div", { class: "row", role: "treeitem", title: [...entry.scope, title(k)].join(" › "), "data-entry": String(k),
    id: `row-${k}`, "aria-level": String(depth + 1), style: `--depth: ${depth}`, ...(expands ? { "aria-expanded": String(opened.has(k)) } : {}) },
    make("span", { class: "number" }, entry.parent === null ? String(k) : ""),
    make("span", { class: "op" }, expands ? make("span", { class: "toggle", title: "Open or close (Enter)" }, opened.has(k) ? "▾ " : "▸ ") : null, ...(depth ? formula(title(k)) : [title(k)])),
    make("span", { class: "scope" }, ...(depth ? formula(scope) : [scope])), make("span", { class: "shape" }, form(entry.shape)));
}

function renderList() {
  const top = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
  const end = Math.min(shown.length, top + Math.ceil(list.clientHeight / ROW) + 8);
  const wanted = new Set(shown.slice(top, end));
  for (const [k, row] of built) if (!wanted.has(k)) { row.remove(); built.delete(k); }
  const here = new Set(steps[now]), first = steps[now]?.at(-1), backward = now >= N, touched = new Set(entries[first]?.inputs);
  const at = place.get(first);
  for (let line = top; line < end; line++) {
    const k = shown[line];
    let row = built.get(k);
    if (!row) { row = buildRow(k); built.set(k, row); rows.append(row); }
    row.style.top = `${line * ROW}px`;
    const state = backward ? (place.get(k) >= at ? "returned" : "reached") : place.get(k) <= at ? "reached" : "future";
    row.className = `row ${state}${entries[k].leaf ? " leaf" : ""}${here.has(k) ? " now" : ""}${touched.has(k) ? " touched" : ""}`;
    row.setAttribute("aria-selected", String(here.has(k)));
    if (k === first) list.setAttribute("aria-activedescendant", row.id);
  }
  drawMap();
}

// A map of a long list: a line for each row in the color of its module, a frame around the rows in view, and the step.
const map = $("map"), LONG = 3;                         // the map appears for lists LONG times as high as their frame
const colors = new Map();                               // name of a module right within the outermost one -> hue

function hue(entry) {
  const module = (entry.leaf ? entry.name ?? "" : entry.scope[1] ?? "").split(/[:.]/)[0];
  if (!colors.has(module)) colors.set(module, colors.size * 137.5 % 360);     // neighbors differ most by the golden angle
  return colors.get(module);
}

function drawMap() {
  map.hidden = shown.length * ROW <= LONG * list.clientHeight;
  if (map.hidden) return;
  const [width, height] = [map.clientWidth, map.clientHeight].map((size) => Math.round(size * devicePixelRatio));
  if (map.width !== width || map.height !== height) [map.width, map.height] = [width, height];
  const brush = map.getContext("2d"), line = height / shown.length, style = getComputedStyle(document.body);
  brush.clearRect(0, 0, width, height);
  shown.forEach((k, at) => {
    brush.fillStyle = `hsl(${hue(entries[k])} 55% 55% / ${entries[k].leaf ? 0.3 : 0.75})`;
    const top = Math.round(at * line);                  // whole pixels, so that no two rows are mixed
    brush.fillRect(0, top, width, Math.max(Math.round((at + 1) * line) - top, 1));
  });
  brush.strokeStyle = style.getPropertyValue("--ink");
  brush.lineWidth = 1.5 * devicePixelRatio;
  brush.strokeRect(1, list.scrollTop / ROW * line, width - 2, Math.max(3, list.clientHeight / ROW * line));
  brush.fillStyle = style.getPropertyValue("--now");
  for (const k of steps[now] ?? []) {
    const at = shown.indexOf(k);
    if (at >= 0) brush.fillRect(0, at * line - devicePixelRatio, width, Math.max(line, 3 * devicePixelRatio));
  }
}

function pointAtMap(event) {
  const share = (event.clientY - map.getBoundingClientRect().top) / map.clientHeight;
  visit(shown[Math.max(0, Math.min(shown.length - 1, Math.floor(share * shown.length)))]);
}

function reveal(k) {
  const line = shown.indexOf(k);
  if (line < 0) return;
  const margin = Math.min(2 * ROW, list.clientHeight / 3);
  if (line * ROW < list.scrollTop + margin) list.scrollTop = Math.max(0, line * ROW - margin);
  else if ((line + 1) * ROW > list.scrollTop + list.clientHeight - margin) list.scrollTop = (line + 1) * ROW - list.clientHeight + margin;
}

function match() {
  const words = $("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  shown = order.filter((k) => {
    const entry = entries[k], text = [entry.op, entry.name ?? "", ...entry.scope].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  $("found").textContent = words.length ? String(shown.length) : "";
  rows.style.height = `${shown.length * ROW}px`;
}

function filter() {
  match();
  list.scrollTop = 0;
  reveal(entryAt(now));
  renderList();
}

// Goes to entry k, in the current direction.
function visit(k) {
  go(stepOf(k, now >= N), k);
}

// ── memory ──────────────────────────────────────────────────────────────────────────────────────

const svg = $("curve");
const element = (tag, attributes) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
};
const cursor = element("line", { y1: -2, y2: 102 });

function drawCurve() {
  const peak = Math.max(1, held[N - 1] ?? 0);
  svg.setAttribute("viewBox", `0 0 ${STEPS} 100`);
  const path = (from, to) => {
    const points = [`M${from} 100`];
    for (let t = from; t < to; t++) { const y = (100 - 96 * held[t] / peak).toFixed(2); points.push(`L${t} ${y}L${t + 1} ${y}`); }
    return `${points.join("")}L${to} 100Z`;
  };
  svg.replaceChildren(element("path", { class: "up", d: path(0, N) }), element("path", { class: "down", d: path(N, STEPS) }), cursor);
}

// ── one step ────────────────────────────────────────────────────────────────────────────────────

function render() {
  if (!N) return;
  $("tip").hidden = true;
  const several = steps[now].length > 1, k = several ? picked ?? steps[now].at(-1) : entryAt(now), backward = now >= N;
  document.body.classList.toggle("backward", backward);
  $("slider").value = String(now);
  $("step").replaceChildren(several ? `backward: ${steps[now].length} leaves` : `${backward ? "backward" : "forward"} ${label(k)}`, make("span", {}, `, step ${now + 1} of ${STEPS}`));
  $("bytes").textContent = `${bytes(held[now])} held, ${bytes(held[N - 1])} at the peak`;
  cursor.setAttribute("x1", now + 0.5);
  cursor.setAttribute("x2", now + 0.5);
  reveal(k);
  renderList();
  if (several) leavesPicture([k, ...steps[now].filter((j) => j !== k).reverse()]);
  else picture(k, backward);
  details(k, backward);
}

function play(on) {
  clearInterval(playing);
  playing = null;
  if (on) {
    if (now === STEPS - 1) go(0);
    playing = setInterval(() => { if (now === STEPS - 1) play(false); else go(now + 1); }, 1000 / Number($("speed").value));
  }
  $("play").textContent = on ? "❚❚" : "▶";
  $("play").setAttribute("aria-label", on ? "Pause" : "Play");
}

// ── light and dark: the reader chooses, else the page around this one, else the system ──────────

let chosen = null;

function around() {
  try {
    const theme = parent !== window && (parent.document.body.dataset.theme ?? parent.document.documentElement.dataset.theme);
    return theme === "dark" || theme === "light" ? theme : null;
  } catch { return null; }
}

const system = matchMedia("(prefers-color-scheme: dark)");

function applyTheme() {
  document.documentElement.classList.toggle("dark", (chosen ?? around() ?? (system.matches ? "dark" : "light")) === "dark");
  render();
}

// ── mouse and keyboard ──────────────────────────────────────────────────────────────────────────

$("first").onclick = () => go(0);
$("back").onclick = () => go(now - 1);
$("next").onclick = () => go(now + 1);
$("turn").onclick = () => go(N);
$("last").onclick = () => go(STEPS - 1);
$("play").onclick = () => play(playing === null);
$("speed").onchange = () => { if (playing !== null) play(true); };
$("slider").oninput = (event) => go(Number(event.target.value));
$("find").oninput = filter;
$("theme").onclick = () => { chosen = document.documentElement.classList.contains("dark") ? "light" : "dark"; applyTheme(); };
list.onscroll = renderList;
map.onpointerdown = (event) => { map.setPointerCapture(event.pointerId); pointAtMap(event); };
map.onpointermove = (event) => { if (map.hasPointerCapture(event.pointerId)) pointAtMap(event); };
rows.onclick = (event) => {
  const row = event.target.closest(".row");
  if (!row) return;
  const k = Number(row.dataset.entry);
  visit(k);
  if (event.target.closest(".toggle")) toggle(k);
};
const seek = (event) => { const box = svg.getBoundingClientRect(); go(Math.floor((event.clientX - box.left) / box.width * STEPS)); };
svg.onpointerdown = (event) => { svg.setPointerCapture(event.pointerId); seek(event); };
svg.onpointermove = (event) => { if (event.buttons) seek(event); };
addEventListener("resize", renderList);

// Up and down move along the filtered list, left and right along the steps.
function along(direction) {
  const here = steps[now].map((k) => place.get(k)), first = Math.min(...here), last = Math.max(...here);
  const next = direction > 0 ? shown.find((k) => place.get(k) > last) : shown.findLast((k) => place.get(k) < first);
  if (next !== undefined) visit(next);
}

addEventListener("keydown", (event) => {
  const typing = event.target === $("find");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (typing && event.key === "Escape") { $("find").value = ""; filter(); list.focus(); return; }
  if (event.key === "ArrowUp" || event.key === "ArrowDown") {
    if (event.target.tagName === "SELECT") return;
    along(event.key === "ArrowDown" ? 1 : -1);
  } else if (typing || event.target.tagName === "SELECT") return;
  else if (event.key === "ArrowRight") go(now + 1);
  else if (event.key === "ArrowLeft") go(now - 1);
  else if (event.key === "Home") go(0);
  else if (event.key === "End") go(STEPS - 1);
  else if (event.key === "b" || event.key === "B") go(N);
  else if (event.key === "/") $("find").focus();
  else if (event.key === "Enter" && event.target.tagName !== "BUTTON" && event.target.tagName !== "SUMMARY" && inside[entryAt(now)]?.length) toggle(entryAt(now));
  else if (event.key === " " && event.target.tagName !== "BUTTON" && event.target.tagName !== "SUMMARY") play(playing === null);
  else return;
  event.preventDefault();
});

// The address ending in #12 opens the page at step 12.
const linked = () => { const t = Number.parseInt(location.hash.slice(1), 10); if (Number.isInteger(t)) go(t - 1); };
addEventListener("hashchange", linked);
system.addEventListener("change", applyTheme);
if (around()) new MutationObserver(applyTheme).observe(parent.document.body, { attributes: true, attributeFilter: ["data-theme"] });

arrange();
const leaves = order.filter((k) => entries[k].leaf).length;
$("facts").textContent = `${N - leaves} operations on ${leaves} leaves`;
now = Math.min(leaves, N - 1);                       // the first operation, as leaves compute nothing
filter();
applyTheme();
linked();
