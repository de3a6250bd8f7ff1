"""The HTML report of a model: one file, no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #1f2933; margin: 2.5rem auto; max-width: 62rem; padding: 0 1.5rem }
h1 { font-size: 1.7rem; margin-bottom: .2rem } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem }
.promise { background: #eef4ff; border-left: 4px solid #2563eb; padding: .8rem 1.1rem; border-radius: 4px }
.warning { background: #fff7e6; border-left: 4px solid #d97706; padding: .8rem 1.1rem; border-radius: 4px }
.row { display: flex; flex-wrap: wrap; gap: 1.2rem } svg { max-width: 100%; height: auto }
table { border-collapse: collapse; font-size: .92rem } td, th { padding: .25rem .9rem .25rem 0; text-align: left }
th { border-bottom: 1px solid #cbd2d9 } td.number { text-align: right; font-variant-numeric: tabular-nums }
pre { background: #f5f7fa; padding: .8rem 1rem; overflow-x: auto; font-size: .85rem }
p.small { color: #616e7c; font-size: .9rem }
"""


@dataclass(frozen=True)
class Section:
    """A titled part of the page: text, then pictures side by side, then preformatted text."""

    title: str
    text: str = ""
    pictures: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()
    listing: str = ""
    public: bool = True


def page(title: str, subtitle: str, promise: str, sections: Sequence[Section]) -> str:
    """A whole HTML document; sections that are not public are marked so."""
    body = [f"<h1>{escape(title)}</h1>", f"<p class='small'>{escape(subtitle)}</p>"]
    body.append(f"<p class='promise'>{escape(promise)}.</p>")
    body.extend(_section(section) for section in sections)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<meta name='viewport' content='width=device-width'><title>{escape(title)}</title>"
        f"<style>{_STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>"
    )


def _section(section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>"]
    if not section.public:
        parts.append(
            "<p class='warning'>Computed from the data without noise: not covered by the guarantee. Shown because this "
            "data is public; do not publish such numbers about private data.</p>"
        )
    if section.text:
        parts.append(f"<p>{escape(section.text)}</p>")
    if section.pictures:
        parts.append("<div class='row'>" + "".join(f"<div>{picture}</div>" for picture in section.pictures) + "</div>")
    if section.table:
        head, *rows = section.table
        parts.append("<table><tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>")
        parts.extend("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        parts.append("</table>")
    if section.listing:
        parts.append(f"<pre>{escape(section.listing)}</pre>")
    return "".join(parts)
