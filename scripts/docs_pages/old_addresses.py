"""Addresses of pages that were merged into others: each leads a browser to the place where its text is now."""

from html import escape

#: Address of a page before -> its address now, both from the site's root.
MOVED = {
    "canary/": "prove/#training",
    "clusters/": "launch/#clusters",
    "guard/": "trace/#the-guard",
    "masks/": "prove/#masks",
    "nemo-run/": "launch/#nemo-run",
    "quickstart/": "#try-it",
    "served/": "prove/#served",
}


def leading_pages() -> dict[str, str]:
    """Return file name below the site -> page that leads a browser on."""
    return {f"{old}index.html": _page(f"../{new}") for old, new in MOVED.items()}


def _page(target: str) -> str:
    link = escape(target, quote=True)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>This page has moved</title>'
        f'<meta name="robots" content="noindex"><meta http-equiv="refresh" content="0; url={link}"></head>'
        f'<body><p>This page has moved <a href="{link}">here</a>.</p></body></html>\n'
    )
