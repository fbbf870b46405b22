#!/usr/bin/env python3
"""Programs written only from docs/generated-data.md give the documents that `data generate` gives, and the documents keep their rules."""
import json
import pathlib
import struct
import tempfile
import unittest

from harness import shiftron

WORD, LONG = 2**32 - 1, 2**64 - 1


class Draws:
    passed_over = 0

    def __init__(self, seed, stream, number):
        value = 0xCBF29CE484222325
        for byte in stream.encode():
            value = (value ^ byte) * 0x100000001B3 & LONG
        self.seed, self.stream = seed, value ^ number
        self.block, self.words = 0, []

    def next_block(self):
        a, b, c, d = self.block & WORD, self.block >> 32, self.stream & WORD, self.stream >> 32
        first, second = self.seed & WORD, self.seed >> 32
        for _ in range(10):
            p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
            a, b, c, d = (q >> 32) ^ b ^ first, q & WORD, (p >> 32) ^ d ^ second, p & WORD
            first, second = first + 0x9E3779B9 & WORD, second + 0xBB67AE85 & WORD
        self.block += 1
        self.words = [d, c, b, a]

    def below(self, m):
        while True:
            if not self.words:
                self.next_block()
            product = m * self.words.pop()
            if product & WORD >= 2**32 % m:
                return product >> 32
            Draws.passed_over += 1

    def shuffle(self, items, count):
        for i in range(count):
            j = i + self.below(len(items) - i)
            items[i], items[j] = items[j], items[i]

    def choose(self, n, k):
        items = list(range(n))
        self.shuffle(items, k)
        return items[:k]


def induction(seed, number, rule="printed", pool=512, symbols=0, length=512, targets="answers"):
    draws = Draws(seed, "data.generate.induction", number)
    symbols = symbols or pool
    drawn = draws.choose(symbols, pool) if symbols > pool else range(pool)
    row, places = [], {}
    while True:
        x = drawn[draws.below(pool)]
        if row and row[-1] == x:
            continue
        if x not in places:
            places[x] = len(row)
            row.append(x)
            continue
        j, r = places[x], len(row)
        row += [x, row[j + 1]]
        if len(row) <= length - 1:
            break
        row, places = [], {}
    while rule == "continued" and len(row) < length - 1:
        row.append(row[-(r - j)])
    ids = [1 + x for x in row]
    return ids, None if targets == "all" else [None] * r + ids[r + 1:] + [None]


