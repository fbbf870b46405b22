"""Reads an experiment's folder: experiment.json, which states configuration, data, variants, points, seeds and checks."""
import json
import pathlib
import re
import string

from run_values import Fault

ITEMS = pathlib.Path(__file__).resolve().parent
FILE = "experiment.json"
QUICK_TEXT = "quick-text"
DEFAULT_SECONDS = 20
RESERVED = {"data", "logs", "runs", "smoke"}  # folders that experiments/run creates next to those of items
KEYS = {"paper": str, "claim": str, "configs": list, "data": (str, dict), "keys": dict, "variants": dict, "points": dict, "seeds": int,
        "seconds": (int, float, dict), "checks": list, "expected": str, "measures": dict, "program": (str, list)}
TRAINING_KEYS = ("configs", "data", "variants", "keys", "points", "seeds", "measures")  # not allowed in an item with a program
DATA_KEYS = {"commands", "train", "validation", "documents", "smoke_documents"}
# A check has one of these keys, whose value names a variant, and the key that belongs to it.
CHECKS = {"lower": "than", "higher": "than", "no_gain": "over", "alike": "to", "at_least": "value", "at_most": "value"}
CHECK_KEYS = {"metric", "step", "last", "point", "factor", "margin", "of_seeds"}
WORDS_OF_A_MEASURE = {"shiftron", "run", "step", "data", "item", "python"}
WORDS_OF_A_PROGRAM = {"shiftron", "item", "python", "picture"}


