"""Which mutations a node of clang's syntax tree allows: the rules, each with a name."""
import dataclasses
import hashlib
import re

from bindings import CursorKind, TypeKind

INTEGERS = {TypeKind.SHORT, TypeKind.USHORT, TypeKind.INT, TypeKind.UINT, TypeKind.LONG, TypeKind.ULONG, TypeKind.LONGLONG, TypeKind.ULONGLONG}
FLOATS = {TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.LONGDOUBLE}
UNKNOWN = {TypeKind.DEPENDENT, TypeKind.UNEXPOSED, TypeKind.INVALID}  # depends on template arguments
NEXT = {"+": "-", "-": "+", "+=": "-=", "-=": "+=", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
ARITHMETIC = {"+", "-", "*", "/", "%"}
COMPARISONS = {"<", "<=", ">", ">=", "==", "!=", "&&", "||"}
WAITS = re.compile(r"((a?wait|record|pin|synchroni[sz]e|barrier|arrive|notify|wake|flush|f?sync|lock|unlock|join)(_.*)?"
                   r"|__(sync(threads|warp)|threadfence|pipeline_)\w*|cp_async_\w+|cuda\w*(Synchronize|Wait|Record)\w*)$")
LIBRARY = re.compile(r"(cuda|cublas|cudnn|nccl)[A-Z]\w*$")  # its calls return a status, whose value 0 means success
SUMS = re.compile(r"((all_)?reduce|sum|add|accumulate|(all_)?gather)(_.*)?$")
CHECKS = re.compile(r"(check|require|refuse|expect|verify|throw|fault|fail|rethrow|validate|ensure)(_.*)?$")
REFUSALS = re.compile(r"\{?\s*(throw\b|(\w+::|\w+\.|\w+->)*(throw|refuse|fault|fail|rethrow)\w*\s*\()")
CALLED = re.compile(r"(\w+)\s*(<[^()]*>)?\s*\(")
MACRO_CALL = re.compile(rb"\b[A-Z][A-Z0-9_]{2,}\s*\(")
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'', re.S)
RULES = ("sign", "factor", "index", "compare", "bound", "swap", "bypass", "sum", "wait", "check", "condition", "operand", "call", "constant",
         "return")


@dataclasses.dataclass
class Site:
    """One mutation. `form` says how it is written: `value` (another expression), `true` and `false` (of a condition), `drop` (a statement),
    `default` (of a return)."""
    path: str
    line: int
    column: int
    rule: str
    function: str
    begin: int  # in bytes
    end: int
    form: str
    alternative: str  # of form `value`
    original: str
    constexpr: bool

    @property
    def name(self):
        return f"{self.path}:{self.line}:{self.column} {self.rule}"


def one_line(text):
    """C++ without comments and line ends; None if it has lines of the preprocessor."""
    if re.search(r"^\s*#", text, re.M):
        return None
    return " ".join(COMMENT_OR_TEXT.sub(lambda match: " " if match.group().startswith("/") else match.group(), text).split())


def is_balanced(text):
    text = COMMENT_OR_TEXT.sub("", text)
    depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return False
    return depth == 0


def macro_calls(text):
    """(begin, end) of each call of a macro, whose inside clang gives no positions."""
    ranges = []
    for match in MACRO_CALL.finditer(text):
        depth, at = 1, match.end()
        while depth and at < len(text):
            depth += (text[at] == 0x28) - (text[at] == 0x29)
            at += 1
        ranges.append((match.start(), at))
    return ranges


class Source:
    """A file's text and where its nodes are in it."""

    def __init__(self, path, data):
        self.path, self.data = path, data
        self.macros = macro_calls(data)
        self.starts = [0] + [match.end() for match in re.finditer(b"\n", data)]

    def text(self, begin, end):
        return self.data[begin:end].decode(errors="replace")

    def range(self, node):
        """(begin, end) of a node; None if it is in another file, inside a macro or not a whole expression."""
        extent = node.extent
        begin, end = extent.start, extent.end
        if begin.file is None or end.file is None or begin.file.name != end.file.name or end.offset <= begin.offset:
            return None
        begin, end = begin.offset, end.offset
        if any(first <= begin and end <= last for first, last in self.macros):
            return None
        return (begin, end) if is_balanced(self.text(begin, end)) else None

    def place(self, offset):
        low, high = 0, len(self.starts)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.starts[middle] <= offset else (low, middle)
        return low + 1, offset - self.starts[low] + 1


def kind_of(node):
    return node.type.get_canonical().kind


def type_name(node):
    """Without const and references."""
    return node.type.get_canonical().spelling.replace("const ", "").rstrip("& ")


def bare(node):
    """The node without implicit conversions around it."""
    while node.kind == CursorKind.UNEXPOSED_EXPR:
        children = list(node.get_children())
        if len(children) != 1 or children[0].extent != node.extent:
            break
        node = children[0]
    return node


def returns_status(node):
    """Whether it calls a library of CUDA whose result says what failed."""
    return node.kind == CursorKind.CALL_EXPR and LIBRARY.match(node.spelling or "") is not None and kind_of(node) == TypeKind.ENUM