def ngram(seed, number, symbols=64, pairs=200, targets="answers", tables={}):  # pylint: disable=dangerous-default-value
    if (seed, symbols, pairs) not in tables:
        draws = Draws(seed, "data.generate.ngram.table", 0)
        rows = draws.choose(symbols * symbols, pairs)
        tables[seed, symbols, pairs] = [(q // symbols, q % symbols, draws.below(symbols)) for q in rows]
    ids = [1 + x for x in tables[seed, symbols, pairs][Draws(seed, "data.generate.ngram", number).below(pairs)]]
    return ids, None if targets == "all" else [None, ids[2], None]


def hop(seed, number, alphabet=4, length=100, hops=16, least_hops=0):
    draws = Draws(seed, "data.generate.hop", number)
    count = least_hops + draws.below(hops - least_hops + 1)
    row = []
    while len(row) < length - 2:
        x = draws.below(alphabet)
        if not row or row[-1] != x:
            row.append(x)

    def label(place):
        for _ in range(count):
            earlier = [i for i in range(place) if row[i] == row[place]]
            if not earlier:
                return 1
            place = earlier[-1] + 1
        return 2 + row[place]
    return [2 + alphabet + count] + [2 + x for x in row], [None] + [label(place) for place in range(len(row))]


def math(seed, number, modulus=5, names=12, operations=4, least_operations=2, multiplication="false", targets="answers"):
    draws = Draws(seed, "data.generate.math", number)
    count = least_operations + draws.below(operations - least_operations + 1)
    chosen = draws.choose(names, count)
    name, value_id = (lambda a: 8 + a), (lambda v: 8 + names + v)
    values, written, lines, uses = {}, {}, {}, {}
    for i in range(count):
        k = min(i, (0, 1, 1, 2, 2, 2)[draws.below(6)])
        used = [chosen[j] for j in draws.choose(i, k)]
        operands = [(name(a), values[a]) for a in used]
        if k < 2:
            v = draws.below(modulus)
            operands.append((value_id(v), v))
        me = chosen[i]
        uses[me] = set(used)
        if k == 0:
            values[me] = operands[0][1]
            written[me] = lines[me] = [name(me), 4, operands[0][0], 5]
            continue
        if draws.below(2) == 1:
            operands.reverse()
        sign = 1 + draws.below(3 if multiplication == "true" else 2)
        (left, x), (right, y) = operands
        values[me] = {1: x + y, 2: x - y, 3: x * y}[sign] % modulus
        written[me] = [name(me), 4, left, sign, right, 5]
        lines[me] = [name(me), 4, value_id(x), sign, value_id(y), 4, value_id(values[me]), 5]
    order = list(range(count))
    draws.shuffle(order, count)
    asked = chosen[count // 2 + draws.below(count - count // 2)]
    ids = [token for i in order for token in written[chosen[i]]] + [6, name(asked), 7]
    needed, before = {asked}, set()
    while needed != before:
        before, needed = needed, needed.union(*(uses[a] for a in needed))
    problem, done = len(ids), set()
    while done != needed:
        a = next(chosen[i] for i in order if chosen[i] in needed - done and uses[chosen[i]] <= done)
        ids += lines[a]
        done.add(a)
    return ids, None if targets == "all" else [None] * (problem - 1) + ids[problem:] + [0]


KINDS = {"induction": induction, "ngram": ngram, "hop": hop, "math": math}
# Kind, documents, seed, options.
CASES = [
    (induction, 2499, 1, {"pool": 64}),
    (induction, 200, 2**63 - 1, {}),
    (induction, 40, 3, {"pool": 40, "symbols": 7989}),
    (induction, 1, 1, {"pool": 20000, "symbols": 1000000, "length": 2000}),  # with words that below() passes over
    (induction, 300, 4, {"pool": 3, "symbols": 5, "length": 6}),
    (induction, 1500, 0, {"pool": 64, "length": 16, "rule": "continued"}),
    (induction, 100, 5, {"pool": 256, "length": 64, "rule": "continued", "targets": "all"}),
    (ngram, 1500, 6, {}),
    (ngram, 300, 7, {"symbols": 3, "pairs": 9, "targets": "all"}),
    (hop, 40, 8, {}),
    (hop, 460, 9, {"length": 24, "hops": 4}),
    (hop, 200, 10, {"length": 20, "hops": 3, "least-hops": 2, "alphabet": 7}),
    (math, 1860, 11, {}),
    (math, 600, 12, {"modulus": 11, "names": 16, "operations": 7, "least-operations": 1, "multiplication": "true"}),
    (math, 400, 13, {"operations": 5, "least-operations": 5, "targets": "all"}),
]


def generated(kind, count, seed, options, *words):
    given = [word for name, value in options.items() for word in (f"--{name}", value)]
    done = shiftron("data", "generate", kind, "--documents", count, "--seed", seed, *given, *words)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def documents(*case):
    for line in generated(*case, "--jsonl").splitlines():
        document = json.loads(line)
        yield document["ids"], document.get("targets")


def rows_of(directory):
    """(tokens, targets or None) of a dataset; None in place of a target that does not count."""
    description = json.loads((directory / "dataset.json").read_text())
    tokens, targets = [], []
    for shard in description["shards"]:
        content = (directory / shard["file"]).read_bytes()
        tokens += struct.unpack_from(f"<{shard['tokens']}H", content, shard["tokens_offset"])
        if description.get("targets"):
            targets += struct.unpack_from(f"<{shard['tokens']}H", content, shard["targets_offset"])
    return tokens, [None if target == 0xFFFF else target for target in targets] if description.get("targets") else None


def packed(made, length):
    """(tokens, targets) of documents that do not straddle windows."""
    tokens, targets = [], []
    for ids, answers in [*made, ([0] * (length - 1), [])]:  # the last one fills its window, and is not there
        room = -len(tokens) % length
        if len(ids) + 1 > room:
            tokens += [0] * room
            targets += [None] * room
        if answers:
            tokens += ids + [0]
            targets += answers + [None]
    return tokens, targets


class GeneratedData(unittest.TestCase):
    def test_definition(self):
        self.assertEqual(sum(count for _, count, _, _ in CASES), 10000)
        for rule, count, seed, options in CASES:
            with self.subTest(rule.__name__, **options):
                mine = [rule(seed, number, **{name.replace("-", "_"): value for name, value in options.items()}) for number in range(count)]
                made = list(documents(rule.__name__, count, seed, options))
                self.assertEqual(made, mine)
                for ids, targets in made:
                    getattr(self, f"follows_{rule.__name__}")(ids, targets, options)
        self.assertGreater(Draws.passed_over, 0)

    def follows_induction(self, ids, targets, options):
        length = options.get("length", 512)
        self.assertLess(len(ids), length)
        repeat = next(place for place, token in enumerate(ids) if token in ids[:place])
        self.assertTrue(all(one != other for one, other in zip(ids, ids[1:])))
        self.assertLessEqual(len(set(ids)), options.get("pool", 512))
        if options.get("rule") == "continued":
            self.assertEqual(len(ids), length - 1)
        else:
            self.assertEqual(len(ids), repeat + 2)
        for place in range(repeat, len(ids) - 1):  # the token after the last earlier occurrence of this one
            earlier = max(i for i in range(place) if ids[i] == ids[place])
            self.assertEqual(ids[place + 1], ids[earlier + 1])
        if targets:
            self.assertEqual([place for place, target in enumerate(targets) if target is not None], list(range(repeat, len(ids) - 1)))
            self.assertEqual(targets[repeat:-1], ids[repeat + 1:])

    def follows_ngram(self, ids, _, options):
        first, second, third = ids
        table = self.__dict__.setdefault(f"table of {options}", {})
        self.assertEqual(table.setdefault((first, second), third), third)
        self.assertLessEqual(len(table), options.get("pairs", 200))

    def follows_hop(self, ids, targets, options):
        alphabet = options.get("alphabet", 4)
        hops, row = ids[0] - 2 - alphabet, ids[1:]
        self.assertIn(hops, range(options.get("least-hops", 0), options.get("hops", 16) + 1))
        self.assertEqual(len(ids), options.get("length", 100) - 1)
        self.assertTrue(all(one != other for one, other in zip(row, row[1:])))
        after = [max((j + 1 for j in range(i) if row[j] == row[i]), default=None) for i in range(len(row))]
        places = range(len(row))  # where so many hops lead
        for _ in range(hops):
            places = [None if place is None else after[place] for place in places]
        self.assertEqual(targets, [None] + [1 if place is None else row[place] for place in places])

    def follows_math(self, ids, targets, options):
        """The text is parsed, solved by the statements alone, and compared with its solution."""
        names, modulus = options.get("names", 12), options.get("modulus", 5)
        text = "".join(" +-*=.?:"[token] if token < 8 else f"n{token - 8} " if token < 8 + names else f"{token - 8 - names} " for token in ids)
        problem, question, solution = text.replace(" ", "").replace(":", "?").split("?")
        statements = dict(statement.split("=") for statement in problem.split(".")[:-1])
        self.assertIn(len(statements), range(options.get("least-operations", 2), options.get("operations", 4) + 1))

        def operands(words):
            return words.replace("+", " ").replace("-", " ").replace("*", " ").split()

        def value(word):
            return int(word) if word.isdigit() else solve(statements[word])

        def solve(words):
            left, *right = operands(words)
            if not right:
                return value(left)
            sign = words[len(left)]
            self.assertIn(sign, "+-*" if options.get("multiplication") == "true" else "+-")
            return eval(f"{value(left)} {sign} {value(right[0])}") % modulus  # pylint: disable=eval-used
        known = {}
        for line in solution.split(".")[:-1]:
            name, *steps = line.split("=")
            uses = [word for word in operands(statements[name]) if word.startswith("n")]
            self.assertTrue(all(word in known for word in uses), f"{name} before its operands in {text}")
            self.assertNotIn(name, known)
            known[name] = solve(statements[name])
            self.assertEqual(int(steps[-1]), known[name], text)
            if len(steps) == 2:
                self.assertEqual([int(word) for word in operands(steps[0])],
                                 [known[word] if word in known else int(word) for word in operands(statements[name])])
        used = {word for name in known for word in operands(statements[name])}
        self.assertEqual(set(known), {question} | {word for word in used if word.startswith("n")})
        self.assertEqual(name, question)
        if targets:
            asked = ids.index(7)
            self.assertEqual(targets, [None] * asked + ids[asked + 1:] + [0])

    def test_threads_and_the_number_of_documents_change_nothing(self):
        case = ("math", 3000, 5, {})
        made = generated(*case, "--jsonl", "--threads", 1)
        self.assertEqual(generated(*case, "--jsonl", "--threads", 3), made)
        self.assertTrue(made.startswith(generated("math", 10, 5, {}, "--jsonl")))
        self.assertNotEqual(generated("math", 10, 6, {}, "--jsonl"), generated("math", 10, 5, {}, "--jsonl"))

    def test_datasets(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)

            def dataset(kind, count, seed, options, *words):
                answer = json.loads(generated(kind, count, seed, options, "--output", folder / kind, "--json", *words))
                for one in answer["datasets"]:
                    self.assertEqual(shiftron("data", "verify", one["directory"]).returncode, 0)
                return answer["datasets"]
            options = {"pool": 40, "length": 48}
            answer = dataset("induction", 300, 3, options, "--validation", 50, "--pack", 48, "--shard-tokens", 1500, "--threads", 3)
            made = [induction(3, number, **options) for number in range(350)]
            for part, documents_of_it, one in (("train", made[:300], answer[0]), ("validation", made[300:], answer[1])):
                self.assertEqual(rows_of(folder / "induction" / part), packed(documents_of_it, 48))
                self.assertEqual((one["documents"], one["counted_targets"]), (len(documents_of_it), len(documents_of_it)))
            self.assertGreater(answer[0]["shards"], 2)

            dataset("hop", 60, 4, {"length": 20, "hops": 2}, "--vocab", 64)
            made = [hop(4, number, length=20, hops=2) for number in range(60)]
            self.assertEqual(rows_of(folder / "hop"), ([x for ids, _ in made for x in ids + [0]], [x for _, row in made for x in row + [None]]))
            self.assertEqual(json.loads((folder / "hop/dataset.json").read_text())["vocab_size"], 64)

            dataset("ngram", 50, 5, {"targets": "all"})
            made = [ngram(5, number) for number in range(50)]
            self.assertEqual(rows_of(folder / "ngram"), ([x for ids, _ in made for x in ids + [0]], None))

            (folder / "hop.jsonl").write_text(generated("hop", 60, 4, {"length": 20, "hops": 2}, "--jsonl"))
            built = shiftron("data", "build", "--ids", "--input", folder / "hop.jsonl", "--vocab", 64, "--end-of-document", 0, "--output",
                             folder / "built")
            self.assertEqual(built.returncode, 0, built.stderr)
            self.assertEqual([sorted(map(str, row)) for row in rows_of(folder / "built")], [sorted(map(str, row)) for row in rows_of(folder / "hop")])

            again = shiftron("data", "generate", "hop", "--documents", 60, "--output", folder / "hop")
            self.assertEqual(again.returncode, 76)
            self.assertIn(str(folder / "hop"), again.stderr)

    def test_text_has_the_names_of_tokens(self):
        self.assertEqual(generated("hop", 1, 8, {"length": 12, "hops": 1, "least-hops": 1}, "--text"),
                         "ids     hop1 c a d b a b a b a d\n"
                         "targets _    ~ ~ ~ ~ d a b a b b\n")
        self.assertEqual(generated("math", 1, 1, {"targets": "all"}, "--text"), "ids     f = 3 . d = 4 + f . a = 0 . ? a : a = 0 .\n")
        self.assertEqual(generated("math", 1, 1, {}, "--text"),
                         "ids     f = 3 . d = 4 + f . a = 0 . ? a : a = 0 .\n"
                         "targets _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ a = 0 . <end>\n")

    def test_faults(self):
        def refused(words, *phrases):
            done = shiftron("data", "generate", *words.split())
            self.assertEqual((done.returncode, done.stdout), (76, ""))
            for phrase in phrases:
                self.assertIn(phrase, done.stderr)
        refused("inductoin --documents 1 --jsonl", "unknown kind of generated data 'inductoin'; did you mean induction?")
        refused("hop --documents 1 --jsonl --pool 4 --hops 1001", "--hops '1001' must be <= 1000")
        refused("hop --documents 1 --jsonl --pool 4 --length 1001 --modulus 3", "--pool 4 is not an option of this kind",
                "--modulus 3 is not an option of this kind")
        refused("ngram --documents 1 --jsonl --symbols 5000", "--symbols 5000 must be from 1 to 4096")
        refused("induction --documents 1 --jsonl --pool 64 --symbols 9", "--symbols 9 is less than --pool 64; give --symbols 64 or more")
        refused("induction --documents 1 --jsonl --pool 512 --length 6", "--length 6 is too short for --pool 512: only 0.586 % of the documents",
                "give --length 30 or more, or a smaller --pool")
        refused("ngram --documents 1 --jsonl --symbols 4 --pairs 17", "--pairs 17 is more than the 16 pairs of --symbols 4")
        refused("hop --documents 1 --jsonl --hops 3 --least-hops 4", "--least-hops 4 is more than --hops 3")
        refused("math --documents 1 --jsonl --operations 13", "--operations 13 is more than --names 12; give --names 13 or more")
        refused("math --documents 0 --jsonl", "--documents '0' must be >= 1")
        refused("math --documents 1", "give --output DIR, --jsonl or --text")
        refused("math --documents 1 --jsonl --output none", "give only one of --output DIR, --jsonl or --text")
        refused("math --documents 1 --text --pack 64", "--pack only applies to a dataset, but --text prints documents")
        refused("math --documents 1 --output none --pack 59", "--pack 59 is less than the 60 tokens that a document may have", "give --pack 60 or more")
        refused("math --documents 1 --output none --vocab 24", "--vocab 24 is less than the 25 tokens", "give --vocab 25 or more")
        self.assertFalse(pathlib.Path("none").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
