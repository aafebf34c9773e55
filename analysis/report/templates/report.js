// Answers to the pointer and the keyboard, sorts and filters long tables, walks along curves. All that it shows stands
// on the page.
(() => {
  'use strict';
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const make = (name, properties = {}) => Object.assign(document.createElement(name), properties);
  const shape = (svg, name, attributes) => {
    const element = svg.appendChild(document.createElementNS(svg.namespaceURI, name));
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    return element;
  };

  // Contents: folded where they stand above the text; where they stand beside it, the section that is read is marked.
  const contents = document.querySelector('.contents');
  if (contents) {
    const fold = contents.querySelector('details'), beside = matchMedia('(min-width: 64rem)');
    beside.onchange = () => { fold.open = beside.matches; };
    beside.onchange();
    const links = new Map(all('a', contents).map(link => [link.hash.slice(1), link]));
    const bodies = all('.body').filter(body => links.has(body.id));
    contents.onclick = event => { if (event.target.closest('a') && !beside.matches) fold.open = false; };
    const mark = () => {
      const read = bodies.filter(body => body.parentNode.getBoundingClientRect().top < innerHeight / 3).pop();
      for (const [name, link] of links) link.ariaCurrent = name === read?.id ? 'true' : null;
    };
    addEventListener('scroll', mark, {passive: true});
    mark();
  }

  // Figures: the nearest point says its value, problem and command.
  const tip = document.body.appendChild(make('div', {id: 'tip', hidden: true}));
  tip.setAttribute('role', 'status');
  const pointsOf = element => {
    const texts = element.dataset.t.split('|'), series = element.parentNode.dataset.s;
    if (element.points) return texts.map((text, i) => ({x: element.points[i].x, y: element.points[i].y, series, text}));
    const box = element.getBBox();
    return [{x: box.x + box.width / 2, y: box.y + box.height / 2, text: texts[0]}];
  };
  for (const panel of all('.panel')) {
    const svg = panel.querySelector('svg');
    let points, at = -1, ring;
    const show = i => {
      at = i;
      const point = points[i], box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
      ring ??= shape(svg, 'circle', {r: 7, class: 'mark'});
      ring.setAttribute('cx', point.x);
      ring.setAttribute('cy', point.y);
      tip.textContent = [point.series, point.text, panel.dataset.p, panel.dataset.c].filter(Boolean).join('\n');
      tip.hidden = false;
      const left = box.left + point.x * scale + 14;
      tip.style.left = scrollX + Math.max(8, Math.min(left, innerWidth - tip.offsetWidth - 12)) + 'px';
      tip.style.top = scrollY + box.top + point.y * scale + 14 + 'px';
    };
    const load = () => points ??= all('[data-t]', svg).flatMap(pointsOf);
    const hide = () => { tip.hidden = true; ring?.remove(); ring = undefined; };
    svg.tabIndex = 0;
    svg.onpointermove = svg.onpointerdown = event => {
      const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
      const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
      let nearest = -1, least = 60;
      load().forEach((point, i) => {
        const distance = Math.hypot(point.x - x, point.y - y);
        if (distance < least) [nearest, least] = [i, distance];
      });
      nearest < 0 ? hide() : show(nearest);
    };
    svg.onpointerleave = svg.onblur = hide;
    svg.onkeydown = event => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (!step || !load().length) return;
      event.preventDefault();
      show((at + step + points.length) % points.length);
    };
    if ('steps' in panel.dataset) {
      const lines = all('g[data-s] > [data-t]', svg).map(pointsOf), upright = line => new Set(line.map(point => point.x)).size === 1;
      const curves = lines.filter(line => !upright(line)), usable = lines.filter(upright).pop();
      const steps = [...new Map(curves.flat().map(point => [point.x, point.text.split(': ')[0]]))].sort((a, b) => a[0] - b[0]);
      const cut = shape(svg, 'path', {class: 'cut c1'});
      const says = make('output'), slider = make('input', {type: 'range', min: 0, max: steps.length - 1});
      slider.oninput = () => {
        const [x, size] = steps[slider.value];
        cut.setAttribute('d', `M${x} 24V244`);
        says.textContent = `${size}: ` + curves.map(curve => {
          const point = curve.filter(p => p.x <= x).pop();
          return point && `${point.series} ${point.text.split(': ')[1]}`;
        }).filter(Boolean).join(', ');
      };
      const label = make('label', {className: 'tools', textContent: 'L2 size '});
      label.append(slider, says);
      panel.append(label);
      slider.value = usable ? steps.filter(([x]) => x <= usable[0].x).length - 1 : steps.length >> 1; // the machine's own L2
      slider.oninput();
    }
  }

  // Long tables: a click on a header sorts; kernel, pass and problem can be chosen.
  const number = text => {
    const [, value, prefix] = text.match(/^(?:[^\d+-]*)([+-]?[\d.]+(?:e[+-]\d+)?)\s*([nuµmkKMGT]?)(?=i?B|s|FLOP|\/s|$)/) || [];
    return value === undefined ? NaN : value * ({n: 1e-9, u: 1e-6, µ: 1e-6, m: 1e-3, k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12}[prefix] || 1);
  };
  for (const fold of all('.long')) {
    const table = fold.querySelector('table'), body = table.tBodies[0], heads = table.tHead.rows[0], chosen = new Map();
    const headings = [...body.rows].filter(row => row.className), rows = [...body.rows].filter(row => !row.className);
    let above;
    for (const row of body.rows) row.className ? above = row : row.above = above;
    const text = (row, head) => (head ? row.cells[head.cellIndex] : row.above).textContent.trim();
    const tools = make('div', {className: 'tools'}), count = make('output');
    const filter = () => {
      for (const row of rows) row.hidden = [...chosen].some(([head, value]) => value && text(row, head) !== value);
      for (const heading of headings) heading.hidden = rows.every(row => row.above !== heading || row.hidden);
      count.textContent = `${rows.filter(row => !row.hidden).length} of ${rows.length} rows`;
    };
    const offer = (name, head) => {
      const select = make('select'), label = make('label', {textContent: name + ' '});
      for (const value of ['', ...new Set(rows.map(row => text(row, head)))]) select.append(new Option(value || 'all', value));
      if (select.options.length < 3) return;
      select.onchange = () => { chosen.set(head, select.value); filter(); };
      label.append(select);
      tools.append(label);
    };
    const flatten = () => { // sorted rows stand under no heading: it becomes a column
      if (!headings.length) return;
      table.className = table.className.replace(/\d+/g, column => +column + 1);
      heads.prepend(make('th', {scope: 'col', textContent: table.dataset.group}));
      for (const row of rows) {
        row.prepend(row.above.cells[0].cloneNode(true));
        row.cells[0].colSpan = 1;
      }
      for (const heading of headings.splice(0)) heading.remove();
    };
    if (headings.length) offer(table.dataset.group);
    for (const head of heads.cells) {
      const name = head.textContent, button = make('button', {type: 'button', title: 'Sort'});
      button.append(...head.childNodes);
      head.append(button);
      button.onclick = () => {
        flatten();
        const sign = head.ariaSort === 'ascending' ? -1 : 1;
        for (const other of heads.cells) other.ariaSort = null;
        head.ariaSort = sign > 0 ? 'ascending' : 'descending';
        const compare = (a, b) => number(a) - number(b) || a.localeCompare(b);
        body.append(...rows.sort((a, b) => sign * compare(text(a, head), text(b, head))));
      };
      if (/^(kernel|pass|problem|machine)\b/.test(name)) offer(name, head);
    }
    tools.append(count);
    filter();
    fold.querySelector('.wide').before(tools);
  }
})();
