// Which answers to MATH problems count as the same. Expected values are the harness's.
#include <gtest/gtest.h>

#include "evaluate/tasks/math_answers.h"
#include "evaluate/tasks/python_literal.h"

namespace shiftron {
namespace {

bool matches(const std::string& generated, const std::string& gold) {
  return is_same_math(dollar_answer(generated), gold);
}

TEST(MathAnswers, generated_and_gold) {
  EXPECT_TRUE(matches("The answer is $\\frac12$.", "\\frac{1}{2}"));
  EXPECT_TRUE(matches("0.5", "\\frac{1}{2}"));
  EXPECT_FALSE(matches("0.75", "\\frac{3}{4}"));
  EXPECT_TRUE(matches("$x=5$", "5"));
  EXPECT_FALSE(matches("$abc=5$", "5"));
  EXPECT_FALSE(matches("$\\boxed{5}$", "5"));
  EXPECT_FALSE(matches("$2$ or $3$", "2"));
  EXPECT_FALSE(matches("5.", "5"));
  EXPECT_TRUE(matches("10\\%", "10"));
  EXPECT_FALSE(matches("1,000", "1000"));
  EXPECT_TRUE(matches("$3\\text{ cm}$", "3"));
  EXPECT_TRUE(matches("a/b", "a/b"));
  EXPECT_FALSE(matches(" a/b", "a/b"));
  EXPECT_FALSE(matches("06/3", "\\frac{6}{3}"));
  EXPECT_FALSE(matches(" \\frac", "\\frac"));
}

TEST(MathAnswers, canonical_forms) {
  EXPECT_TRUE(is_same_math("\\tfrac1{72}", "\\dfrac{1}{72}"));
  EXPECT_TRUE(is_same_math("\\sqrt3", "\\sqrt{3}"));
  EXPECT_TRUE(is_same_math("\\left( 1, 2 \\right)", "(1,2)"));
  EXPECT_TRUE(is_same_math("90^\\circ", "90^{\\circ}"));
  EXPECT_TRUE(is_same_math(".5", "\\frac{1}{2}"));
  EXPECT_TRUE(is_same_math("\\$ 5", "5"));
  EXPECT_TRUE(is_same_math("1\\\\2", "1\\2"));
  EXPECT_TRUE(is_same_math("{.3", "{0.3"));
  EXPECT_TRUE(is_same_math("3/4", "\\frac{3}{4}"));
  EXPECT_TRUE(is_same_math("-3/4", "\\frac{-3}{4}"));
  EXPECT_FALSE(is_same_math("-0/4", "\\frac{-0}{4}"));
  EXPECT_FALSE(is_same_math("1_0/3", "\\frac{10}{3}"));
  EXPECT_FALSE(is_same_math("٣/4", "\\frac{3}{4}"));
  EXPECT_TRUE(is_same_math("1/2/3", " 1/2/3"));
  EXPECT_TRUE(is_same_math("é=5", "5"));  // names are measured in characters
  EXPECT_TRUE(is_same_math("\\frac1½", "\\frac{1}{½}"));
  EXPECT_FALSE(is_same_math("\\sqrt", " \\sqrt"));
  EXPECT_FALSE(is_same_math("3\\text{ a}\\text{ b}", "3"));
  EXPECT_TRUE(is_same_math("x=y=5", "x=y= 5"));
  EXPECT_FALSE(is_same_math("\\frac1", "\\frac{1}"));
  EXPECT_TRUE(is_same_math("", "\n"));
}

TEST(MathAnswers, gold_is_what_the_solution_boxes) {
  EXPECT_EQ(boxed_answer("so $\\boxed 7$ done"), "7");
  EXPECT_EQ(boxed_answer("so $\\boxed 7$ or $\\boxed{8}$"), "7");
  EXPECT_EQ(boxed_answer("first $\\boxed{3}$ then $\\boxed{\\frac{1}{2}}$."), "\\frac{1}{2}");
  EXPECT_EQ(boxed_answer("none"), std::nullopt);
  EXPECT_EQ(boxed_answer("$\\fbox{3}$"), std::nullopt);
  EXPECT_EQ(boxed_answer("$\\boxed\\frac{1}{2}$"), std::nullopt);
  EXPECT_EQ(boxed_answer("$\\boxed{3$"), std::nullopt);
}

TEST(MathAnswers, minerva_answers_lose_units_and_shorthand) {
  EXPECT_EQ(normalized_minerva_answer("$x = 3 \\text{ cm}$"), "3");
  EXPECT_EQ(normalized_minerva_answer("2\\pi cm"), "2\\pi");
  EXPECT_EQ(normalized_minerva_answer("\\left(1, 2\\right)"), "\\left(1,2\\right)");
  EXPECT_EQ(normalized_minerva_answer("\\infty"), "\\infty");
  EXPECT_EQ(normalized_minerva_answer("100,000"), "100000");
  EXPECT_EQ(normalized_minerva_answer("-1,234,567"), "-1234567");
  EXPECT_EQ(normalized_minerva_answer("0,1"), "0,1");
  EXPECT_EQ(normalized_minerva_answer("1{,}000 dollars"), "1000");
  EXPECT_EQ(normalized_minerva_answer("\\frac12"), "\\frac{1}{2}");
  EXPECT_EQ(normalized_minerva_answer("\\frac123"), "\\frac{1}{2}3");
  EXPECT_EQ(normalized_minerva_answer("\\sqrt2"), "\\sqrt{2}");
  EXPECT_EQ(normalized_minerva_answer("\\sqrt[3]8"), "\\sqrt[3]{8}");
  EXPECT_EQ(normalized_minerva_answer("\\sqrt[3]{8}"), "\\sqrt[3]{8}");
  EXPECT_EQ(normalized_minerva_answer("\\sqrt{2}"), "\\sqrt{2}");
  EXPECT_EQ(normalized_minerva_answer("5 square feet"), "5");
  EXPECT_EQ(normalized_minerva_answer("an apple"), "apple");
  EXPECT_EQ(normalized_minerva_answer("a pear"), "pear");
  EXPECT_EQ(normalized_minerva_answer("\\text{Monday}"), "Monday");
  EXPECT_EQ(normalized_minerva_answer("\\textbf{(B)} 3"), "(B)3");
  EXPECT_EQ(normalized_minerva_answer("\\overline{AB}"), "AB");
  EXPECT_EQ(normalized_minerva_answer("\\boxed{7}"), "7");
  EXPECT_EQ(normalized_minerva_answer("90^\\circ"), "90");
  EXPECT_EQ(normalized_minerva_answer("10\\%"), "10\\%");
  EXPECT_EQ(normalized_minerva_answer("$4$ and $5$"), "4");
  EXPECT_EQ(normalized_minerva_answer("3\\mbox{ m}"), "3");
  EXPECT_EQ(normalized_minerva_answer("\\text{east}"), "east");
  EXPECT_EQ(normalized_minerva_answer("12\\text{m}"), "12");
  EXPECT_EQ(normalized_minerva_answer("\\picm"), "\\picm");
  EXPECT_EQ(normalized_minerva_answer("shift"), "shi");
  EXPECT_EQ(normalized_minerva_answer("2 shifts"), "2shis");
  EXPECT_EQ(normalized_minerva_answer("ways"), "");
  EXPECT_EQ(normalized_minerva_answer("x\\in[-2,7]"), "x\\in[-2,7]");
  EXPECT_EQ(normalized_minerva_answer("10\\mathrm{th}"), "10");
  EXPECT_EQ(normalized_minerva_answer("\\$5.$"), "5");
  EXPECT_EQ(normalized_minerva_answer("students_7"), "_7");
  EXPECT_EQ(normalized_minerva_answer("7hours"), "7");
  EXPECT_EQ(normalized_minerva_answer("3\\text{ and }4"), "3,4");
  EXPECT_EQ(normalized_minerva_answer("1,\\text{and}2"), "1,2");
  EXPECT_EQ(normalized_minerva_answer("\\dots"), "");
  EXPECT_EQ(normalized_minerva_answer("é ft"), "é");
  EXPECT_EQ(normalized_minerva_answer("ft5"), "5");
  EXPECT_EQ(normalized_minerva_answer("12345,678"), "12345,678");
  EXPECT_EQ(minerva_answer("Final Answer: The final answer is $5$. I hope it is correct."), "$5$");
  EXPECT_EQ(minerva_answer("Final Answer: The final answer is 5"), "[invalidanswer]");
  EXPECT_EQ(minerva_answer("x Final Answer: The final answer is  a\nb. I hope it is correct."), "[invalidanswer]");
  EXPECT_EQ(minerva_answer("nothing"), "[invalidanswer]");
  EXPECT_EQ(minerva_answer("Final Answer: The final answer is 1. I hope it is correct. Final Answer: The final answer "
                           "is 2. I hope it is correct."),
            "1");
}

TEST(PythonLiteral, lists_of_numbers_are_written_as_python_does) {
  EXPECT_EQ(python::target_text("[-2,7]"), "[-2, 7]");
  EXPECT_EQ(python::target_text("[1.50, 2]"), "[1.5, 2]");
  EXPECT_EQ(python::target_text("[0,1)"), "[0,1)");
  EXPECT_EQ(python::target_text("[2,3]\\cup[4,5]"), "[2,3]\\cup[4,5]");
  EXPECT_EQ(python::target_text("[a]"), "[a]");
  EXPECT_EQ(python::target_text("[5]"), "[5]");
  EXPECT_EQ(python::target_text("[]"), "[]");
  EXPECT_EQ(python::target_text("[01]"), "[01]");
  EXPECT_EQ(python::target_text("[00]"), "[0]");
  EXPECT_EQ(python::target_text("[1,2,]"), "[1, 2]");
  EXPECT_EQ(python::target_text("[1,,2]"), "[1,,2]");
  EXPECT_EQ(python::target_text("[(1,2),[3]]"), "[(1, 2), [3]]");
  EXPECT_EQ(python::target_text("[(1),(2,)]"), "[1, (2,)]");
  EXPECT_EQ(python::target_text("[ +3 , - 4 ]"), "[3, -4]");
  EXPECT_EQ(python::target_text("[1e3]"), "[1000.0]");
  EXPECT_EQ(python::target_text("[.5,5.]"), "[0.5, 5.0]");
  EXPECT_EQ(python::target_text("[1_000]"), "[1000]");
  EXPECT_EQ(python::target_text("[1__0]"), "[1__0]");
  EXPECT_EQ(python::target_text("[--1]"), "[--1]");
  EXPECT_EQ(python::target_text("[1 2]"), "[1 2]");
  EXPECT_EQ(python::target_text("[1/2]"), "[1/2]");
  EXPECT_EQ(python::target_text("[-0]"), "[0]");
  EXPECT_EQ(python::target_text("[-0.0]"), "[-0.0]");
  EXPECT_EQ(python::target_text("[,]"), "[,]");
  EXPECT_EQ(python::target_text("[\\frac12,3]"), "[\\frac12,3]");
  EXPECT_EQ(python::target_text("2"), "2");
  EXPECT_EQ(python::target_text("["), "[");
  EXPECT_EQ(python::target_text("[(-1)]"), "[-1]");
  EXPECT_EQ(python::target_text("[()]"), "[()]");
  EXPECT_EQ(python::target_text("[1\n,2]"), "[1, 2]");
}

}  // namespace
}  // namespace shiftron
