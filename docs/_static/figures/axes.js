"use strict";
/* A block of samples × channels × positions: which cells share statistics with the chosen one. */
(() => {
  const { make, format, fixed, field, choice, moments } = figures;
  const N = 3, C = 4, L = 2, EPS = 1e-5;
  const START = [[1, 3, 5, 4, 0, 2, 7, 9], [2, 2, 8, 5, 1, -1, 4, 6], [0, 4, 6, 9, 3, -3, 5, 3]];

  /* A label for every cell: cells with the same label share mean and variance. `groups` counts only for GN. */
  function sets(norm, groups) {
    const size = C / { BN: 1, LN: 1, IN: C, GN: groups }[norm];
    return START.map((row, n) => row.map((_, k) => {
      const c = Math.floor(k / L);
      return norm === "BN" ? c : n * C + Math.floor(c / size);
    }));
  }

  /* The normalized block, and each cell's mean and biased variance. */
  function compute({ x, norm, groups }) {
    const labels = sets(norm, groups), members = new Map();
    x.forEach((row, n) => row.forEach((value, k) => {
      const label = labels[n][k];
      members.set(label, [...(members.get(label) ?? []), value]);
    }));
    const found = new Map([...members].map(([label, values]) => [label, moments(values)]));
    const each = (of) => x.map((row, n) => row.map((value, k) => of(found.get(labels[n][k]), value)));
    return {
      labels,
      mean: each(({ mu }) => mu),
      variance: each(({ variance }) => variance),
      y: each(({ mu, variance }, value) => (value - mu) / Math.sqrt(variance + EPS)),
    };
  }

  function meaning(norm, groups, n, c) {
    const size = C / groups, first = Math.floor(c / size) * size + 1, last = first + size - 1;
    if (norm === "BN") return `channel ${c + 1} of all samples`;
    if (norm === "LN") return `all channels of sample ${n + 1}`;
    if (norm === "IN" || size === 1) return `channel ${c + 1} of sample ${n + 1}`;
    return `channels ${first} to ${last} of sample ${n + 1}`;
  }

  /* A table of the block: `cell(n, k)` returns the content. */
  function block(caption, cell) {
    const cells = START.map((row, n) => row.map((_, k) => make("td", { class: k % L ? "" : "first" }, cell(n, k))));
    const heads = Array.from({ length: C }, (_, c) => make("th", { scope: "colgroup", colspan: L }, c + 1));
    return { cells, box: make("table", { class: "block" }, make("caption", {}, caption),
      make("thead", {},
        make("tr", {}, make("td"), make("th", { colspan: C * L }, "channel")),
        make("tr", {}, make("th", { scope: "col" }, "sample"), ...heads)),
      make("tbody", {}, ...cells.map((row, n) => make("tr", {}, make("th", { scope: "row" }, n + 1), ...row)))) };
  }

  function show(box) {
    let at = [1, 2];
    const fields = START.map((row, n) => row.map((value, k) => {
      const label = `sample ${n + 1}, channel ${Math.floor(k / L) + 1}, position ${k % L + 1}`;
      const made = field({ label, value }, draw);
      made.input.addEventListener("focus", () => { at = [n, k]; draw(); });
      return made;
    }));
    const norm = choice({ label: "Norm", value: "BN", options: ["BN", "LN", "IN", "GN"].map((name) => [name, name]) }, draw);
    const groups = choice({ label: "Groups of GN", value: "2", options: ["1", "2", "4"].map((name) => [name, name]) }, draw);
    const input = block("x", (n, k) => fields[n][k].input), output = block("x̂", () => "");
    const says = make("p", { class: "says", role: "status" });
    box.append(make("div", { class: "controls" }, norm.box, groups.box),
      make("div", { class: "panels" }, input.box, output.box), says);

    function draw() {
      groups.box.disabled = norm.value !== "GN";
      const [row, column] = at, wrong = fields.flat().find((made) => made.value === null);
      const x = fields.map((line) => line.map((made) => made.value));
      const count = Number(groups.value), labels = sets(norm.value, count);
      const found = wrong ? null : compute({ x, norm: norm.value, groups: count });
      let size = 0;
      for (let n = 0; n < N; n++)
        for (let k = 0; k < C * L; k++) {
          const shares = labels[n][k] === labels[row][column];
          size += shares;
          output.cells[n][k].textContent = found ? fixed(found.y[n][k], 2) : "–";
          for (const { cells } of [input, output]) {
            cells[n][k].classList.toggle("shares", shares);
            cells[n][k].classList.toggle("chosen", n === row && k === column);
          }
        }
      box.dataset.norm = norm.value;
      says.classList.toggle("wrong", Boolean(wrong));
      says.textContent = wrong ? wrong.expected()
        : `${norm.value}: the chosen cell shares its statistics with ${meaning(norm.value, count, row, Math.floor(column / L))}, `
          + `${size} numbers with mean μ = ${format(found.mean[row][column])} and deviation `
          + `σ = ${format(Math.sqrt(found.variance[row][column]))}.`;
    }
    draw();
  }

  figures.add("axes", { compute, show });
})();
