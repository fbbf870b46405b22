// Python's strings, random numbers and JSON, as benchmark tasks need them. Expected values are CPython 3.11's own.
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "evaluate/tasks/python_json.h"
#include "evaluate/tasks/python_random.h"
#include "evaluate/tasks/python_text.h"
#include "evaluate/tasks/sha256.h"

namespace shiftron::python {
namespace {

TEST(PythonText, strips_pythons_white_space_alone) {
  EXPECT_EQ(strip("\u3000\u00A0 \t\x1C\x1F\u0085\u2028 a b \u205F\u202F\u2000\u200A\u1680\v\f\r\n"), "a b");
  EXPECT_EQ(strip("\u200B a"), "\u200B a");
  EXPECT_EQ(strip("\uFEFF a"), "\uFEFF a");
  EXPECT_EQ(strip(" \x1B "), "\x1B");
  EXPECT_EQ(strip_left(" a "), "a ");
  EXPECT_EQ(strip_right(" a\u3000"), " a");
  EXPECT_EQ(strip(" \n "), "");
  EXPECT_EQ(strip(" \xFF\x80 "), "\xFF\x80");
}

TEST(PythonText, capitalizes_as_python_does) {
  EXPECT_EQ(capitalize("the NEW valve"), "The new valve");
  EXPECT_EQ(capitalize("école ABC"), "École abc");
  EXPECT_EQ(capitalize("ǆungla"), "ǅungla");
  EXPECT_EQ(capitalize("ﬁne"), "Fine");
  EXPECT_EQ(capitalize("ΟΔΟΣ"), "Οδος");
  EXPECT_EQ(capitalize("aİ"), "Ai\u0307");
  EXPECT_EQ(capitalize("ßA"), "Ssa");
  EXPECT_EQ(capitalize("İA"), "İa");
  EXPECT_EQ(capitalize(" A"), " a");
  EXPECT_EQ(capitalize("3 MEN"), "3 men");
  EXPECT_EQ(capitalize(""), "");
}

TEST(PythonText, counts_code_points_and_parts) {
  EXPECT_EQ(length("大学"), 2);
  EXPECT_EQ(length("a😀\xFF"), 3);
  EXPECT_EQ(utf8(code_points("a大😀é")), "a大😀é");
  EXPECT_EQ(count_split_by_space(" a  b\u3000c "), 5);
  EXPECT_EQ(count_split_by_space(""), 1);
  EXPECT_EQ(split("a  b", " "), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(replace("aaa", "aa", "b"), "ba");
}

TEST(PythonText, integers_are_those_of_int) {
  for (const char* text : {"5", " -12 ", "+3", "1_0", "٣", "007"}) EXPECT_TRUE(is_integer(text)) << text;
  for (const char* text : {"", " ", "-", "a", "1__0", "_1", "1_", "1.0", "½", "--1", "- 1"})
    EXPECT_FALSE(is_integer(text)) << text;
  EXPECT_TRUE(is_integer(std::string(4300, '1')));
  EXPECT_FALSE(is_integer(std::string(4301, '1')));
}

TEST(PythonText, a_dot_leaves_out_new_lines_alone) {
  EXPECT_EQ(substitute("\\[.*?\\]", "", "[a]b[c\nd]e[f\rg]"), "b[c\nd]e");
  EXPECT_EQ(first_group("is(.*?)\\.", "it is so."), " so");
  EXPECT_EQ(first_group("is(.*?)\\.", "it is\n so."), std::nullopt);
}

TEST(PythonText, finds_the_groups_of_every_match) {
  using Groups = std::vector<std::vector<std::string>>;
  EXPECT_EQ(find_all("(a)|(b)", "xab"), (Groups{{"a", ""}, {"", "b"}}));
  EXPECT_EQ(find_all("x(.)", "xayxb"), (Groups{{"a"}, {"b"}}));
  EXPECT_EQ(find_all("\\d+", "7 and 42"), (Groups{{"7"}, {"42"}}));
  EXPECT_EQ(pattern_fault("(?s).*#### "), std::nullopt);
  EXPECT_EQ(pattern_fault("a(b"), "U_REGEX_MISMATCHED_PAREN at character 3");
}

TEST(PythonText, quotes_texts_as_repr_does) {
  EXPECT_EQ(repr("it's"), "\"it's\"");
  EXPECT_EQ(repr("it's \"so\""), R"('it\'s "so"')");
  EXPECT_EQ(repr("a\\b\t\r\n\x01\x7F\u00AD\u3000\u200B\U000E0001"),
            R"('a\\b\t\r\n\x01\x7f\xad\u3000\u200b\U000e0001')");
  EXPECT_EQ(repr("é \U0001F309"), "'é \U0001F309'");
  EXPECT_EQ(repr(std::vector<std::string>{"a", ""}), "['a', '']");
}

TEST(PythonRandom, draws_what_cpython_draws) {
  Random words(1234);
  EXPECT_EQ(words.next_word(), 4150886329U);
  EXPECT_EQ(words.next_word(), 3342196574U);
  EXPECT_EQ(words.next_word(), 1892932127U);
  EXPECT_EQ(Random(1234).real(), 0.9664535356921388);
  Random large(1234);
  EXPECT_EQ(large.sample(1119, 5), (std::vector<int64_t>{902, 239, 15, 185, 71}));
  EXPECT_EQ(large.sample(1119, 5), (std::vector<int64_t>{171, 201, 726, 484, 35}));
  auto many = Random(1234).sample(39905, 11);
  many.resize(4);
  EXPECT_EQ(many, (std::vector<int64_t>{28883, 7657, 490, 5940}));
  Random small(1234);
  EXPECT_EQ(small.sample(20, 2), (std::vector<int64_t>{14, 3}));
  EXPECT_EQ(small.sample(20, 2), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(small.sample(20, 2), (std::vector<int64_t>{18, 1}));
}

TEST(PythonRandom, other_seeds_and_sizes) {
  Random zero(0);
  EXPECT_EQ(zero.next_word(), 3626764237U);
  EXPECT_EQ(zero.next_word(), 1654615998U);
  Random choices(99);
  for (const int64_t expected : {2, 1, 1, 1, 5, 1, 2, 4}) EXPECT_EQ(choices.choice(7), expected);
  Random long_seed((uint64_t{1} << 40) + 5);
  for (const uint32_t expected : {8U, 8U, 4U, 0U, 8U, 0U}) EXPECT_EQ(long_seed.below(10), expected);
  Random samples(3);
  EXPECT_EQ(samples.sample(40, 7), (std::vector<int64_t>{15, 37, 34, 8, 23, 30, 4}));
  // Where a pool and a set give different samples, on both sides of the choice between them.
  EXPECT_EQ(Random(2).sample(21, 5), (std::vector<int64_t>{1, 2, 19, 11, 5}));
  EXPECT_EQ(Random(2).sample(22, 5), (std::vector<int64_t>{1, 2, 11, 5, 21}));
  EXPECT_EQ(Random(5).sample(85, 6), (std::vector<int64_t>{79, 32, 45, 67, 3, 59}));
  EXPECT_EQ(Random(2).sample(86, 6), (std::vector<int64_t>{7, 11, 10, 46, 21, 85}));
  Random far(5);
  for (int i = 1; i < 2000; ++i) far.next_word();
  EXPECT_EQ(far.next_word(), 2894893787U);
}

TEST(PythonJson, numbers_are_written_shortest) {
  EXPECT_EQ(repr(0.1), "0.1");
  EXPECT_EQ(repr(-3.2), "-3.2");
  EXPECT_EQ(repr(1e16), "1e+16");
  EXPECT_EQ(repr(1e15), "1000000000000000.0");
  EXPECT_EQ(repr(123456789012345680.0), "1.2345678901234568e+17");
  EXPECT_EQ(repr(0.0001), "0.0001");
  EXPECT_EQ(repr(0.00001), "1e-05");
  EXPECT_EQ(repr(-0.0), "-0.0");
  EXPECT_EQ(repr(5e-324), "5e-324");
  EXPECT_EQ(repr(1.5), "1.5");
  EXPECT_EQ(repr(100), "100.0");
  EXPECT_EQ(repr(static_cast<double>(-11.894357681274414F)), "-11.894357681274414");
  EXPECT_EQ(repr(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(repr(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(PythonJson, texts_are_those_of_dumps) {
  const nlohmann::ordered_json value = {{"b", "\"\\/\n\t\x01\x7F é"},
                                        {"a", {1, 2.0, nullptr, true}},
                                        {"empty", nlohmann::ordered_json::array()},
                                        {"none", nlohmann::ordered_json::object()},
                                        {"in", {{"x", -1}}}};
  EXPECT_EQ(json_text(value),
            "{\n  \"b\": \"\\\"\\\\/\\n\\t\\u0001\x7F é\",\n  \"a\": [\n    1,\n    2.0,\n    null,\n    true\n  ],\n  "
            "\"empty\": [],\n"
            "  \"none\": {},\n  \"in\": {\n    \"x\": -1\n  }\n}");
  EXPECT_EQ(sha256(json_text({{"text", "a b"}})).substr(0, 8), "5259bdb2");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(PythonJson, what_dumps_writes_of_no_finite_number_is_null) {
  EXPECT_EQ(parse_json(R"({"a": [NaN, -Infinity, Infinity, -1], "NaN\"Infinity": "-Infinity NaN"})").dump(),
            R"({"a":[null,null,null,-1],"NaN\"Infinity":"-Infinity NaN"})");
  EXPECT_THROW(parse_json("{\"a\": Nan}"), nlohmann::json::exception);
}

}  // namespace
}  // namespace shiftron::python
