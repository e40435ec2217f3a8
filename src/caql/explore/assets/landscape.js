/* The landscape: Q over two actions as a map or, where there is only one, as a curve (slices.js). */
const Landscape = (() => {
  const { el, scale, labelled, number, paint, contour, polyline, mark } = Drawing;
  const FINE = 150, COARSE = 61, WORK = 4e7, LEVELS = 11;

  const places = (low, high, count) => Array.from({ length: count }, (_, k) => low + ((high - low) * k) / (count - 1));

  /* As fine as can be computed in a moment. */
  const resolution = (net) => {
    const products = net.reduce((sum, layer) => sum + layer.rows * layer.columns, 0);
    return Math.max(40, Math.min(FINE, Math.floor(Math.sqrt(WORK / products))));
  };

  const axis = (view, across, size) => {
    const { names, pair, low, high } = view, index = pair[across ? 0 : 1];
    const group = el("g", {});
    for (const [t, text] of labelled(low[index], high[index], 4)) {
      const at = across ? view.x(t) : view.y(t);
      group.append(across
        ? el("text", { x: at, y: size + 17, "text-anchor": "middle" }, text)
        : el("text", { x: -7, y: at + 4, "text-anchor": "end" }, text));
    }
    group.append(across
      ? el("text", { class: "strong", x: size, y: size + 32, "text-anchor": "end" }, names[index])
      : el("text", { class: "strong", x: 2, y: -9, "text-anchor": "start" }, names[index]));
    return group;
  };

  /* The parts that show how Q is made: its linear pieces and its levels. */
  const relief = (view, show) => {
    const { net, here, pair, low, high } = view, [i, j] = pair;
    const xs = places(low[i], high[i], COARSE), ys = places(low[j], high[j], COARSE);
    const fields = Network.grid(net, here.best, pair, xs, ys, true);
    const px = xs.map(view.x), py = ys.map(view.y), group = el("g", {});
    if (show.contours) {
      const q = fields[fields.length - 1][0], bottom = Math.min(...q), top = Math.max(...q);
      const lines = places(bottom, top, LEVELS + 2).slice(1, -1).map((level) => contour(q, px, py, level));
      group.append(el("path", { class: "contours", d: lines.join("") }));
    }
    if (show.pieces) {
      const lines = fields.slice(0, -1).flat().map((field) => contour(field, px, py, 0));
      group.append(el("path", { class: "pieces", d: lines.join("") }));
    }
    return group;
  };

  const shape = (view, size) => {
    const { here, pair, integer, low, high } = view, group = el("g", {});
    const swapped = pair[0] > pair[1], corners = here.shapes && here.shapes[[...pair].sort((a, b) => a - b).join(",")];
    if (corners) {
      const points = corners.map(([a, b]) => (swapped ? [b, a] : [a, b])).map(([a, b]) => [view.x(a), view.y(b)]);
      const outline = points.length ? polyline(points) + "Z" : "";
      group.append(el("path", { class: "outside", "fill-rule": "evenodd", d: `M0 0H${size}V${size}H0Z${outline}` }));
      group.append(el("path", { class: "inside", d: outline }));
    }
    for (const [place, index] of pair.map((index, place) => [place, index])) {
      if (!integer.includes(index)) continue;
      for (let v = Math.ceil(low[index]); v <= high[index]; v++) {
        const at = place === 0 ? view.x(v) : view.y(v);
        group.append(el("path", { class: "whole", d: place === 0 ? `M${at} 0V${size}` : `M0 ${at}H${size}` }));
      }
    }
    return group;
  };

  /* A path of actions as seen in the plane; hollow where it ends away from it. */
  const trail = (view, kind, path, title) => {
    const [i, j] = view.pair, points = path.map((a) => [view.x(a[i]), view.y(a[j])]), end = path[path.length - 1];
    const away = end.some((v, k) => k !== i && k !== j
      && Math.abs(v - view.here.best[k]) > 0.02 * (view.high[k] - view.low[k]));
    return el("g", {},
      el("path", { class: "halo", d: polyline(points) }), el("path", { class: `path ${kind}`, d: polyline(points) }),
      mark(kind, points[0], 3, "start"), mark(kind, points[points.length - 1], 6, away ? "away" : "", title));
  };

  const tracks = (view, show, mine) => {
    const { here, net, pair } = view, group = el("g", {});
    const named = (what, a) => `${what}: Q = ${number(Network.value(net, a))}`;
    if (show.ascents && here.ascents) {
      for (const path of here.ascents) {
        group.append(trail(view, "ascents", path, named("gradient ascent ends here", path[path.length - 1])));
      }
    }
    if (show.elites && here.elites) {
      group.append(trail(view, "elites", here.elites, named("cross-entropy ends here", here.elites[here.elites.length - 1])));
    }
    if (mine) group.append(trail(view, "mine", mine, named("your ascent ends here", mine[mine.length - 1])));
    const at = (a) => [view.x(a[pair[0]]), view.y(a[pair[1]])];
    if (show.guess && here.guess) group.append(mark("guess", at(here.guess), 7, "", named("action function", here.guess)));
    if (show.best) group.append(mark("best", at(here.best), 10, "", named("proved maximum", here.best)));
    return group;
  };

  /* Draw the map into `holder`; returns what is needed to read it: {pair, x, y, size}. */
  const draw = (holder, data, model, look) => {
    const plane = document.createElement("div"), canvas = document.createElement("canvas");
    plane.className = "plane";
    holder.replaceChildren(plane);
    const size = plane.clientWidth, pair = look.pair, { low, high } = model.range;
    const view = {
      ...data, net: model.net, here: model.here, pair, low, high, size,
      x: scale(low[pair[0]], high[pair[0]], 0, size), y: scale(low[pair[1]], high[pair[1]], size, 0),
    };
    const count = resolution(model.net), [i, j] = pair;
    const fields = Network.grid(model.net, model.here.best, pair, places(low[i], high[i], count), places(low[j], high[j], count));
    const field = fields[fields.length - 1][0];
    let bottom = Infinity, top = -Infinity;
    for (const v of field) { bottom = Math.min(bottom, v); top = Math.max(top, v); }
    paint(canvas, field, count, count, [bottom, top]);
    const svg = el("svg", { viewBox: `0 0 ${size} ${size}`, "aria-hidden": "true" });
    svg.append(relief(view, look.show), shape(view, size), axis(view, true, size), axis(view, false, size),
      tracks(view, look.show, look.mine), el("g", { class: "probe-marks" }));
    plane.append(canvas, svg);
    return { view, plane, svg };
  };

  /* The cross-hairs at a place of the map. */
  const hair = ({ view, svg }, [a, b]) => {
    const x = view.x(a), y = view.y(b);
    svg.querySelector(".probe-marks").replaceChildren(
      el("path", { class: "hair", d: `M${x} 0V${view.size}M0 ${y}H${view.size}` }));
  };

  return { draw, hair };
})();
