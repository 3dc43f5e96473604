"use strict";
/* The mean and the deviation of batches, scattered about those of all data. */
(() => {
  const { make, format, slider, panel, normal, mean, moments } = figures;
  const BATCHES = 200, SIZES = Array.from({ length: 10 }, (_, k) => 2 ** (k + 1));

  /* The statistics of `count` batches of m numbers each, drawn from the standard normal distribution. */
  function draw_batches(seed, m, count) {
    const next = normal(seed);
    return Array.from({ length: count }, () => {
      const x = Array.from({ length: m }, next), { mu, variance } = moments(x);
      return { x, mu, sigma: Math.sqrt(variance) };
    });
  }

  /* The root mean square distance of the batches' statistics from the true ones, 0 and 1. */
  function spread(batches) {
    const away = (of) => Math.sqrt(mean(batches.map((batch) => of(batch) ** 2)));
    return { mu: away(({ mu }) => mu), sigma: away(({ sigma }) => sigma - 1) };
  }

  function show(box) {
    let seed = 1, all;
    const size = slider({ label: "batch size m", min: 1, max: SIZES.length, step: 1, value: 3, says: (k) => String(2 ** k) }, draw);
    const again = make("button", { type: "button", onclick: () => { seed++; sample(); } }, "Draw again");
    const panels = make("div", { class: "panels" }), says = make("p", { class: "says", role: "status" });
    box.append(make("div", { class: "controls" }, size.box, again), panels, says);

    function sample() {
      all = SIZES.map((m, k) => draw_batches(1000 * seed + k, m, BATCHES).map(({ mu, sigma }) => ({ mu, sigma })));
      draw();
    }

    const text = (x, y, words, anchor = "middle") => make("text", { x, y, "text-anchor": anchor }, words);

    function cloud(batches, m) {
      const X = (mu) => 188 + 72 * mu, Y = (sigma) => 140 - 60 * sigma;
      return panel({ title: "Each dot is a batch: its mean and its deviation", height: 178,
        says: `Dots of ${BATCHES} batches of ${m} about the true mean 0 and deviation 1` },
        make("path", { class: "axis", d: `M40 ${Y(0)}H340M${X(0)} ${Y(2.2)}V${Y(0)}M40 ${Y(1)}H340` }),
        ...batches.map(({ mu, sigma }) => make("circle", { class: "dot", cx: X(mu), cy: Y(sigma), r: 2 })),
        make("ellipse", { class: "law", cx: X(0), cy: Y(1), rx: 144 / Math.sqrt(m), ry: 120 / Math.sqrt(2 * m) }),
        ...[-2, -1, 0, 1, 2].map((v) => text(X(v), 155, format(v))), text(188, 172, "mean of the batch"),
        ...[0, 1, 2].map((v) => text(34, Y(v) + 4, format(v), "end")),
        make("text", { transform: "translate(12 80) rotate(-90)", "text-anchor": "middle" }, "deviation"));
    }

    function law(k) {
      const X = (m) => 20 + 30 * Math.log2(m), Y = (value) => 10 + 22 * Math.max(-Math.log2(value), -0.3);
      const spreads = all.map(spread), at = X(SIZES[k]);
      const curve = (key) => spreads.map((found, j) => make("circle", { class: `dot ${key}`, cx: X(SIZES[j]), cy: Y(found[key]), r: j === k ? 5 : 3 }));
      return panel({ title: "Their distance from 0 and 1, for every m", height: 178,
        says: `On a double logarithmic scale the spread of the means lies on the line one over root m, and that of the deviations below it` },
        make("path", { class: "axis", d: `M44 140H340M44 140V4M${at} 140V4` }),
        make("line", { class: "law", x1: X(2), y1: Y(Math.SQRT1_2), x2: X(1024), y2: Y(1 / 32) }),
        make("line", { class: "law", x1: X(2), y1: Y(0.5), x2: X(1024), y2: Y(1 / Math.sqrt(2048)) }),
        ...curve("mu"), ...curve("sigma"),
        ...[2, 8, 32, 128, 512].map((m) => text(X(m), 155, String(m))), text(190, 172, "batch size m"),
        ...[1, 4, 16, 64].map((v) => text(38, Y(1 / v) + 4, v === 1 ? "1" : `1/${v}`, "end")),
        text(X(64) + 8, Y(1 / 8) - 8, "means: 1/√m", "start"), text(X(16) - 4, Y(1 / Math.sqrt(32)) + 26, "deviations: 1/√2m", "end"));
    }

    function draw() {
      const k = size.value - 1, m = SIZES[k], found = spread(all[k]);
      panels.replaceChildren(cloud(all[k], m), law(k));
      says.textContent = `Batches of ${m}: their means are off 0 by ${format(found.mu, 3)}, 1/√m is ${format(1 / Math.sqrt(m), 3)}; `
        + `their deviations are off 1 by ${format(found.sigma, 3)}, 1/√(2m) is ${format(1 / Math.sqrt(2 * m), 3)}.`;
    }
    sample();
  }

  figures.add("batch_noise", { draw_batches, spread, show });
})();
