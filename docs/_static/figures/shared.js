"use strict";
/* What the figures share: controls with labels, number fields, bars, panels, and random numbers.

   A page holds <div data-figure="name">, with the figure in words inside; docs/_extensions/figures.py loads this file
   and name.js. That file calls figures.add("name", {compute..., show(box)}): pure functions, which the tests hold
   against minigrad, and show, which replaces the words by the figure. */
const figures = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const DRAWN = new Set(["svg", "path", "line", "rect", "circle", "ellipse", "text", "g"]);
  let count = 0;

  function add(name, parts) {
    figures[name] = parts;
    for (const box of document.querySelectorAll(`[data-figure="${name}"]`)) {
      box.replaceChildren();
      box.classList.add("live");
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", "Interactive figure");
      parts.show(box);
    }
  }

  /* An element with attributes, listeners ("onclick") and children. */
  function make(tag, attributes = {}, ...children) {
    const made = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [key, value] of Object.entries(attributes))
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== false && value !== null) made.setAttribute(key, value === true ? "" : value);
    made.append(...children);
    return made;
  }

  /* A number as text: four significant digits, a true minus sign. */
  function format(value, digits = 4) {
    if (Number.isNaN(value)) return "NaN";
    if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
    const size = Math.abs(value);
    const text = size !== 0 && (size < 1e-3 || size >= 1e5)
      ? value.toExponential(digits - 1).replace("e+", "e")
      : String(Number(value.toPrecision(digits)));
    return text.replaceAll("-", "−");
  }

  /* The same with a fixed number of decimals, without a sign at zero. */
  function fixed(value, decimals) {
    if (!Number.isFinite(value)) return format(value);
    return value.toFixed(decimals).replace(/^-(0\.0+)$/, "$1").replace("-", "−");
  }

  /* The number that a text stands for, or null. */
  function parse(text, limit) {
    const plain = text.trim().replace("−", "-");
    const value = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain) ? Number(plain) : NaN;
    return Math.abs(value) <= limit ? value : null;
  }

  const labelled = (label, control, ...more) => make("label", {}, make("span", {}, label), control, ...more);

  /* A slider with its label and its value; `says` writes the value. */
  function slider({ label, min, max, step, value, says = format }, changed) {
    const shown = make("span", { class: "value", "aria-hidden": "true" });
    const input = make("input", { type: "range", min, max, step, value });
    const update = () => {
      shown.textContent = says(Number(input.value));
      input.setAttribute("aria-valuetext", shown.textContent);
    };
    input.addEventListener("input", () => { update(); changed(Number(input.value)); });
    update();
    return { box: labelled(label, input, shown), input, shown, get value() { return Number(input.value); } };
  }

  /* A field for a number. ArrowUp and ArrowDown change it by `step`; `value` is null while the text is not a number. */
  function field({ label, value, step = 1, limit = 99 }, changed) {
    const input = make("input", { type: "text", inputmode: "decimal", autocomplete: "off", "aria-label": label, value });
    const made = {
      input,
      value,
      expected: () => `${label}: expected a number from −${limit} to ${limit}, got ${input.value.trim() ? `“${input.value}”` : "nothing"}.`,
    };
    const read = () => {
      made.value = parse(input.value, limit);
      input.setAttribute("aria-invalid", String(made.value === null));
      changed();
    };
    input.addEventListener("input", read);
    input.addEventListener("keydown", (event) => {
      const sign = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (!sign || made.value === null) return;
      event.preventDefault();
      const next = Number((made.value + sign * step).toFixed(10));
      if (Math.abs(next) > limit) return;
      input.value = String(next);
      read();
    });
    return made;
  }

  /* One of several: radio buttons under a common label. */
  function choice({ label, options, value }, changed) {
    const name = `figure-choice-${++count}`;
    const inputs = options.map(([key]) => make("input", { type: "radio", name, value: key, checked: key === value,
      onchange: (event) => changed(event.target.value) }));
    const box = make("fieldset", { class: "choice" }, make("legend", {}, label),
      ...options.map(([, text], k) => make("label", {}, inputs[k], make("span", {}, text))));
    return { box, get value() { return inputs.find((input) => input.checked).value; } };
  }

  /* A bar above or below the middle of its cell; `scale` is the value that fills a half. */
  function bar(value, scale) {
    const share = Number.isFinite(value) && scale > 0 ? Math.min(Math.abs(value) / scale, 1) * 50 : 0;
    const side = value < 0 ? "top" : "bottom";
    return make("span", { class: `bar ${value < 0 ? "below" : "above"}`, "aria-hidden": "true" },
      make("i", { style: `${side}: 50%; height: ${share}%` }));
  }

  /* A drawing of 340 by `height` with a title; `marks` are SVG elements, `says` is its text for those who cannot see it. */
  function panel({ title, height = 170, says }, ...marks) {
    return make("figure", {}, make("figcaption", {}, title),
      make("svg", { viewBox: `0 0 340 ${height}`, role: "img", "aria-label": says }, ...marks));
  }

  /* A function that returns standard normal numbers, the same for the same seed: mulberry32 and Box and Muller. */
  function normal(seed) {
    let state = seed >>> 0;
    const uniform = () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = state;
      t = Math.imul(t ^ (t >>> 15), t | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  }

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  /* The mean of a list and its biased variance, in two passes as in minigrad. */
  function moments(values) {
    const mu = mean(values);
    return { mu, variance: mean(values.map((value) => (value - mu) ** 2)) };
  }

  return { add, make, format, fixed, parse, slider, field, choice, bar, panel, normal, mean, moments };
})();
