"use strict";
/* The Q-network of one state: the state is folded into the first layer's bias, and what is left is a small
   ReLU network of the action alone (Eq. 3 with x fixed).  Everything here is that network, in float64. */
const Network = (() => {
  const floats = (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return Float64Array.from(new Float32Array(bytes.buffer));
  };

  const decode = (layers) =>
    layers.map((each) => ({
      rows: each.rows, columns: each.columns, weights: floats(each.weights), bias: floats(each.bias),
    }));

  /* The network of the action at state x: {bias, layers}, whose first layer's rows are the actions'. */
  const fold = (layers, x) => {
    const first = layers[0], n = x.length, h = first.columns;
    const bias = first.bias.slice();
    for (let i = 0; i < n; i++) for (let k = 0; k < h; k++) bias[k] += x[i] * first.weights[i * h + k];
    const own = { rows: first.rows - n, columns: h, weights: first.weights.subarray(n * h), bias };
    return [own, ...layers.slice(1)];
  };

  /* Pre-activations of every layer at an action; the last one's only entry is Q. */
  const buffers = (net) => net.map((layer) => new Float64Array(layer.columns));
  const activations = (net, action, seen = buffers(net)) => {
    for (let l = 0; l < net.length; l++) {
      const { rows, columns, weights, bias } = net[l], out = seen[l], input = l ? seen[l - 1] : action;
      out.set(bias);
      for (let i = 0; i < rows; i++) {
        const v = input[i];
        if (l && v <= 0) continue;
        for (let k = 0, at = i * columns; k < columns; k++) out[k] += v * weights[at + k];
      }
    }
    return seen;
  };

  const value = (net, action) => activations(net, action)[net.length - 1][0];

  /* Q and its gradient; at a kink, that of the piece where the neuron is off. */
  const gradient = (net, action) => {
    const seen = activations(net, action);
    let slope = [1];
    for (let l = net.length - 1; l >= 0; l--) {
      const { rows, columns, weights } = net[l];
      const back = new Float64Array(rows);
      for (let i = 0; i < rows; i++) {
        if (l > 0 && seen[l - 1][i] <= 0) continue;
        for (let k = 0; k < columns; k++) back[i] += weights[i * columns + k] * slope[k];
      }
      slope = back;
    }
    return { value: seen[net.length - 1][0], slope };
  };

  const moved = (action, changes) => {
    const found = Float64Array.from(action);
    for (const [index, number] of changes) found[index] = number;
    return found;
  };

  /* All places in [from, to] where Q, as a function of one action, changes its slope: the exact pieces. */
  const kinks = (net, action, index, from, to) => {
    let places = [from, to];
    for (let l = 0; l < net.length - 1; l++) {
      const at = places.map((t) => activations(net, moved(action, [[index, t]]))[l]);
      const more = new Set(places);
      for (let s = 0; s + 1 < places.length; s++) {
        for (let k = 0; k < at[s].length; k++) {
          const left = at[s][k], right = at[s + 1][k];
          if (left * right < 0) more.add(places[s] + (left / (left - right)) * (places[s + 1] - places[s]));
        }
      }
      places = [...more].sort((a, b) => a - b);
    }
    return places;
  };

  /* Pre-activations of all neurons over a grid of two actions: one array per neuron, Q's last. */
  const grid = (net, action, [i, j], xs, ys, wanted) => {
    const size = xs.length * ys.length;
    const fields = net.map((layer, l) =>
      wanted || l === net.length - 1 ? Array.from({ length: layer.columns }, () => new Float32Array(size)) : null);
    const point = Float64Array.from(action), seen = buffers(net);
    let at = 0;
    for (const y of ys) {
      point[j] = y;
      for (const x of xs) {
        point[i] = x;
        activations(net, point, seen);
        for (let l = 0; l < net.length; l++) {
          if (fields[l]) for (let k = 0; k < fields[l].length; k++) fields[l][k][at] = seen[l][k];
        }
        at++;
      }
    }
    return fields;
  };

  /* Gradient ascent as caql's solver does it: normalised steps with a line search, clipped into the box. */
  const ascend = (net, start, low, high, { step, iterations }) => {
    const radius = low.map((v, k) => (high[k] - v) / 2);
    const path = [Array.from(start)];
    let here = Array.from(start), now = gradient(net, here), size = step;
    for (let t = 0; t < iterations; t++) {
      const scaled = radius.map((r, k) => r * now.slope[k]);
      const length = Math.max(Math.hypot(...scaled), 1e-30);
      const trial = here.map((v, k) =>
        Math.min(high[k], Math.max(low[k], v + (size * radius[k] * scaled[k]) / length)));
      const then = gradient(net, trial), gain = then.value - now.value;
      size *= gain > 0 ? 1.5 : 0.5;
      if (gain > 0) {
        here = trial;
        now = then;
        path.push(here);
      }
      if ((gain > 0 && gain < 1e-6) || size < step / 4096) break;
    }
    return path;
  };

  return { decode, fold, activations, value, gradient, kinks, grid, ascend, moved };
})();
