#!/usr/bin/env bash
# TensorFlow.js 4.22.0 (backend "cpu"): max and min over an axis give each of equal numbers the whole gradient, where
# TensorFlow gives each a share. So the maximum of a row of zeros, as relu leaves, sends back as many times the gradient
# as there are zeros; the maximum of two tensors sends it once. abs has the gradient -1 at 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund @tensorflow/tfjs@4.22.0 > /dev/null 2>&1
cat > run.js <<'JAVASCRIPT'
const assert = require("node:assert");
const tf = require("@tensorflow/tfjs");
console.warn = () => {};
tf.setBackend("cpu");

const found = (name, f, numbers, expected) => {
  const gradient = Array.from(tf.grad(f)(tf.tensor(numbers)).dataSync());
  console.log(name, numbers, gradient);
  assert.deepStrictEqual(gradient, expected);
};
found("max", (x) => tf.max(x), [0, 0, 0, -1], [1, 1, 1, 0]);
found("min", (x) => tf.min(x), [0, 0, 0, 1], [1, 1, 1, 0]);
found("maximum(x, x)", (x) => tf.sum(tf.maximum(x, x)), [3], [1]);
found("minimum(x, x)", (x) => tf.sum(tf.minimum(x, x)), [3], [1]);
found("relu", (x) => tf.sum(tf.relu(x)), [0], [0]);
found("abs", (x) => tf.sum(tf.abs(x)), [0, -2, 2], [-1, -1, 1]);
JAVASCRIPT
node run.js 2> errors || { cat errors; exit 1; }
