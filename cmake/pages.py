"""Writes man pages and bash's completion from what the program and the commands of launch/ say about themselves. cmake/pages.cmake calls it.

    python3 cmake/pages.py PROGRAM FOLDER COMMAND…

Asks PROGRAM for `--help json` and `--version`. FOLDER gets man1/*.1 and completions/shiftron. COMMAND…: commands of launch/, whose page is their
--help, under the name that they have once installed.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

ESCAPES = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"})


def answer(*words):
    return subprocess.run(words, check=True, capture_output=True, encoding="utf-8").stdout


def escaped(words):
    """A line or lines of text, of which troff interprets nothing."""
    return re.sub(r"(?m)^\.", r"\\&.", words.translate(ESCAPES))


def sentence(words):
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")


def page(name, version, summary, *parts):
    """parts: (heading, lines of troff); those without lines are left out."""
    head = f'.TH {escaped(name.upper())} 1 "" "Shiftron {version}" "Shiftron"\n.SH NAME\n{escaped(name)} \\- {escaped(summary)}\n'
    return head + "".join(f".SH {heading}\n{body}\n" for heading, body in parts if body)


def entry(term, body):
    return f".TP\n.B {escaped(term)}\n{escaped(body)}"


def entry_of(option):
    """Of an option or a key."""
    notes = [f"default: {option['default']}"] * (option["default"] != "") + ["required"] * option["required"]
    choices = "" if "|" in option["argument"] or not option["choices"] else f": {', '.join(option['choices'])}"
    return entry(f"{option['name']} {option['argument']}".rstrip(), option["help"] + choices + (f" [{'; '.join(notes)}]" if notes else ""))


def references(names):
    return " ,\n".join(f".BR {escaped(name)} (1)" for name in names)


def page_name(command):
    return f"shiftron-{command['name'].replace(' ', '-')}"


def command_page(command, version):
    example = f".nf\n{escaped(command['example'])}\n.fi" if command["example"] else ""
    keys = "\nEvery key of the configuration is an option too, for example \\-\\-train.steps 100:\n.BR shiftron (1)\nlists them." * command["takes_keys"]
    return page(page_name(command), version, command["summary"],
                ("SYNOPSIS", f".nf\n{escaped(command['usage'])}\n.fi"),
                ("DESCRIPTION", escaped(sentence(command["summary"])) + keys),
                ("OPTIONS", "\n".join(map(entry_of, command["options"]))),
                ("EXAMPLES", example),
                ("SEE ALSO", references(["shiftron"])))


def main_page(table, version, scripts):
    options = [("--help", "lists the commands; after a command: its options"), ("--help all", "also prints every option and key"),
               ("--help json", "prints commands, options and keys as JSON"), ("--version", "prints version, commit and backends")]
    return page("shiftron", version, "trains language models with KV shifting attention",
                ("SYNOPSIS", ".nf\nshiftron COMMAND [options]\nshiftron COMMAND \\-\\-help\n.fi"),
                ("COMMANDS", "\n".join(entry(command["name"], command["summary"]) for command in table["commands"])),
                ("OPTIONS", "\n".join(entry(*option) for option in options)),
                ("KEYS", "Keys of a configuration. In a file, [train] and steps = 100; as an option, \\-\\-train.steps 100.\n" +
                 "\n".join(map(entry_of, table["keys"]))),
                ("EXIT STATUS", "0: done. 75: saved and stopped; the same command resumes. 76: the user can correct what the message names. "
                 "docs/running.md lists all."),
                ("ENVIRONMENT", entry("SHIFTRON", "the program that the commands below start, instead of the installed one")),
                ("SEE ALSO", references([*map(page_name, table["commands"]), *scripts]) + "\n.PP\nDocuments: share/doc/shiftron, next to the program's folder."))


def script_page(name, version, help_text):
    summary, _, rest = help_text.strip().partition("\n")
    return page(name, version, summary[:1].lower() + summary[1:].rstrip(".:"),
                ("DESCRIPTION", f".nf\n{escaped(rest.strip(chr(10)))}\n.fi"), ("SEE ALSO", references(["shiftron"])))


# Completion.
def cases(table):
    """Branches of a bash `case`, from {pattern: words}."""
    def quoted(pattern):
        return f"*{pattern[1:]!r}" if pattern.startswith("*") else repr(pattern)

    return "\n".join(f"    {quoted(pattern)}) words={' '.join(words)!r} ;;" for pattern, words in sorted(table.items()))


def completion(table):
    following, options, values = {"": ["help", "--help", "--version"]}, {}, {"* --help": ["all", "json"]}
    for command in table["commands"]:
        *before, last = command["name"].split()
        following.setdefault(" ".join(before), []).append(last)
        if before and before[0] not in following[""]:
            following[""].append(before[0])
        options[command["name"]] = [option["name"] for option in command["options"]] + ["KEYS"] * command["takes_keys"]
        values.update({f"{command['name']} {option['name']}": option["choices"] for option in command["options"] if option["choices"]})
    values.update({f"* --{key['name']}": key["choices"] for key in table["keys"] if key["choices"]})
    flags = sorted({option["name"] for command in table["commands"] for option in command["options"] if not option["argument"]})
    template = (pathlib.Path(__file__).parent / "completion.bash").read_text(encoding="utf-8")
    for name, text in {"FOLLOWING": cases(following), "OPTIONS": cases(options), "VALUES": cases(values), "FLAGS": "|".join(flags),
                       "KEYS": " ".join(f"--{key['name']}" for key in table["keys"])}.items():
        template = template.replace(f"@{name}@", text)
    return template


def main():
    program, folder, *scripts = sys.argv[1:]
    table = json.loads(answer(program, "--help", "json"))
    version = answer(program, "--version").split()[1]
    names = {f"shiftron-{pathlib.Path(script).name}": script for script in scripts}
    pages = {"shiftron": main_page(table, version, names)}
    pages.update((page_name(command), command_page(command, version)) for command in table["commands"])
    for name, script in names.items():
        pages[name] = script_page(name, version, re.sub(r"\blaunch/([a-z-]+)(?![\w.-])", lambda found: f"shiftron-{found[1]}" if
                                                        f"shiftron-{found[1]}" in names else found[0], answer(sys.executable, "-B", script, "--help")))
    shutil.rmtree(folder, ignore_errors=True)
    for path, text in {**{f"man1/{name}.1": text for name, text in pages.items()}, "completions/shiftron": completion(table)}.items():
        file = pathlib.Path(folder, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
