// What is wrong with how a page lies on the screen: what sticks out to the right, and what lies over something else.
() => {
  const unseen = "svg, .sr, .skip, .quiet, .list thead, script, option";
  const controls = "input:not([type=hidden]), select, textarea, button, .button, .badge";
  const wide = document.documentElement.clientWidth;
  const found = document.documentElement.scrollWidth > wide ? ["the page is too wide"] : [];
  for (const one of document.querySelectorAll("main *")) {
    if (!one.checkVisibility() || one.closest(`${unseen}, pre, .graph, .tabs`)) continue;
    if (one.getBoundingClientRect().right > wide + 1) found.push(`sticks out: ${one.outerHTML.slice(0, 80)}`);
  }
  const seen = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const isText = node.nodeType === Node.TEXT_NODE;
    const element = isText ? node.parentElement : node;
    if (element.closest(unseen) || !element.checkVisibility()) continue;
    if (isText ? !node.data.trim() : !node.matches(controls)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const name = isText ? node.data.trim().slice(0, 30) : element.outerHTML.slice(0, 60);
    for (const box of isText ? range.getClientRects() : [node.getBoundingClientRect()]) {
      if (box.width > 1 && box.height > 1) seen.push({ element, box, name });
    }
  }
  seen.forEach((a, n) => {
    for (const b of seen.slice(n + 1)) {
      if (a.element === b.element || a.element.contains(b.element) || b.element.contains(a.element)) continue;
      const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
      const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
      if (across > 1 && down > 3) found.push(`over each other: ${a.name} / ${b.name}`);
    }
  });
  return found;
}
