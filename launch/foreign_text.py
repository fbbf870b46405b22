"""Prints foreign text safely: paths, fields of files, the output of other programs."""
import os
import re

# Control characters except tab and line feed, overrides of the writing direction, and invalid Unicode.
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(character):
    """The character's bytes as \\xNN."""
    if "\udc80" <= character <= "\udcff":  # a byte that is not UTF-8, as Python represents it
        return f"\\x{ord(character) - 0xdc00:02X}"
    return "".join(f"\\x{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def printable(text):
    """Escapes everything that controls a terminal. Tabs and line feeds stay."""
    return STEERING.sub(lambda found: escaped(found[0]), str(text))


def say(text, stream=1):
    """Prints to stdout or stderr; ignores a closed pipe."""
    data = f"{printable(text)}\n".encode(errors="replace")
    try:
        while data:
            data = data[os.write(stream, data):]
    except OSError:
        pass
