"use strict";
/* A recurrent network without training: its state over time, and the gradient on the way back. */
(() => {
  const { make, format, slider, choice, panel, normal, mean, moments } = figures;
  const WIDTH = 64, STEPS = 40, EPS = 1e-5;
  const length = (v) => Math.hypot(...v);

  /* h_t = tanh(a_t) or tanh(LN(a_t)), where a_t = s W h_{t−1} + x_t and h_0 = 0; L = c · h_T. Returns h_t and dL/dh_t. */
  function compute({ W, x, c, s, norm }) {
    const width = c.length, states = [], inverse = [], hats = [];
    let h = new Array(width).fill(0);
    for (const input of x) {
      let a = W.map((row, i) => s * row.reduce((sum, w, j) => sum + w * h[j], 0) + input[i]);
      if (norm) {
        const { mu, variance } = moments(a), r = 1 / Math.sqrt(variance + EPS);
        a = a.map((value) => r * (value - mu));
        inverse.push(r);
        hats.push(a);
      }
      states.push((h = a.map(Math.tanh)));
    }
    const grads = [];
    let g = c;
    for (let t = x.length - 1; t >= 0; t--) {
      grads.unshift(g);
      let d = g.map((value, i) => value * (1 - states[t][i] ** 2));
      if (norm) {
        const level = mean(d), slope = mean(d.map((value, i) => value * hats[t][i]));
        d = d.map((value, i) => inverse[t] * (value - level - hats[t][i] * slope));
      }
      g = c.map((_, j) => s * W.reduce((sum, row, i) => sum + row[j] * d[i], 0));
    }
    return { states, grads };
  }

  /* W from N(0, 1/width), an input at step 1 alone, and a random loss. */
  function start(seed) {
    const next = normal(seed), vector = () => Array.from({ length: WIDTH }, next);
    const W = Array.from({ length: WIDTH }, () => vector().map((value) => value / Math.sqrt(WIDTH)));
    const x = Array.from({ length: STEPS }, () => new Array(WIDTH).fill(0));
    x[0] = vector();
    return { W, x, c: vector() };
  }

  function show(box) {
    const given = start(3);
    const scale = slider({ label: "scale s of W", min: 0.5, max: 4, step: 0.1, value: 0.5 }, draw);
    const norm = choice({ label: "Norm", value: "none", options: [["none", "none"], ["LN", "LN"]] }, draw);
    const panels = make("div", { class: "panels" }), says = make("p", { class: "says", role: "status" });
    box.append(make("div", { class: "controls" }, scale.box, norm.box), panels, says);

    /* Bars from 1: up for what has grown, down for what has shrunk, a decade in 6 units. */
    function bars(title, values, kind) {
      const Y = (value) => 64 - 6 * Math.min(Math.max(Math.log10(value), -14), 9);
      return panel({ title, height: 182, says: `${title}: from ${format(values[0], 2)} at step 1 to ${format(values.at(-1), 2)} at step ${STEPS}` },
        ...[6, 0, -6, -12].flatMap((d) => [
          make("path", { class: d ? "grid" : "axis", d: `M36 ${64 - 6 * d}H340` }),
          make("text", { x: 30, y: 68 - 6 * d, "text-anchor": "end" }, d ? `1e${format(d)}` : "1")]),
        ...values.map((value, t) => {
          const y = Y(value);
          return make("rect", { class: kind, x: 38 + 7.5 * t, width: 5.5, y: Math.min(y, 64), height: Math.max(Math.abs(y - 64), 0.5) });
        }),
        ...[1, 10, 20, 30, 40].map((t) => make("text", { x: 41 + 7.5 * (t - 1), y: 162, "text-anchor": "middle" }, t)),
        make("text", { x: 190, y: 176, "text-anchor": "middle" }, "step t"));
    }

    function draw() {
      const found = compute({ ...given, s: scale.value, norm: norm.value === "LN" });
      const states = found.states.map(length), grads = found.grads.map(length);
      panels.replaceChildren(bars("Norm of h at every step, forward →", states, "forward"), bars("Norm of dL/dh at every step, ← backward", grads, "backward"));
      says.textContent = `s = ${format(scale.value)}, ${norm.value === "LN" ? "with LN" : "no norm"}: the state goes from `
        + `${format(states[0], 2)} at step 1 to ${format(states.at(-1), 2)} at step ${STEPS}; the gradient, from ${format(grads.at(-1), 2)} `
        + `at step ${STEPS} back to ${format(grads[0], 2)} at step 1.`;
    }
    draw();
  }

  figures.add("recurrence", { compute, start, show });
})();
