// A value that the dtype of a written step cannot hold is refused, not written as infinity.
#include "checkpoint/step_writer.h"
#include "interchange/hugging_face_imports.h"

namespace shiftron::testing {
namespace {

using ::testing::HasSubstr;

TEST(CastOverflow, NamesTheTensorAndTheValue) {
  TemporaryDirectory directory;
  MemorySource source(small_model(kPaper));
  StepToWrite step{.content = {.step = 1,
                               .configuration = {},
                               .state_json = R"({"configuration": {}, "trainer": {}})",
                               .tokenizer = {},
                               .data_fingerprint = {},
                               .code_version = {}},
                   .files = {}};
  std::vector<ManifestTensor> tensors = source.tensors();
  for (ManifestTensor& tensor : tensors) tensor.dtype = DType::bfloat16;
  step.files = one_file(tensors);
  source.values("final_norm.weight")[3] = 3.4e38f;  // bfloat16 ends at 3.3895e38
  const Error error = error_of([&] { write_step(source, step, directory.path() + "/run"); });
  EXPECT_EQ(error.code(), ExitCode::bad_input);
  EXPECT_THAT(error.what(), HasSubstr("parameters/final_norm.weight holds 3.4e+38, which is too large for bfloat16"));
  EXPECT_TRUE(names_in(directory.path() + "/run").empty());
  step.files = one_file(source.tensors());  // as it is
  write_step(source, step, directory.path() + "/run");
  source.values("final_norm.weight")[3] = 3.3895e38f;
  step.content.step = 2;
  step.files = one_file(tensors);
  write_step(source, step, directory.path() + "/run");
}

}  // namespace
}  // namespace shiftron::testing
