"use strict";
/* The tape of an expression that the reader types: forward with values, backward with gradients. */
(() => {
  const { make, format, field } = figures;
  const LONGEST = 80;

  /* An operation: its value, and its local derivatives with respect to its inputs, given these and the value. */
  const sigmoid = (x) => 1 / (1 + Math.exp(-x));
  const OPS = {
    add: [(x, y) => x + y, () => [1, 1]],
    subtract: [(x, y) => x - y, () => [1, -1]],
    multiply: [(x, y) => x * y, (x, y) => [y, x]],
    divide: [(x, y) => x / y, (x, y, out) => [1 / y, -out / y]],
    power: [(x, y) => x ** y, (x, y, out) => [y * x ** (y - 1), out * Math.log(x)]],
    negative: [(x) => -x, () => [-1]],
    exp: [Math.exp, (x, out) => [out]],
    log: [Math.log, (x) => [1 / x]],
    sqrt: [Math.sqrt, (x, out) => [0.5 / out]],
    tanh: [Math.tanh, (x, out) => [1 - out * out]],
    sigmoid: [sigmoid, (x, out) => [out * (1 - out)]],
    sin: [Math.sin, (x) => [Math.cos(x)]],
    cos: [Math.cos, (x) => [-Math.sin(x)]],
  };
  const SIGNS = { "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "**": "power" };
  const FUNCTIONS = Object.keys(OPS).slice(6);

  class Mistake extends Error {}

  function tokens(text) {
    const found = [...text.matchAll(/\s*(?:(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)|([A-Za-z_]\w*)|(\*\*|[-+*/()])|(\S))/gi)];
    return found.map(([, number, name, sign, other]) => {
      if (other) throw new Mistake(`expected numbers, a, b, functions and + - * / ** ( ), got “${other}”${other === "^" ? ": a power is written **" : ""}`);
      if (number && !Number.isFinite(Number(number))) throw new Mistake(`expected a number below 1e308, got ${number}`);
      return { number, name, sign, text: number ?? name ?? sign };
    });
  }

  /* The tape: its leaves, then its operations in the order in which Python runs them. Numbers are on no tape. */
  function record(text, leaves) {
    if (text.length > LONGEST) throw new Mistake(`expected at most ${LONGEST} characters, got ${text.length}`);
    const list = tokens(text), tape = [];
    let at = 0;
    const got = () => (at < list.length ? `“${list[at].text}”` : "the end");
    const take = (sign) => at < list.length && list[at].sign === sign && ++at;

    function run(op, ...inputs) {
      const value = OPS[op][0](...inputs.map((input) => input.value));
      if (inputs.every((input) => !input.on)) return { value, on: false };
      const node = { op, inputs, value, on: true };
      tape.push(node);
      return node;
    }
    function both(lower, ...signs) {
      let left = lower();
      for (let sign; (sign = signs.find(take)); ) left = run(SIGNS[sign], left, lower());
      return left;
    }
    const sum = () => both(product, "+", "-");
    const product = () => both(signed, "*", "/");
    function signed() {
      if (take("-")) return run("negative", signed());
      return take("+") ? signed() : power();
    }
    function power() {
      const base = atom();
      return take("**") ? run("power", base, signed()) : base;
    }
    function inside(what) {
      if (!take("(")) throw new Mistake(`expected “(” after ${what}, got ${got()}`);
      const value = sum();
      if (!take(")")) throw new Mistake(`expected “)” or another operation, got ${got()}`);
      return value;
    }
    function atom() {
      const token = list[at];
      if (token?.sign === "(") return inside("");
      if (token?.number) return at++, { value: Number(token.number), on: false };
      if (!token?.name) throw new Mistake(`expected a number, a, b, a function or “(”, got ${got()}`);
      at++;
      if (Object.hasOwn(leaves, token.name)) return leaves[token.name];
      if (!FUNCTIONS.includes(token.name)) throw new Mistake(`expected a, b, ${FUNCTIONS.join(", ")}, got “${token.name}”`);
      return run(token.name, inside(token.name));
    }

    sum();
    if (at < list.length) throw new Mistake(`expected an operation or the end, got ${got()}`);
    if (!tape.length) throw new Mistake("expected an operation on a or b, such as a*b");
    return tape;
  }

  /* The rows of the tape, with the gradients after each backward step; or what was expected instead. */
  function compute(text, values) {
    const leaves = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { name, op: "leaf", inputs: [], value, on: true }]));
    let tape;
    try {
      tape = record(text, leaves);
    } catch (mistake) {
      if (!(mistake instanceof Mistake)) throw mistake;
      return { error: `L: ${mistake.message}.` };
    }
    const used = Object.values(leaves).filter((leaf) => tape.some(({ inputs }) => inputs.includes(leaf)));
    const nodes = [...used, ...tape];
    nodes.forEach((node, k) => { node.name ??= `v${k - used.length + 1}`; node.grad = null; });
    nodes.at(-1).grad = 1;
    const snapshot = () => nodes.map(({ grad }) => grad);
    const steps = [snapshot()], sent = [];
    for (const node of [...tape].reverse()) {
      const partials = OPS[node.op][1](...node.inputs.map(({ value }) => value), node.value);
      sent.push(node.inputs.map((input, k) => ({ input, partial: partials[k] })).filter(({ input }) => input.on)
        .map(({ input, partial }) => {
          input.grad = (input.grad ?? 0) + node.grad * partial;
          return { to: input.name, partial, share: node.grad * partial };
        }));
      steps.push(snapshot());
    }
    return { leaves: used.length, steps, sent, rows: nodes.map(({ name, op, inputs, value, grad }) =>
      ({ name, op, value, grad, inputs: inputs.map((input) => input.name ?? format(input.value)) })) };
  }

  const WRITTEN = { add: "+", subtract: "−", multiply: "*", divide: "/", power: "**" };
  function written({ op, inputs }) {
    if (op === "leaf") return "leaf";
    if (WRITTEN[op]) return inputs.join(` ${WRITTEN[op]} `);
    return op === "negative" ? `−${inputs[0]}` : `${op}(${inputs[0]})`;
  }

  function show(box) {
    let found, at;
    const expression = make("input", { type: "text", value: "exp(a*b) + a", maxlength: LONGEST, spellcheck: "false",
      autocapitalize: "none", autocomplete: "off", oninput: read });
    const numbers = { a: field({ label: "a", value: 2, step: 0.5 }, read), b: field({ label: "b", value: -0.5, step: 0.5 }, read) };
    const place = make("input", { type: "range", min: 0, step: 1, oninput: () => draw(Number(place.value)) });
    const step = (by) => make("button", { type: "button", "aria-label": by < 0 ? "Step back" : "Step on",
      onclick: () => draw(at + by) }, by < 0 ? "◀" : "▶");
    const says = make("p", { class: "says", role: "status" }), body = make("tbody");
    const table = make("table", { class: "tape" },
      make("thead", {}, make("tr", {}, ...["name", "operation", "value", "gradient"].map((head) => make("th", { scope: "col" }, head)))), body);
    box.append(
      make("div", { class: "controls" }, make("label", { class: "wide" }, make("span", {}, "L ="), expression),
        ...Object.entries(numbers).map(([name, { input }]) => make("label", {}, make("span", {}, `${name} =`), input))),
      make("div", { class: "controls steps" }, step(-1), make("label", { class: "wide" }, make("span", {}, "step"), place), step(1)),
      says, table);

    function read() {
      const wrong = Object.values(numbers).find((made) => made.value === null);
      found = wrong ? { error: wrong.expected() } : compute(expression.value, { a: numbers.a.value, b: numbers.b.value });
      expression.setAttribute("aria-invalid", String(Boolean(found.error && !wrong)));
      says.classList.toggle("wrong", Boolean(found.error));
      for (const part of [place, ...box.querySelectorAll("button")]) part.disabled = Boolean(found.error);
      if (found.error) {
        says.textContent = found.error;
        body.replaceChildren();
        return;
      }
      const count = found.rows.length - found.leaves;
      place.max = 2 * count;
      draw(count);
    }

    function draw(next) {
      const { rows, leaves, steps, sent } = found, count = rows.length - leaves;
      at = Math.min(Math.max(next, 0), 2 * count);
      const backward = Math.max(at - count, 0);
      const current = at === 0 ? -1 : backward ? rows.length - backward : leaves + at - 1;
      body.replaceChildren(...rows.map((row, k) => {
        const grad = at >= count ? steps[backward][k] : null;
        return make("tr", { class: k === current ? (backward ? "now backward" : "now forward") : "" },
          make("th", { scope: "row" }, row.name), make("td", {}, written(row)),
          make("td", {}, k < leaves + at ? format(row.value) : ""), make("td", {}, grad === null ? "" : format(grad)));
      }));
      says.textContent = at === 0 ? "The leaves have their values. Nothing has been computed yet." : backward
        ? backwards(rows[current], sent[backward - 1]) + (at === 2 * count ? " Done: the leaves have their gradients." : "")
        : `Forward, ${rows[current].name} = ${written(rows[current])} = ${format(rows[current].value)}`
          + (at === count ? ". This is L, and dL/dL = 1." : ".");
      place.value = at;
      place.setAttribute("aria-valuetext", says.textContent);
    }

    function backwards(row, shares) {
      const terms = shares.map(({ to, partial, share }) => `${format(row.grad)} · ${format(partial)} = ${format(share)} to ${to}`);
      return `Backward, ${row.name} = ${written(row)} sends ${terms.join(" and ")}.`;
    }
    read();
  }

  figures.add("tape", { compute, show });
})();
