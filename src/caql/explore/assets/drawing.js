/* What every figure needs: SVG elements, scales, ticks, colours, contours of a grid, and the marks of the methods. */
const Drawing = (() => {
  const el = (name, attributes = {}, ...children) => {
    const found = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, v] of Object.entries(attributes)) if (v !== undefined) found.setAttribute(key, v);
    for (const child of children) found.append(child);
    return found;
  };

  const svg = (width, height, label, ...children) =>
    el("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...children);

  const scale = (from, to, start, end) => {
    const map = (v) => start + ((v - from) / (to - from || 1)) * (end - start);
    map.back = (p) => from + ((p - start) / (end - start || 1)) * (to - from);
    return map;
  };

  const ticks = (low, high, wanted = 4) => {
    if (!(high > low)) return [low];
    const power = 10 ** Math.floor(Math.log10((high - low) / wanted));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => (high - low) / s <= wanted + 1);
    const found = [];
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) found.push(+v.toFixed(10));
    return found;
  };

  /* Ticks as text, with the digits that their distance needs. */
  const labelled = (low, high, wanted) => {
    const found = ticks(low, high, wanted), step = found.length > 1 ? found[1] - found[0] : 1;
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return found.map((t) => [t, number(t, digits)]);
  };

  /* Enough digits to tell numbers of this size apart. */
  const number = (v, digits = 2) => {
    if (!Number.isFinite(v)) return "∞";
    const text = Math.abs(v) >= 1e5 ? v.toExponential(2) : v.toFixed(Math.abs(v) >= 1000 ? 1 : digits);
    return text.replace("-", "−");
  };
  const gap = (v) => (v <= 0 ? "0" : v >= 0.01 ? number(v) : v.toExponential(0).replace("-", "−"));

  /* Dark blue over green to straw: light where Q is high. */
  const STOPS = [[26, 35, 72], [36, 82, 122], [45, 127, 136], [110, 174, 137], [196, 210, 144], [250, 239, 188]];
  const colour = (share) => {
    const at = Math.min(0.99999, Math.max(0, share)) * (STOPS.length - 1);
    const k = Math.floor(at), t = at - k;
    return STOPS[k].map((c, i) => c + t * (STOPS[k + 1][i] - c));
  };

  const paint = (canvas, field, columns, rows, [low, high]) => {
    canvas.width = columns;
    canvas.height = rows;
    const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) {
        const [red, green, blue] = colour((field[(rows - 1 - r) * columns + c] - low) / (high - low || 1));
        image.data.set([red, green, blue, 255], 4 * (r * columns + c));
      }
    }
    context.putImageData(image, 0, 0);
  };

  /* The line where a grid's field has a value, by marching squares, as the `d` of an SVG path. */
  const contour = (field, xs, ys, level) => {
    const parts = [], columns = xs.length;
    const cut = (a, b, p, q) => p + ((level - a) / (b - a)) * (q - p);
    for (let r = 0; r + 1 < ys.length; r++) {
      for (let c = 0; c + 1 < columns; c++) {
        const at = r * columns + c;
        const a = field[at], b = field[at + 1], d = field[at + columns], e = field[at + columns + 1];
        const code = (a > level) + (b > level) + (d > level) + (e > level);
        if (code === 0 || code === 4) continue;
        const ends = [];
        if (a > level !== b > level) ends.push([cut(a, b, xs[c], xs[c + 1]), ys[r]]);
        if (b > level !== e > level) ends.push([xs[c + 1], cut(b, e, ys[r], ys[r + 1])]);
        if (d > level !== e > level) ends.push([cut(d, e, xs[c], xs[c + 1]), ys[r + 1]]);
        if (a > level !== d > level) ends.push([xs[c], cut(a, d, ys[r], ys[r + 1])]);
        for (let k = 0; k + 1 < ends.length; k += 2) {
          parts.push(`M${ends[k].map((v) => v.toFixed(1))}L${ends[k + 1].map((v) => v.toFixed(1))}`);
        }
      }
    }
    return parts.join("");
  };

  const polyline = (points) => points.map(([x, y], k) => `${k ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

  const SHAPES = {
    best: (r) => {
      const corner = (k) => {
        const angle = (Math.PI * k) / 5 - Math.PI / 2, length = k % 2 ? r * 0.62 : r * 1.45;
        return [length * Math.cos(angle), length * Math.sin(angle)];
      };
      return polyline(Array.from({ length: 10 }, (_, k) => corner(k))) + "Z";
    },
    guess: (r) => `M0 ${-1.2 * r}L${1.2 * r} 0L0 ${1.2 * r}L${-1.2 * r} 0Z`,
    elites: (r) => `M${-r} ${-r}H${r}V${r}H${-r}Z`,
    ascents: (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
  };
  SHAPES.mine = SHAPES.ascents;

  const mark = (kind, [x, y], radius = 7, extra = "", title) => {
    const found = el("path", {
      class: `mark ${kind} ${extra}`, d: SHAPES[kind](radius), transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`,
    });
    if (title) found.append(el("title", {}, title));
    return found;
  };

  const icon = (kind) => {
    const found = el("svg", { viewBox: "-10 -10 20 20", "aria-hidden": "true" });
    if (kind === "pieces") found.append(el("path", { d: "M-9 6L-2 -3L3 2L9 -7", class: "curve" }));
    else if (kind === "contours") found.append(el("path", { d: "M-8 5C-5 -5 3 -8 8 -4M-4 7C-2 0 4 -2 8 1", class: "base" }));
    else found.append(mark(kind, [0, 0], 6));
    return found;
  };

  return { el, svg, scale, labelled, number, gap, colour, paint, contour, polyline, mark, icon };
})();
