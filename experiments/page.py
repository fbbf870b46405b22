"""One HTML page of all claims, without scripts. It needs no other file."""
import base64
import html
import pathlib

COLOURS = {"holds": "#007a55", "fails": "#b33", "too small": "#946200", "not judged": "#555"}
HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Claims of KV shifting attention</title>
<style>body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}table{border-collapse:collapse;width:100%}
td,th{border-bottom:1px solid #ccc;text-align:left;padding:.3em .6em;vertical-align:top}b.v{white-space:nowrap}img{max-width:100%}</style>
"""


def verdict(text):
    return f'<b class="v" style="color:{COLOURS[text]}">{text}</b>'


def page(results, about):
    """`results`: contents of result.json files, with `picture` as a path or None. `about`: a line on machine, date and version."""
    rows = "".join(f'<tr><td><a href="#{html.escape(one["item"])}">{html.escape(one["item"])}</a></td><td>{html.escape(one["claim"])}</td>'
                   f'<td>{verdict(one["verdict"])}</td></tr>' for one in results)
    parts = [HEAD, "<h1>Claims of KV shifting attention</h1>", f"<p>{html.escape(about)}</p>",
             "<p>holds: the 90 % t-interval of paired differences lies on the claim's side. fails: it lies on the other side. "
             "too small: it contains both, or too few runs are finished. Checks of single seeds state how many they need.</p>",
             f"<table><tr><th>item</th><th>claim</th><th>verdict</th></tr>{rows}</table>"]
    for one in results:
        parts.append(f'<h2 id="{html.escape(one["item"])}">{html.escape(one["item"])}: {verdict(one["verdict"])}</h2>'
                     f'<p>{html.escape(". ".join(filter(None, (one["paper"], one["claim"]))))}</p><p>Expected: {html.escape(one["expected"])}</p><ul>'
                     + "".join(f"<li>{html.escape(check['text'])}: {verdict(check['verdict'])}</li>" for check in one["checks"]) + "</ul>"
                     + "".join(f"<p>{html.escape(note)}</p>" for note in one["notes"]))
        if one["picture"]:
            data = base64.b64encode(pathlib.Path(one["picture"]).read_bytes()).decode()
            parts.append(f'<img alt="{html.escape(one["item"])}" src="data:image/svg+xml;base64,{data}">')
    return "\n".join(parts) + "\n</html>\n"
