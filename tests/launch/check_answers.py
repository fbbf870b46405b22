#!/usr/bin/env python3
"""What experiments/table7/answers.py counts as a right answer, for continuations written by hand."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "experiments" / "table7"))
import answers  # pylint: disable=wrong-import-position,import-error

WORDS = ["", "+", "-", "*", "=", ".", "?", ":", *"abcdefghijkl", *"01234"]
PROBLEM, SOLUTION = "b = a + 4 . a = 3 . ? b :", "a = 3 . b = 3 + 4 = 2 ."


def ids(text):
    return [WORDS.index(word) for word in text.split()]


def document(problem=PROBLEM, solution=SOLUTION):
    prompt, rest = ids(problem), ids(solution)
    return {"ids": prompt + rest, "targets": [None] * (len(prompt) - 1) + rest + [0]}


class Answers(unittest.TestCase):
    def counted(self, text, ended=True):
        """Whether some line is right, and the whole solution."""
        found = answers.shares([document()], [{"ids": ids(text), "ended": ended}])
        self.assertEqual(found["n"], 1)
        return found["some_line"] == 1, found["whole"] == 1

    def test_the_documents_solution(self):
        self.assertEqual(self.counted(SOLUTION), (True, True))

    def test_lines_after_the_answer(self):
        self.assertEqual(self.counted(SOLUTION + " c = 1 ."), (True, False))

    def test_no_end_after_the_answer(self):
        self.assertEqual(self.counted(SOLUTION, ended=False), (True, False))

    def test_the_answer_without_a_calculation(self):
        self.assertEqual(self.counted("b = 2 ."), (True, False))

    def test_lines_that_contradict_it(self):
        self.assertEqual(self.counted("b = 3 . b = 2 . b = 4 ."), (True, False))

    def test_a_wrong_value(self):
        self.assertEqual(self.counted("a = 3 . b = 3 + 4 = 1 ."), (False, False))

    def test_the_value_of_another_name(self):
        self.assertEqual(self.counted("a = 2 . c = 3 + 4 = 2 ."), (False, False))

    def test_a_value_that_is_no_result(self):
        self.assertEqual(self.counted("b = 3 + 2 . b + 2 ."), (False, False))

    def test_a_line_that_does_not_end(self):
        self.assertEqual(self.counted("a = 3 . b = 3 + 4 = 2", ended=False), (False, False))

    def test_nothing(self):
        self.assertEqual(self.counted(""), (False, False))

    def test_shares(self):
        made = [{"ids": ids(text), "ended": True} for text in (SOLUTION, "b = 2 .", "b = 1 .", "")]
        self.assertEqual(answers.shares([document()] * 4, made), {"some_line": 0.5, "whole": 0.25, "n": 4})
        with self.assertRaisesRegex(AssertionError, "3 continuations of 4 prompts"):
            answers.shares([document()] * 4, made[1:])

    def test_prompts(self):
        self.assertEqual(answers.parts(document()), (ids(PROBLEM), ids(SOLUTION)))

    def test_documents_of_another_form(self):
        for fault, changed in (("does not end with a question", document("b = a + 4 . a = 3 . :")),
                               ("does not end with the answer", document(solution="b = 2 . a = 3 ."))):
            with self.assertRaisesRegex(AssertionError, fault):
                answers.shares([changed], [{"ids": [], "ended": True}])


if __name__ == "__main__":
    unittest.main(verbosity=2)
