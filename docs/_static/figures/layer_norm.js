"use strict";
/* Layer normalization of five numbers, and the gradient that arrives at them. */
(() => {
  const { make, format, fixed, slider, bar, mean, moments } = figures;

  /* y = γ x̂ + β with x̂ = r (x − μ) and r = 1/√(σ² + ε); backward, g = γ dL/dy and dL/dx = r (g − mean(g) − x̂ mean(g x̂)). */
  function compute({ x, gamma, beta, eps, upstream }) {
    const { mu, variance } = moments(x), r = 1 / Math.sqrt(variance + eps);
    const xhat = x.map((value) => r * (value - mu));
    const y = xhat.map((value, i) => gamma[i] * value + beta[i]);
    const g = upstream.map((value, i) => value * gamma[i]);
    const level = mean(g), slope = mean(g.map((value, i) => value * xhat[i]));
    const dx = g.map((value, i) => r * (value - level - xhat[i] * slope));
    return { mu, variance, xhat, y, dx };
  }

  const EPS = [0, 1e-5, 1e-3, 0.1, 1, 10];
  const ROWS = [
    ["x", "x", [1, 2, 6, 4, 2], { min: -8, max: 8, step: 0.5 }],
    ["gamma", "γ", [1, 1, 1, 1, 1], { min: -2, max: 2, step: 0.25 }],
    ["beta", "β", [0, 0, 0, 0, 0], { min: -2, max: 2, step: 0.25 }],
    ["upstream", "dL/dy", [0, 0, 1, 0, 0], { min: -2, max: 2, step: 0.25 }],
  ];

  function show(box) {
    const sliders = Object.fromEntries(ROWS.map(([key, name, start, range]) => [key, start.map((value, i) => {
      const made = slider({ ...range, label: `${name} ${i + 1}`, value }, draw);
      made.box.firstChild.className = "hidden";
      return made;
    })]));
    const eps = slider({ label: "ε", min: 0, max: EPS.length - 1, step: 1, value: 0, says: (k) => format(EPS[k]) }, draw);
    const shown = ["x̂", "y", "dL/dx"].map((name) => [name, Array.from({ length: 5 }, () => make("div", { class: "unit" }))]);
    const sums = make("p", { class: "says", role: "status" });
    const line = (name, cells) => [make("div", { class: "name" }, name), ...cells];
    box.append(
      make("div", { class: "units" },
        ...ROWS.flatMap(([key, name]) => line(name, sliders[key].map((made) => made.box))),
        ...shown.flatMap(([name, cells]) => line(name, cells))),
      eps.box, sums);

    function draw() {
      const values = Object.fromEntries(ROWS.map(([key]) => [key, sliders[key].map((made) => made.value)]));
      const found = compute({ ...values, eps: EPS[eps.value] });
      const largest = (numbers) => Math.max(...numbers.map(Math.abs));
      const rows = [[found.xhat, 2], [found.y, Math.max(2, largest(found.y))], [found.dx, Math.max(0.1, largest(found.dx))]];
      rows.forEach(([numbers, scale], k) => numbers.forEach((value, i) =>
        shown[k][1][i].replaceChildren(bar(value, scale), make("span", {}, fixed(value, 3)))));
      const dot = found.dx.reduce((sum, value, i) => sum + value * (values.x[i] - found.mu), 0);
      sums.textContent = Number.isFinite(found.dx[0])
        ? `Mean ${format(found.mu)}, variance ${format(found.variance)}. `
          + `Sum of dL/dx: ${fixed(found.dx.reduce((sum, value) => sum + value, 0), 6)}. `
          + `Sum of dL/dx · (x − μ): ${fixed(dot, 6)}.`
        : "All x are equal, so the variance is 0, and with ε = 0 this divides 0 by 0. Move an x or ε.";
    }
    draw();
  }

  figures.add("layer_norm", { compute, show });
})();
