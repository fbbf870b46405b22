// Directories of other programs are distinguished from steps, and from each other.
#include "interchange/hugging_face_imports.h"
#include "interchange/megatron_source.h"
#include "interchange/step_directory.h"

namespace shiftron::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ForeignDirectories : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& tensor) {
    fs::create_directories(place(name));
    SafetensorsWriter writer(place(name) + "/model.safetensors",
                             {{.name = tensor, .type = SafetensorsType::F32, .shape = {1}}}, {});
    writer.append("1234", 4);
    writer.finish();
    write_text(place(name) + "/config.json", "{}");
  }
  std::string place(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string fault(const std::string& name) const {
    const Error error = error_of([&] { require_step_directory(place(name)); });
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  TemporaryDirectory directory_;
};

TEST_F(ForeignDirectories, AreNamedWithWhatImportsThem) {
  write("llama", "model.embed_tokens.weight");
  EXPECT_EQ(import_format_of(place("llama")), "hf");
  EXPECT_THAT(fault("llama"), AllOf(HasSubstr("looks like a model for Hugging Face transformers"),
                                    HasSubstr("checkpoint import " + place("llama") + " --format hf --output RUN")));
  for (const std::string prefix : {"", "model."}) {
    write("gpt" + prefix, prefix + "embedding.word_embeddings.weight");
    EXPECT_EQ(import_format_of(place("gpt" + prefix)), "megatron");
    EXPECT_THAT(fault("gpt" + prefix),
                AllOf(HasSubstr("looks like a model for Megatron-LM"), HasSubstr("--format megatron --output RUN")));
  }
  fs::create_directories(place("pickles"));
  write_text(place("pickles") + "/__0_0.distcp", "");
  EXPECT_EQ(import_format_of(place("pickles")), "megatron");
}

TEST_F(ForeignDirectories, OthersAreNone) {
  EXPECT_EQ(import_format_of(place("none")), "");
  fs::create_directories(place("empty"));
  EXPECT_EQ(import_format_of(place("empty")), "");
  require_step_directory(place("empty"));  // the manifest is missed by who reads it
  write("step", "model.embed_tokens.weight");
  write_text(place("step") + "/manifest.json", "{}");
  EXPECT_EQ(import_format_of(place("step")), "");
  write("damaged", "model.embed_tokens.weight");
  write_text(place("damaged") + "/model.safetensors", "no header");
  EXPECT_EQ(import_format_of(place("damaged")), "hf");
}

}  // namespace
}  // namespace shiftron::testing