class Definition:
    """An experiment's definition, named after its folder. Raises Fault that names the file, the value and the fix."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.name, self.path = self.folder.name, self.folder / FILE
        try:
            self.raw = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise Fault(f"{folder} is not an experiment: it has no {FILE}", "experiments/run --list") from None
        except ValueError as error:
            self.refuse(f"is not JSON: {error}")
        if not isinstance(self.raw, dict):
            self.refuse("is not a JSON object")
        for key, value in self.raw.items():
            if key not in KEYS:
                self.refuse(f"has the unknown key {key}; it may have {', '.join(KEYS)}")
            if not isinstance(value, KEYS[key]) or isinstance(value, bool):
                self.refuse(f"has a value of the wrong type for {key}")
        self.program = self.raw.get("program")
        for key in ("claim", "checks") if self.program else ("claim", "configs", "data", "variants", "checks"):
            if not self.raw.get(key):
                self.refuse(f"lacks {key}")
        self.claim, self.paper, self.expected = self.raw["claim"], self.raw.get("paper", ""), self.raw.get("expected", "")
        if self.program:
            self._read_program()
        else:
            self._read_training()

    def refuse(self, what):
        raise Fault(f"{self.path} {what}", "experiments/README.md describes the format")

    def _read_program(self):
        for key in TRAINING_KEYS:
            if key in self.raw:
                self.refuse(f"has both program and {key}, which only trained runs have")
        if isinstance(self.raw.get("seconds"), dict):
            self.refuse("has seconds per variant or point, but a program has neither")
        self._check_words("program", self.program, WORDS_OF_A_PROGRAM)
        self.checks = self.raw["checks"]
        for check in self.checks:
            kinds = [kind for kind in ("at_least", "at_most") if isinstance(check, dict) and isinstance(check.get(kind), str)]
            if len(kinds) != 1 or set(check) != {kinds[0], "value"}:
                self.refuse(f"has the check {check}; for a program's values it needs at_least or at_most, and value")
            self._check_number(check, "value")

    def _check_number(self, check, key):
        if isinstance(check[key], bool) or not isinstance(check[key], (int, float)):
            self.refuse(f"has the check {check}, whose {key} is not a number")

    def _check_words(self, name, command, known):
        """Checks a command and its {words} that are filled in."""
        words = command if isinstance(command, list) else [command]
        if not command or not all(isinstance(word, str) for word in words):
            self.refuse(f"has the command {name} of {command}, which must be a string or a list of strings")
        try:
            found = {field for word in words for _, field, _, _ in string.Formatter().parse(word) if field is not None}
        except ValueError as error:
            self.refuse(f"has the command {name} of {command}: {error}; write a literal brace as {{{{ or }}}}")
        if found - known:
            self.refuse(f"has {{{sorted(found - known)[0]}}} in the command {name}; it may have {', '.join(f'{{{word}}}' for word in sorted(known))}")

    def _read_training(self):
        self.configs = [self.folder / path for path in self.raw["configs"]]
        self.variants, self.points = self.raw["variants"], self.raw.get("points", {"": {}})
        self.seeds, self.data = self.raw.get("seeds", 3), self.raw["data"]
        if self.seeds < 1:
            self.refuse(f"has {self.seeds} seeds; at least 1 is needed")
        for path in self.configs:
            if not path.is_file():
                self.refuse(f"names the configuration {path}, which does not exist")
        for group in (self.variants, self.points):
            for name, keys in group.items():
                if not isinstance(keys, dict) or not re.fullmatch(r"[\w .=+-]*", name) or name in (".", ".."):
                    self.refuse(f"has '{name}'; a name has letters, digits, blanks and . = + - _, and its value is an object of keys")
        stated = self.raw.get("seconds", {})
        for name, value in stated.items() if isinstance(stated, dict) else ():
            if name not in self.variants and name not in self.points or isinstance(value, bool) or not isinstance(value, (int, float)):
                self.refuse(f"has the seconds {value} of {name}; seconds must be a number for a variant or a point")
        self._check_data()
        self.measures = self.raw.get("measures", {})
        for name, command in self.measures.items():
            if not re.fullmatch(r"[\w-]+", name):
                self.refuse(f"has the measure '{name}'; a name has letters, digits, - and _")
            self._check_words(name, command, WORDS_OF_A_MEASURE)
        self.checks = [one for check in self.raw["checks"] for one in self._checks(check)]

    def is_measured(self, metric):
        """Whether a metric is the value of a measure."""
        return metric.partition(".")[0] in self.measures

    def _check_data(self):
        if isinstance(self.data, str):
            if self.data != QUICK_TEXT:
                self.refuse(f"has the data '{self.data}'; it must be {QUICK_TEXT}, or an object with commands, train and validation")
            return
        if set(self.data) - DATA_KEYS:
            self.refuse(f"has the unknown key data.{sorted(set(self.data) - DATA_KEYS)[0]}; data may have {', '.join(sorted(DATA_KEYS))}")
        for key in ("commands", "train", "validation"):
            if key not in self.data:
                self.refuse(f"lacks data.{key}")
        sources = self.data["validation"]
        if not isinstance(sources, str) and not (isinstance(sources, list) and sources and all(isinstance(one, str) for one in sources)):
            self.refuse(f"has the data.validation {sources}; it must be a folder or a list of folders")

    def _checks(self, check):
        """The check itself, or one for each point if it names none."""
        kinds = [kind for kind in CHECKS if isinstance(check, dict) and kind in check]
        if len(kinds) != 1:
            self.refuse(f"has the check {check}, which needs one of {', '.join(CHECKS)}")
        kind = kinds[0]
        if CHECKS[kind] not in check or set(check) - CHECK_KEYS - {kind, CHECKS[kind]}:
            self.refuse(f"has the check {check}: {kind} needs {CHECKS[kind]}, and may have {', '.join(sorted(CHECK_KEYS))}")
        for name in self.variants_of(check):
            if name not in self.variants:
                self.refuse(f"has a check of the unknown variant {name}; variants: {', '.join(self.variants)}")
        if "last" in check and not (isinstance(check["last"], int) and check["last"] > 0):
            self.refuse(f"has the check {check}: last must be a number of rows, at least 1")
        if self.is_measured(check.get("metric", "")) and {"step", "last"} & set(check):
            self.refuse(f"has the check {check}: a measure is taken once, after the run, and has neither step nor last")
        if kind in ("no_gain", "alike") and not check.get("margin", 0) > 0:
            self.refuse(f"has the check {check}: {kind} needs a margin above 0")
        if check.get("point", next(iter(self.points))) not in self.points:
            self.refuse(f"has a check at the unknown point {check['point']}; points: {', '.join(self.points)}")
        return [{**check, "point": point} for point in ([check["point"]] if "point" in check else self.points)]

    @staticmethod
    def variants_of(check):
        kind = next(kind for kind in CHECKS if kind in check)
        return [check[kind]] + ([check[CHECKS[kind]]] if CHECKS[kind] != "value" else [])

    def seconds(self, variant="", point=""):
        """Expected seconds of a run, or of the program, on one core."""
        stated = self.raw.get("seconds", DEFAULT_SECONDS)
        return float(stated.get(variant, stated.get(point, DEFAULT_SECONDS)) if isinstance(stated, dict) else stated)

    def options(self, variant, point):
        """Arguments of shiftron train."""
        keys = {**self.raw.get("keys", {}), **self.points[point], **self.variants[variant]}
        return [word for key, value in keys.items() for word in (f"--{key}", str(value).lower() if isinstance(value, bool) else str(value))]


def find(names):
    """The definitions of items, given by name, "all", or paths of folders."""
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
            raise Fault(f"no experiment or folder is called {name}; experiments: {', '.join(path.name for path in own)}", "experiments/run --list")
    definitions = list({path.resolve(): Definition(path) for path in folders}.values())
    seen = {}
    for one in definitions:
        if one.name in RESERVED:
            raise Fault(f"an experiment cannot be called {one.name}: its results have a folder of that name", f"rename {one.folder}")
        if one.name in seen:
            raise Fault(f"{one.folder} and {seen[one.name]} have the same name", "rename one of the folders")
        seen[one.name] = one.folder
    return definitions
