// Choices of products as text: what is read is what was written, and what is wrong is named.
#include "kernels/product_choices.h"

#include "kernels/kernel_testing.h"

namespace shiftron {
namespace {

using kernel_testing::replaced;

ProductChoices some_product_choices() {
  ProductShape shape{.m = 3,
                     .n = 5,
                     .k = 7,
                     .a_transposed = true,
                     .adds = true,
                     .operands = DType::bfloat16,
                     .result = DType::float32,
                     .a_stride = 4,
                     .b_stride = 6,
                     .c_stride = 8,
                     .alignment = 16};
  ProductChoices choices{.device = "a \"device\"", .library = 130100, .of = {}};
  choices.of[shape] = {.algorithm = {1, ~uint64_t{0}, 0x0123456789abcdef}, .workspace = 1 << 20, .seconds = 1.0 / 3e6};
  shape.b_transposed = true;
  choices.of[shape] = {};
  shape.m = 4;
  shape.adds = false;
  shape.residual_stride = 9;
  choices.of[shape] = {};
  return choices;
}

TEST(ProductChoices, AreReadAsTheyWereWritten) {
  EXPECT_EQ(product_choices_from(to_json(some_product_choices()), "choices.json"), some_product_choices());
}

TEST(ProductChoices, ShapesSpeak) {
  std::vector<std::string> texts;
  for (const auto& [shape, choice] : some_product_choices().of) texts.push_back(shape.text());
  const std::string types = ", bfloat16 to float32, row strides 8, 4, 6", addresses = ", addresses divisible by 16";
  EXPECT_EQ(texts, (std::vector<std::string>{"[3, 5] += [7, 3]ᵀ [7, 5]" + types + addresses,
                                             "[3, 5] += [7, 3]ᵀ [5, 7]ᵀ" + types + addresses,
                                             "[4, 5] = residual + [7, 4]ᵀ [5, 7]ᵀ" + types + ", 9" + addresses}));
}

// A file from before residuals were added: none of its products has one.
TEST(ProductChoices, OfOlderFilesHaveNoResidual) {
  ProductChoices choices = some_product_choices();
  std::erase_if(choices.of, [](const auto& of) { return of.first.residual_stride != 0; });
  const std::string key = "   \"residual_stride\": 0,\n";
  std::string text = to_json(choices);
  for (size_t i = 0; i < choices.of.size(); ++i) text = replaced(text, key, "");
  EXPECT_EQ(product_choices_from(text, "choices.json"), choices);
}

TEST(ProductChoices, FaultsAreNamed) {
  const std::string text = to_json(some_product_choices());
  const auto fault = [&](const std::string& from, const std::string& to, const std::string& message) {
    kernel_testing::expect_fault(message, [&] { product_choices_from(replaced(text, from, to), "choices.json"); });
  };
  fault("\"products\"", "\"others\"", "choices.json: key 'products' not found");
  fault("\"bfloat16\"", "\"int32\"", "choices.json: unknown product int32");
  fault("0123456789abcdef", "0123456789abcdeg", "choices.json: an algorithm must have 128 hexadecimal digits: ");
  fault("0123456789abcdef", "0123", "choices.json: an algorithm must have 128 hexadecimal digits: ");
  fault("\"b_transposed\": true", "\"b_transposed\": false", "divisible by 16 appears twice");
  fault("\"m\": 3", "\"m\": \"3\"", "choices.json: type must be number, but is string");
  fault("}", "", "choices.json: ");
}

}  // namespace
}  // namespace shiftron
