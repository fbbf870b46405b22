"""Reads an experiment's folder: experiment.json, which states configuration, data, variants, points, seeds and checks."""
import json
import pathlib
import re

from run_values import Fault

ITEMS = pathlib.Path(__file__).resolve().parent
FILE = "experiment.json"
QUICK_TEXT = "quick-text"
RESERVED = {"data", "logs", "runs", "smoke"}  # folders that experiments/run makes next to those of items
KEYS = {"paper": str, "claim": str, "configs": list, "data": (str, dict), "keys": dict, "variants": dict, "points": dict, "seeds": int,
        "seconds": (int, float, dict), "checks": list, "expected": str}
DATA_KEYS = {"commands", "train", "validation", "documents", "smoke_documents"}
# A check has one of these words, whose value names a variant, and the word that goes with it.
CHECKS = {"lower": "than", "higher": "than", "no_gain": "over", "alike": "to", "at_least": "value", "at_most": "value"}
CHECK_KEYS = {"metric", "step", "point", "factor", "margin", "of_seeds"}


class Definition:
    """`name`: of the folder. Raises Fault that names the file, the value and the fix."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.name, self.path = self.folder.name, self.folder / FILE
        try:
            self.raw = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise Fault(f"{folder} is no experiment: it has no {FILE}", "experiments/run --list") from None
        except ValueError as error:
            self.refuse(f"is no JSON: {error}")
        if not isinstance(self.raw, dict):
            self.refuse("is no JSON object")
        for key, value in self.raw.items():
            if key not in KEYS:
                self.refuse(f"has the unknown key {key}; it may have {', '.join(KEYS)}")
            if not isinstance(value, KEYS[key]) or isinstance(value, bool):
                self.refuse(f"has a value of {key} of another type than experiments/README.md states")
        for key in ("claim", "configs", "data", "variants", "checks"):
            if not self.raw.get(key):
                self.refuse(f"lacks {key}")
        self.claim, self.paper, self.expected = self.raw["claim"], self.raw.get("paper", ""), self.raw.get("expected", "")
        self.configs = [self.folder / path for path in self.raw["configs"]]
        self.variants, self.points = self.raw["variants"], self.raw.get("points", {"": {}})
        self.seeds, self.data = self.raw.get("seeds", 3), self.raw["data"]
        if self.seeds < 1:
            self.refuse(f"has {self.seeds} seeds; at least 1 is needed")
        for path in self.configs:
            if not path.is_file():
                self.refuse(f"names the configuration {path}, which is not there")
        for group in (self.variants, self.points):
            for name, keys in group.items():
                if not isinstance(keys, dict) or not re.fullmatch(r"[\w .=+-]*", name) or name in (".", ".."):
                    self.refuse(f"has '{name}', which must be letters, digits, blanks and any of . = + - _, with an object of keys")
        self._check_data()
        self.checks = [one for check in self.raw["checks"] for one in self._checks(check)]

    def refuse(self, what):
        raise Fault(f"{self.path} {what}", "experiments/README.md states the form")

    def _check_data(self):
        if isinstance(self.data, str):
            if self.data != QUICK_TEXT:
                self.refuse(f"has the data '{self.data}'; it may be {QUICK_TEXT}, or an object with commands, train and validation")
            return
        if set(self.data) - DATA_KEYS:
            self.refuse(f"has the unknown key data.{sorted(set(self.data) - DATA_KEYS)[0]}; data may have {', '.join(sorted(DATA_KEYS))}")
        for key in ("commands", "train", "validation"):
            if key not in self.data:
                self.refuse(f"lacks data.{key}")
        sources = self.data["validation"]
        if not isinstance(sources, str) and not (isinstance(sources, list) and sources and all(isinstance(one, str) for one in sources)):
            self.refuse(f"has the data.validation {sources}; it may be a folder or a list of folders")

    def _checks(self, check):
        """Itself, or one for each point where it names none."""
        kinds = [kind for kind in CHECKS if isinstance(check, dict) and kind in check]
        if len(kinds) != 1:
            self.refuse(f"has the check {check}, which needs one of {', '.join(CHECKS)}")
        kind = kinds[0]
        if CHECKS[kind] not in check or set(check) - CHECK_KEYS - {kind, CHECKS[kind]}:
            self.refuse(f"has the check {check}: {kind} goes with {CHECKS[kind]}, and with any of {', '.join(sorted(CHECK_KEYS))}")
        named = [check[kind]] + ([check[CHECKS[kind]]] if CHECKS[kind] != "value" else [])
        for name in named:
            if name not in self.variants:
                self.refuse(f"has a check of the variant {name}, which is none of {', '.join(self.variants)}")
        if kind in ("no_gain", "alike") and not check.get("margin", 0) > 0:
            self.refuse(f"has the check {check}: {kind} needs a margin above 0")
        if check.get("point", next(iter(self.points))) not in self.points:
            self.refuse(f"has a check at the point {check['point']}, which is none of {', '.join(self.points)}")
        return [{**check, "point": point} for point in ([check["point"]] if "point" in check else self.points)]

    def seconds(self, point):
        """That a run is expected to take on one core; only ratios matter."""
        stated = self.raw.get("seconds", 20)
        return float(stated.get(point, 20) if isinstance(stated, dict) else stated)

    def options(self, variant, point):
        """Words of shiftron train."""
        keys = {**self.raw.get("keys", {}), **self.points[point], **self.variants[variant]}
        return [word for key, value in keys.items() for word in (f"--{key}", str(value).lower() if isinstance(value, bool) else str(value))]


def find(names):
    """Definitions of items by name, "all", or paths of folders."""
    own = sorted(path.parent for path in ITEMS.glob(f"*/{FILE}"))
    folders = []
    for name in names:
        if name == "all":
            folders += own
        elif (ITEMS / name / FILE).is_file():
            folders.append(ITEMS / name)
        elif pathlib.Path(name).is_dir():
            folders.append(pathlib.Path(name))
        else:
            raise Fault(f"there is no experiment {name}, nor a folder of that name; there are {', '.join(path.name for path in own)}", "experiments/run --list")
    definitions = list({path.resolve(): Definition(path) for path in folders}.values())
    seen = {}
    for one in definitions:
        if one.name in RESERVED:
            raise Fault(f"an experiment cannot be called {one.name}: its results have a folder of that name", f"rename {one.folder}")
        if one.name in seen:
            raise Fault(f"{one.folder} and {seen[one.name]} have the same name", "rename one of the folders")
        seen[one.name] = one.folder
    return definitions
