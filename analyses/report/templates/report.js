"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const made = (tag, parent, settings = {}) => {
    const node = Object.assign(document.createElement(tag), settings);
    parent.append(node);
    return node;
  };

  // The words of a mark, at once and at the pointer; without this script the browser shows them after a moment.
  const tip = made("div", document.body, { className: "tip", hidden: true });
  tip.setAttribute("role", "status");
  const wordsOf = (mark) => {
    const title = mark.querySelector("title");
    if (title) {
      mark.dataset.words = title.textContent;
      title.remove();
    }
    return mark.dataset.words;
  };

  // A map of many cells is one mark that holds the words of all of them.
  const planes = new Map(all(".hover > [data-plane]").map((mark) => [mark, JSON.parse(mark.dataset.plane)]));
  const cellWords = (plane, k) => {
    const wide = plane.across.length - 1;
    const line = ({ x, y, v }) => (x ? x[k % wide] : y ? y[Math.floor(k / wide)] : v[k]);
    return plane.silent.includes(k) ? "" : plane.lines.map(line).filter(Boolean).join("\n");
  };
  const cellAt = (mark, clientX, clientY) => {
    const { across, up } = planes.get(mark);
    const { x, y } = new DOMPoint(clientX, clientY).matrixTransform(mark.getScreenCTM().inverse());
    const between = (ends, z) => ends.findIndex((end, k) => k && (end - z) * (ends[k - 1] - z) <= 0) - 1;
    return Math.max(0, between(up, y)) * (across.length - 1) + Math.max(0, between(across, x));
  };
  const middleOf = (mark, k) => {
    const { across, up } = planes.get(mark);
    const [column, row] = [k % (across.length - 1), Math.floor(k / (across.length - 1))];
    const half = (ends, at) => (ends[at] + ends[at + 1]) / 2;
    const { x, y } = new DOMPoint(half(across, column), half(up, row)).matrixTransform(mark.getScreenCTM());
    return [x, y];
  };
  const away = () => { tip.hidden = true; };
  const tell = (mark, x, y, cell = -1) => {
    const words = wordsOf(mark);
    tip.textContent = cell < 0 ? words : cellWords(planes.get(mark), cell);
    tip.hidden = !tip.textContent;
    const below = y + 18;
    const top = below + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : below;
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  };
  const middle = (mark) => {
    const box = mark.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  const point = (event) => {
    if (!event.target.closest || !event.target.closest(".hover")) return away();
    const far = (mark) => {
      const [x, y] = middle(mark);
      return mark.tagName === "rect" ? 1e6 : Math.hypot(x - event.clientX, y - event.clientY);
    };
    const under = document.elementsFromPoint(event.clientX, event.clientY).filter((e) => e.matches(".hover > *"));
    if (!under.length) return away();
    const nearest = under.reduce((a, b) => (far(b) < far(a) ? b : a));
    const [x, y] = [event.clientX, event.clientY];
    tell(nearest, x, y, planes.has(nearest) ? cellAt(nearest, x, y) : -1);
  };
  document.addEventListener("pointermove", point, { passive: true });
  document.addEventListener("pointerdown", point, { passive: true });
  document.addEventListener("scroll", away, { passive: true, capture: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") away(); });

  // With a figure in focus the arrow keys read one mark after another.
  for (const card of all(".card")) {
    const cells = (mark) => (planes.get(mark).across.length - 1) * (planes.get(mark).up.length - 1);
    const each = (mark) => (planes.has(mark) ? Array.from({ length: cells(mark) }, (_, k) => [mark, k]) : [[mark, -1]]);
    const marks = all(".hover > *", card).flatMap(each).filter(([mark, k]) => k < 0 || cellWords(planes.get(mark), k));
    if (!marks.length) continue;
    let at = -1;
    card.setAttribute("aria-label", "figure, scrolls sideways; left and right arrow keys read its marks");
    card.addEventListener("blur", away);
    card.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step || event.target !== card) return;
      event.preventDefault();
      at = (at + step + marks.length) % marks.length;
      const [mark, cell] = marks[at];
      mark.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
      const place = () => (cell < 0 ? middle(mark) : middleOf(mark, cell));
      requestAnimationFrame(() => requestAnimationFrame(() => tell(mark, ...place(), cell)));
    });
  }

  let fields = 0;
  const field = (parent, name, control) => {
    const box = made("span", parent, { className: "explore-field" });
    control.id = `explore-${fields++}`;
    made("label", box, { htmlFor: control.id, textContent: name });
    box.append(control);
    return control;
  };
  const range = (parent, name, kind, last) => {
    const control = document.createElement("input");
    Object.assign(control, { type: "range", min: 0, max: last, step: 1, value: 0, className: `explore-${kind}` });
    return field(parent, name, control);
  };
  const says = (box, lines) => box.replaceChildren(...lines.map((line) => {
    const p = document.createElement("p");
    p.className = "explore-readout";
    p.textContent = line;
    return p;
  }));

  // Value lens: one layer, all references.
  const lens = (data, svg, controls, said) => {
    const layer = range(controls, "Layer", "layer", data.layers.length - 1);
    layer.value = data.layers.length - 1;
    const cursor = document.createElementNS(svg.namespaceURI, "line");
    cursor.setAttribute("class", "explore-cursor");
    svg.append(cursor);
    const shown = new Set(data.lines);
    const read = () => {
      const k = Number(layer.value);
      const where = k ? `after ${data.layers[k]}` : "at the input";
      layer.setAttribute("aria-valuetext", where);
      for (const [name, value] of [["x1", data.x[k]], ["x2", data.x[k]], ["y1", data.y[0]], ["y2", data.y[1]]])
        cursor.setAttribute(name, value);
      says(said, [`Read ${where}:`, ...data.lines.filter((line) => shown.has(line)).map((line) => {
        const between = k === data.layers.length - 1 && line.last ? ` (95 %: ${line.last})` : "";
        const beside = line.controls[k] ? `; ${line.control} (control): ${line.controls[k]}` : "";
        return `${line.name}: ${line.values[k] || "unknown"}${between}${beside}`;
      })]);
    };
    for (const line of data.lines) {
      const box = Object.assign(document.createElement("input"),
        { type: "checkbox", checked: true, className: "explore-toggle" });
      field(controls, line.name, box);
      box.addEventListener("change", () => {
        if (box.checked) shown.add(line); else shown.delete(line);
        const hide = (node) => { node.style.display = box.checked ? "" : "none"; };
        all(`[id$="-${line.id}"], [id$="-${line.id}-control"]`, svg).forEach(hide);
        const names = [`${line.name}\n`, `against ${line.control} (control)\n`];
        all(".hover > *", svg).filter((mark) => names.some((name) => wordsOf(mark).startsWith(name))).forEach(hide);
        read();
      });
    }
    layer.addEventListener("input", read);
    svg.addEventListener("click", (event) => {
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
      const far = data.x.map((x) => Math.abs(x - at));
      layer.value = far.indexOf(Math.min(...far));
      read();
    });
    read();
  };

  // Credit by hop: one layer's map, and one cell of it in words.
  const digits = (x) => (x === null ? "unknown" : x !== 0 && Math.abs(x) < 1e-4 ? x.toExponential(1) : String(x));
  const hops = (data, svg, controls, said) => {
    const layer = field(controls, "Layer", Object.assign(document.createElement("select"), { className: "explore-layer" }));
    data.layers.forEach((name, k) => made("option", layer, { value: k, textContent: name }));
    const hop = range(controls, "Sampled tokens crossed", "hop", data.norm[0].length - 1);
    const state = range(controls, "Tokens sampled before it", "state", data.n.length - 1);
    const cells = all('[id$="hop-map"] path', svg);
    const marks = all(".hover > rect", svg);
    const plane = planes.get(marks[0]);
    const title = svg.querySelector('[id$="hop-map-title"] text');
    const read = () => {
      const [l, h, s] = [layer, hop, state].map((control) => Number(control.value));
      hop.setAttribute("aria-valuetext", `${h} crossed`);
      state.setAttribute("aria-valuetext", `after ${s} tokens`);
      const norm = data.norm[l][h][s];
      const largest = Math.max(...data.norm[l].flat());
      const part = largest > 0 && norm !== null ? Number((norm / largest).toPrecision(3)) : null;
      says(said, [
        `${data.layers[l]}, ${h} sampled tokens crossed, state ${s} (${data.n[s]} rollouts):`,
        `norm ${digits(norm)}, which is ${digits(part)} of the largest of this layer`,
        `share of the relaxed sum at this state: ${digits(data.share[l][h][s])}`,
        `share of this hop over all states: ${data.whole[l][h] || "unknown"}`,
        ...(data.left ? [`${data.left} more layers are in the table of hops.`] : []),
      ]);
    };
    const paint = () => {
      const grid = data.norm[layer.value].flat();
      const largest = Math.max(...grid) || 1;
      const told = [];
      grid.forEach((norm, k) => {
        const depth = 1 - Math.log(Math.max(norm / largest, data.floor)) / Math.log(data.floor);
        const words = `state ${k % data.n.length}, hop ${Math.floor(k / data.n.length)}: norm ${digits(norm)}`;
        if (cells[k]) cells[k].style.fill = data.shades[Math.round(depth * (data.shades.length - 1))];
        if (plane) told.push(words);
        else if (marks[k] && wordsOf(marks[k])) marks[k].dataset.words = words;
      });
      if (plane) plane.lines = [{ v: told }];
      if (title) title.textContent = `norm / largest norm, ${data.layers[layer.value]}`;
      read();
    };
    layer.addEventListener("change", paint);
    hop.addEventListener("input", read);
    state.addEventListener("input", read);
    read();
  };

  for (const source of all("script.explore-data")) {
    const data = JSON.parse(source.textContent);
    const card = source.closest(".card");
    const box = document.createElement("div");
    box.className = "explore";
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", data.title);
    card.after(box);
    const controls = made("div", box, { className: "explore-controls" });
    const said = made("div", box, { className: "explore-said" });
    said.setAttribute("aria-live", "polite");
    ({ lens, hops })[data.kind](data, card.querySelector("svg"), controls, said);
  }
})();
