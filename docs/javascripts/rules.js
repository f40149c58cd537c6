// The index of rules: shows only rows of a severity, of what is judged, of how they are fixed, and with all words of a text.
// Without a script the page is a plain table.
document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("rule-filter");
  if (!place) return;
  const rows = [...document.querySelectorAll("article table tbody tr")].map((row) => ({
    row,
    severity: row.cells[2].textContent.trim(),
    judges: row.cells[3].textContent.trim(),
    fix: row.cells[4].textContent.trim(),
    text: row.textContent.toLowerCase(),
  }));
  const choice = (label, values) => {
    const select = document.createElement("select");
    select.add(new Option("all", ""));
    for (const value of values) select.add(new Option(value, value));
    return field(label, select);
  };
  const field = (label, input) => {
    const box = document.createElement("label");
    box.append(label, input);
    place.append(box);
    return input;
  };
  const words = field("Words", document.createElement("input"));
  words.type = "search";
  words.placeholder = "for example: mask shifted";
  const severity = choice("Severity", ["error", "warning", "advice"]);
  const judges = choice("Judges", [...new Set(rows.map((entry) => entry.judges))].sort());
  const fix = choice("Fix", ["--fix", "by hand"]);
  const count = document.createElement("p");
  count.setAttribute("role", "status");
  place.append(count);

  const show = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const entry of rows) {
      const fits =
        (!severity.value || entry.severity === severity.value) &&
        (!judges.value || entry.judges === judges.value) &&
        (!fix.value || entry.fix === fix.value) &&
        wanted.every((word) => entry.text.includes(word));
      entry.row.hidden = !fits;
      shown += fits;
    }
    for (const table of document.querySelectorAll("article table")) {
      const empty = ![...table.tBodies[0].rows].some((row) => !row.hidden);
      const box = table.closest(".md-typeset__scrollwrap") || table;
      box.hidden = empty;
      let heading = box.previousElementSibling;
      if (heading && /^H\d$/.test(heading.tagName)) heading.hidden = empty;
    }
    count.textContent = `${shown} of ${rows.length} rules`;
    const query = new URLSearchParams();
    for (const [name, input] of Object.entries({ words, severity, judges, fix })) if (input.value) query.set(name, input.value);
    history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : "") + location.hash);
  };
  const query = new URLSearchParams(location.search);
  for (const [name, input] of Object.entries({ words, severity, judges, fix })) input.value = query.get(name) || "";
  for (const input of [words, severity, judges, fix]) input.addEventListener("input", show);
  show();
});
