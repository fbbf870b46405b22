// Taps that config.json states must exist in every layer.
#include "interchange/hugging_face_imports.h"

namespace shiftron::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The tensors without those whose names hold one of `parts`.
class MissingTaps : public HuggingFaceImports {
 protected:
  void drop(const std::vector<std::string>& parts) {
    rewrite([&](SafetensorsTensor& tensor, std::vector<float>&) {
      if (std::ranges::any_of(parts, [&](const auto& part) { return tensor.name.find(part) != std::string::npos; })) {
        tensor.name.clear();
      }
    });
  }
  void write_canon() {
    fs::remove_all(out_);
    write_hugging_face(*source_, export_of(small_model(kPaper), HuggingFaceForm::canon), out_);
  }
};

// Else the model would be read as one without a shift, in some layers or in all.
TEST_F(MissingTaps, OfLlamaCanonAreRefusedByName) {
  const std::string missing = "self_attn.canonB.weight [48, 1, 2] (canon_kernel 2) is missing";
  for (const char* part : {"layers.0.self_attn.canonB", "layers.1.self_attn.canonB"}) {
    write_canon();
    drop({part});
    EXPECT_THAT(fault(), AllOf(HasSubstr(std::string("tensor model.") + part), HasSubstr(missing)));
  }
  write_canon();
  set({{"canon_kernel", 4}});
  EXPECT_THAT(fault(), HasSubstr("canonB.weight is [48, 1, 2], but config.json requires [48, 1, 4] (canon_kernel 4)"));
  set({{"canon_kernel", nullptr}});
  EXPECT_THAT(fault(), HasSubstr("config.json requires [48, 1, 4]"));  // LlamaCanon's default
  set({{"canon_kernel", 2}, {"canon_set", ""}});
  EXPECT_THAT(fault(), AllOf(HasSubstr("layers.0.self_attn.canonB.weight exists"), HasSubstr("set it to \"B\"")));
  drop({"canonB"});
  EXPECT_EQ(HuggingFaceSource(out_).model().shift, (ShiftConfig{.query = 0, .key = 0, .value = 0}));
}

TEST_F(MissingTaps, OfBaichuanAreRefusedByName) {
  for (const char* name : {"layers.0.self_attn.conv_k", "layers.1.self_attn.conv_v"}) {
    write(small_model(kPaper));
    set({{"model_type", "baichuan_m1"}});
    EXPECT_EQ(HuggingFaceSource(out_, {.norm_head = true}).model().shift, kPaper);
    drop({name});
    EXPECT_THAT(fault({.norm_head = true}), AllOf(HasSubstr("config.json states 1 previous tokens"),
                                                  HasSubstr(std::string("tensor model.") + name + " is missing")));
  }
  write(small_model(kPaper));
  set({{"model_type", "baichuan_m1"}, {"conv_window", 3}});
  EXPECT_THAT(fault({.norm_head = true}),
              HasSubstr("states 2 previous tokens for the key, but layer 0 holds taps for 1"));
  set({{"conv_window", 1}});
  EXPECT_THAT(fault({.norm_head = true}), HasSubstr("conv_window is 1"));
}

TEST_F(MissingTaps, OfSomeLayersWhereNoneAreStated) {
  for (const auto& [name, message] :
       {std::pair("layers.1.self_attn.conv_k",
                  "layer 1 holds no taps: tensor model.layers.1.self_attn.conv_k is missing"),
        std::pair("layers.0.self_attn.conv_v", "layer 1 holds some, but layer 0 holds none")}) {
    write(small_model(kPaper));
    set({{"model_type", "llama"}});
    drop({name});
    EXPECT_THAT(fault(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace shiftron::testing