class Rules:
    """Collects the sites of one file."""

    def __init__(self, source):
        self.source, self.sites, self.taken, self.literals = source, [], set(), set()
        self.function, self.constexpr = "", False

    def add(self, rule, where, form, alternative="", at=None):
        begin, end = where
        line, column = self.source.place(begin if at is None else at)
        if (line, column, rule) in self.taken or alternative is None:
            return
        self.taken.add((line, column, rule))
        original = one_line(self.source.text(begin, end))
        if original is not None or form != "value":
            self.sites.append(Site(self.source.path, line, column, rule, self.function, begin, end, form, alternative, (original or "")[:200],
                                   self.constexpr))

    def choice(self, rule, offset):
        """One bit, the same at each run over the same text."""
        line, column = self.source.place(offset)
        line_text = self.source.data[self.source.starts[line - 1]:offset]
        return hashlib.sha256(b"%s %s %s %d" % (self.source.path.encode(), rule.encode(), line_text, column)).digest()[0] & 1

    def line_of(self, where):
        return one_line(self.source.text(*where))

    def operator(self, left, right):
        """(operator, its offset) between two operands."""
        text = self.source.data[left[1]:right[0]]
        blank = re.sub(rb"//[^\n]*|/\*.*?\*/", lambda match: b" " * len(match.group()), text, flags=re.S)
        match = re.fullmatch(rb"[\s)]*?([-+*/%<>=!&|]+)[\s(]*", blank)
        return (match.group(1).decode(), left[1] + match.start(1)) if match else (None, None)

    def step(self, node, rule):
        """An integer, one more or less."""
        where = self.source.range(node)
        if where is None or kind_of(node) not in INTEGERS or self.source.text(*where).startswith("."):
            return
        text = self.line_of(where)
        if bare(node).kind == CursorKind.INTEGER_LITERAL:
            self.literals.add(where)
            up = text in ("0", "0u", "0L", "0UL", "0U") or self.choice(rule, where[0])
        else:
            up = self.choice(rule, where[0])
        self.add(rule, where, "value", text and f"({text}) {'+' if up else '-'} 1")

    def binary(self, node, children):
        where = self.source.range(node)
        left, right = self.source.range(children[0]), self.source.range(children[1])
        if not (where and left and right):
            return
        sign, at = self.operator(left, right)
        a, b = self.line_of(left), self.line_of(right)
        if sign is None or a is None or b is None:
            return
        kind = kind_of(node)
        head, tail = self.source.text(where[0], at), self.source.text(at + len(sign), where[1])
        swapped = one_line(head + NEXT.get(sign, sign) + tail)
        if sign in COMPARISONS:
            ordered = sign in ("==", "!=", "&&", "||") or kind_of(children[0]) in INTEGERS | FLOATS | UNKNOWN
            if ordered:
                self.add("compare", where, "value", swapped, at)
            if sign in ("&&", "||"):
                for operand in (left, right):
                    self.add("operand", operand, "true" if sign == "&&" else "false")
        elif kind == TypeKind.POINTER and sign in ("+", "-"):
            for child in children[:2]:
                self.step(child, "index")
        elif kind in INTEGERS | FLOATS | UNKNOWN:
            if sign in ("+", "-", "+=", "-="):
                self.add("sign", where, "value", swapped, at)
            elif sign in ("*", "/", "%"):
                second = sign == "*" and self.choice("factor", at) and kind in INTEGERS | FLOATS
                self.add("factor", where, "value", b if second else a, at)
            elif sign in ("*=", "/=", "%="):
                self.add("factor", where, "value", a, at)

    def unary(self, node, children):
        where = self.source.range(node)
        inner = children and self.source.range(children[0])
        if not where or not inner:
            return
        sign = self.source.text(where[0], inner[0]).strip()
        if sign == "-" and kind_of(node) in INTEGERS | FLOATS | UNKNOWN:
            self.add("sign", where, "value", self.line_of(inner))
        elif sign == "!":
            self.add("compare", where, "value", f"static_cast<bool>({self.line_of(inner)})" if self.line_of(inner) else None)

    def call(self, node):
        """Arguments and operators."""
        where = self.source.range(node)
        if where is None:
            return
        name = node.spelling or ""
        arguments = [argument for argument in node.get_arguments() if argument is not None]
        ranges = [self.source.range(argument) for argument in arguments]
        if name.startswith("operator"):
            if name == "operator[]" and len(arguments) == 2:
                self.step(arguments[1], "index")
            elif len(arguments) == 2:
                self.binary(node, arguments)
            return
        if returns_status(node):
            self.add("wait" if WAITS.match(name) else "call", where, "value", f"{node.type.spelling}{{}}")
        called = node.referenced
        parameters = list(called.type.argument_types()) if called is not None and called.type.kind == TypeKind.FUNCTIONPROTO else []
        for i, (argument, its) in enumerate(zip(arguments, ranges)):
            written = i < len(parameters) and parameters[i].kind == TypeKind.LVALUEREFERENCE and not parameters[i].get_pointee().is_const_qualified()
            if its and where[0] <= its[0] and its[1] <= where[1] and not written:
                self.step(argument, "index")
        if len(arguments) == 2 and name in ("min", "max") and all(ranges):
            self.add("bound", where, "value", self.line_of(ranges[self.choice("bound", where[0])]))
        if called is not None and called.kind == CursorKind.CONSTRUCTOR:  # the text may begin with a variable's name
            return
        types = [type_name(argument) for argument in arguments]
        if its := next((its for its, kind in zip(ranges, types) if its and kind == type_name(node) and its[0] > where[0]), None):
            if name not in ("min", "max", "move", "forward", "exchange"):
                self.add("bypass", where, "value", self.line_of(its))
        for i in range(len(arguments) - 1):
            first, second = ranges[i], ranges[i + 1]
            if not first or not second or first[1] > second[0] or name in ("min", "max", "swap") or first[0] <= where[0]:
                continue
            a, b = self.source.text(*first), self.source.text(*second)
            if types[i] == types[i + 1] and a != b and "\n#" not in a + b and not re.fullmatch(r"[\d.'\"]+.*|\{.*", a):
                whole = self.source.text(where[0], first[0]) + b + self.source.text(first[1], second[0]) + a + self.source.text(second[1], where[1])
                self.add("swap", where, "value", one_line(whole), first[0])
                break

    def literal(self, node):
        where = self.source.range(node)
        if where is None or where in self.literals:
            return
        text = self.source.text(*where)
        before = self.source.data[:where[0]].rstrip()[-1:]
        if before in (b"[", b".") or not re.fullmatch(r"[\d.][\w.']*|true|false", text):
            return
        if node.kind == CursorKind.INTEGER_LITERAL:
            self.step(node, "constant")
        elif node.kind == CursorKind.FLOATING_LITERAL:
            self.add("constant", where, "value", f"({text} == 0 ? {text} + 1 : {text} * 2)")
        else:
            self.add("constant", where, "value", "true" if text == "false" else "false")

    def statement(self, node):
        """A statement whose value is unused is dropped."""
        where = self.source.range(node)
        if where is None or not re.match(rb"\s*;", self.source.data[where[1]:where[1] + 200]):
            return
        inner = bare(node)
        text = self.source.text(*where)
        called = CALLED.search(COMMENT_OR_TEXT.sub("", text))
        name = inner.spelling if inner.kind == CursorKind.CALL_EXPR else ""
        if inner.kind == CursorKind.UNARY_OPERATOR:
            rule = "sum" if "++" in text or "--" in text else None
        elif inner.kind == CursorKind.COMPOUND_ASSIGNMENT_OPERATOR or name in ("operator+=", "operator-="):
            rule = "sum"
        elif inner.kind == CursorKind.BINARY_OPERATOR:
            rule = "call" if re.search(r"(?<![=!<>])=(?!=)", text) else None
        elif inner.kind == CursorKind.CALL_EXPR:
            name = name if re.fullmatch(r"\w+", name) else called.group(1) if called and not name else name
            rule = next((rule for rule, names in (("wait", WAITS), ("sum", SUMS), ("check", CHECKS)) if names.match(name)), "call")
        else:
            rule = "call" if inner.kind in (CursorKind.CXX_DELETE_EXPR, CursorKind.UNEXPOSED_EXPR) else None
        checked = next(inner.get_arguments(), None) if rule == "check" and inner.kind == CursorKind.CALL_EXPR else None
        its = checked is not None and returns_status(bare(checked)) and self.source.range(checked)
        if its and (call := self.line_of(its)):  # it remains, its status is ignored
            self.add(rule, where, "value", f"static_cast<void>({call})")
        elif rule:
            self.add(rule, where, "drop")

    def macro_statement(self, begin):
        """CHECK(…); as a statement."""
        for first, last in self.source.macros:
            if first == begin and self.source.data[first:first + 5] == b"CHECK" and self.source.data[last:last + 1] == b";":
                self.add("check", (first, last), "drop")

    def condition(self, node, then=None, whole=None):
        """The condition of an `if`, whose first branch is `then`, of a `while` or of `?:`."""
        where = self.source.range(node)
        if where is None:
            return
        refuses = then is not None and REFUSALS.match(self.source.text(*then))
        if not node.kind.is_expression():  # declares a variable
            if whole:
                self.add("check" if refuses else "condition", whole, "drop")
        elif refuses:
            self.add("check", where, "false")
        else:
            self.add("condition", where, "true" if then and self.choice("condition", where[0]) else "false")

    def leave(self, node, children):
        """`return`, `break` and `continue`."""
        where = self.source.range(node)
        if where is None or not re.match(rb"\s*;", self.source.data[where[1]:where[1] + 200]):
            return
        if not children:
            self.add("return", where, "drop")
            return
        value = self.source.range(children[0])
        text = value and self.line_of(value)
        if text is None:
            return
        kind = kind_of(children[0])
        if kind == TypeKind.BOOL:
            self.add("return", value, "value", f"!({text})")
        elif kind in INTEGERS and kind_of(bare(children[0])) in INTEGERS:
            self.step(children[0], "return")
        elif not text.startswith("{"):
            self.add("return", where, "default")
