#!/usr/bin/env bash
# TensorFlow.js 4.22.0 (backend "cpu"): tf.train.rmsprop with centered=true divides by the root of v - (m² + ε) where
# TensorFlow has v - m² + ε, for the means v of the squares and m of the gradients. So a parameter whose gradient is
# small (below 0.001, with the default ε of 1e-7) is NaN after the first step, and one without a gradient, too.
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

const step = (gradient, centered) => {
  const weight = tf.variable(tf.scalar(1));
  tf.train.rmsprop(0.01, 0.9, 0, null, centered).applyGradients({ [weight.name]: tf.scalar(gradient) });
  return weight.dataSync()[0];
};
for (const gradient of [1, 0.01, 0.0005, 0]) {
  const [plain, centered] = [step(gradient, false), step(gradient, true)];
  console.log(`gradient ${gradient}: ${plain}, centered ${centered}`);
  assert(Number.isFinite(plain) && Number.isNaN(centered) === gradient < 0.001);
}
JAVASCRIPT
node run.js 2> errors || { cat errors; exit 1; }
