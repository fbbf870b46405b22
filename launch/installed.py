"""Where a command of launch/ finds the program, and what it is called: launch/NAME in the source tree, shiftron-NAME once installed."""
import os
import pathlib
import re
import shutil

ROOT = pathlib.Path(__file__).resolve().parent.parent  # the source tree, or PREFIX/share/shiftron
IS_INSTALLED = not (ROOT / "CMakeLists.txt").exists()
BUILT = "build/release/shiftron"


def named(text):
    """The text, with the names that the commands of this copy have."""
    def name(found):
        return f"shiftron-{found[1]}" if (ROOT / "launch" / found[1]).is_file() else found[0]

    return re.sub(r"\blaunch/([a-z-]+)(?![\w.-])", name, text) if IS_INSTALLED else text


def program(fail):
    """The path of the program: $SHIFTRON, otherwise the installed one or that of the build. Without one calls fail(what, next command)."""
    given = os.environ.get("SHIFTRON")
    default = ROOT.parent.parent / "bin" / "shiftron" if IS_INSTALLED else ROOT / BUILT
    if path := shutil.which(given or default):
        return path
    if given:
        return fail(f"no program at {given}", "export SHIFTRON=…/shiftron")
    if IS_INSTALLED:
        return fail(f"no program at {default}", "cmake --install BUILD --prefix PREFIX, or export SHIFTRON=…/shiftron")
    return fail(f"no program at {BUILT}", "cmake --preset release && cmake --build --preset release")
