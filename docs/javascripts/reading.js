// For keyboards and screen readers: a name for the search, and a stop of the tab key at whatever scrolls by itself.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  const reach = () => {
    for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .dataframe")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  reach();
  addEventListener("load", reach);
  addEventListener("resize", reach);
});
