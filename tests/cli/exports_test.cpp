// Tokenizers and names in what `shiftron checkpoint export` writes and `import` reads.
#include "checkpoint/boxes.h"
#include "checkpoint/reader.h"
#include "checkpoint/steps.h"
#include "cli/interchange_fixture.h"
#include "data/fixture.h"
#include "evaluate/checkpoint_model.h"
#include "interchange/gguf.h"
#include "interchange/hugging_face_tokenizer.h"

namespace shiftron::cli {
namespace {

using ::testing::Not;

// A bpe model of 330 pieces whose file says another type, as char's does.
const std::string kChar = "\x12\x02\x18\x04";
// The field of a model that normalises characters.
const std::string kNormaliser(
    "\x1A\x0E\x12\x0C\4\0\0\0\xFF\xFF\xFF\x7F"
    "abc",
    16);

class Exports : public Interchange {
 protected:
  ModelConfig model(int64_t vocab = 332) {
    ModelConfig plain = small_model({.query = 0, .key = 0, .value = 0}, 2, false, 12);
    plain.vocab = vocab;
    return plain;
  }
  std::string text_of(const std::string& verb, std::vector<std::string> words) {
    words.insert(words.begin(), {"checkpoint", verb});
    const auto [code, text] = output_of(interchange_commands(), words);
    EXPECT_EQ(code, 0);
    return text;
  }
  // An export whose tokenizer.model is another one; "" removes it.
  std::string export_with(const std::string& tokenizer) {
    run("export", {step_of(model()), "--output", out_});
    for (const char* name : {"/tokenizer.model", "/tokenizer.json", "/tokenizer_config.json"}) fs::remove(out_ + name);
    if (!tokenizer.empty()) write_text(out_ + "/tokenizer.model", tokenizer);
    return out_;
  }
};

TEST_F(Exports, WeightsGoWithoutATokenizerThatTheFormatCannotSay) {
  tokenizer_ = example_model() + kChar;
  const std::string step = step_of(model());
  const json exported = run("export", {step, "--output", out_});
  EXPECT_THAT(exported["note"].get<std::string>(),
              AllOf(HasSubstr(step + "/tokenizer.model is a SentencePiece model of type char"),
                    HasSubstr("tokenizer.json is not written")));
  EXPECT_EQ(names_in(out_),
            (std::vector<std::string>{"README.md", "config.json", "generation_config.json", "model.safetensors",
                                      "tokenizer.model", "tokenizer_config.json"}));
  EXPECT_EQ(read_file(out_ + "/tokenizer.model"), tokenizer_);
  EXPECT_EQ(read_file(out_ + "/tokenizer_config.json"), refusing_tokenizer_config());
  EXPECT_THAT(read_file(out_ + "/README.md"),
              AllOf(HasSubstr("SentencePieceProcessor"), Not(HasSubstr("AutoTokenizer.from_pretrained"))));
  EXPECT_EQ(run("import", {out_, "--output", imported_})["tokenizer"], true);

  const std::string file = out_ + ".gguf";
  const json gguf = run("export", {step, "--format", "gguf", "--output", file});
  EXPECT_THAT(gguf["note"].get<std::string>(), HasSubstr("of type char"));
  EXPECT_EQ(std::get<std::string>(GgufFile(file).entries().at("tokenizer.ggml.model")), "none");
  EXPECT_EQ(std::get<uint32_t>(GgufFile(file).entries().at("tokenizer.ggml.eos_token_id")), 1u) << "ends documents";
  EXPECT_THAT(text_of("export", {step, "--format", "gguf", "--output", file + "2"}), HasSubstr("\nnote: "));
}

TEST_F(Exports, WeightsGoWithoutATokenizerOfMoreTokens) {
  tokenizer_ = example_model();
  const std::string step = step_of(model(329)), file = out_ + ".gguf";
  const std::string words = step + "/tokenizer.model has 330 tokens, but the model has only 329";
  EXPECT_THAT(run("export", {step, "--output", out_})["note"].get<std::string>(), HasSubstr(words));
  EXPECT_EQ(names_in(out_),
            (std::vector<std::string>{"README.md", "config.json", "generation_config.json", "model.safetensors"}));
  EXPECT_THAT(run("export", {step, "--format", "gguf", "--output", file})["note"].get<std::string>(), HasSubstr(words));
  EXPECT_EQ(std::get<std::string>(GgufFile(file).entries().at("tokenizer.ggml.model")), "none");
}

TEST_F(Exports, UnusedPiecesGoAlong) {
  tokenizer_ = example_model() + piece_field("Q~Q", kUnused);
  const std::string step = step_of(model()), file = out_ + ".gguf";
  EXPECT_FALSE(run("export", {step, "--output", out_}).contains("note"));
  EXPECT_TRUE(fs::exists(out_ + "/tokenizer.json"));
  EXPECT_THAT(read_file(out_ + "/README.md"), HasSubstr("AutoTokenizer.from_pretrained"));
  EXPECT_FALSE(run("export", {step, "--format", "gguf", "--output", file}).contains("note"));
  EXPECT_EQ(std::get<std::string>(GgufFile(file).entries().at("tokenizer.ggml.model")), "llama");
}

TEST_F(Exports, TokensBehindTheTokenizersAreNotMade) {
  tokenizer_ = example_model();
  run("export", {step_of(model()), "--output", out_});
  EXPECT_EQ(json::parse(read_file(out_ + "/generation_config.json"))["suppress_tokens"], json::parse("[330, 331]"));
  fs::remove_all(directory_.path() + "/run");
  run("export", {step_of(model(330)), "--output", out_ + "2"});
  EXPECT_FALSE(json::parse(read_file(out_ + "2/generation_config.json")).contains("suppress_tokens"));
}

// llama.cpp has no list of tokens that must not be made.
TEST_F(Exports, AGgufHoldsTheTokenizersTokensAlone) {
  tokenizer_ = example_model();
  for (const bool tied : {false, true}) {
    fs::remove_all(directory_.path() + "/run");
    ModelConfig padded = model();
    padded.tie_embeddings = tied;
    const std::string step = step_of(padded), path = out_ + (tied ? "tied.gguf" : ".gguf");
    const json exported = run("export", {step, "--format", "gguf", "--output", path, "--precision", "f32"});
    EXPECT_EQ(exported["check"]["tokens"], 16);
    const GgufFile file(path);
    EXPECT_EQ(std::get<uint32_t>(file.entries().at("llama.vocab_size")), 330u);
    EXPECT_THAT(std::get<std::vector<std::string>>(file.entries().at("tokenizer.ggml.tokens")), ::testing::SizeIs(330));
    StepReader source(step, check_step(step));
    int tables = 0;
    for (const SafetensorsTensor& tensor : file.tensors()) {
      if (tensor.name != "token_embd.weight" && tensor.name != "output.weight") continue;
      ++tables;
      const auto width = static_cast<uint64_t>(padded.hidden);
      ASSERT_EQ(tensor.shape, (std::vector<uint64_t>{330, width}));
      std::vector<double> written(330 * width);
      file.read(tensor, 0, written.size(), written.data());
      std::vector<float> saved(332 * width);
      const Shape shape = {332, padded.hidden};
      source.read(
          source.find(TensorGroup::parameters, tensor.name == "output.weight" ? "head.weight" : "embedding.weight"),
          whole_box(shape), saved.data());
      for (size_t i = 0; i < written.size(); ++i) ASSERT_EQ(written[i], static_cast<double>(saved[i])) << tensor.name;
    }
    EXPECT_EQ(tables, tied ? 1 : 2);
  }
  // Without a tokenizer all stay.
  tokenizer_.clear();
  fs::remove_all(directory_.path() + "/run");
  run("export", {step_of(model()), "--format", "gguf", "--output", out_ + "3.gguf"});
  EXPECT_EQ(std::get<uint32_t>(GgufFile(out_ + "3.gguf").entries().at("llama.vocab_size")), 332u);
}

// A token of an import that ends texts, among those that the file has no rows of.
TEST_F(Exports, AnEndBehindTheTokenizersTokensIsTold) {
  tokenizer_ = example_model();
  run("export", {step_of(model()), "--output", out_});
  write_text(out_ + "/generation_config.json", json({{"eos_token_id", {331, 5}}}).dump());
  const json imported = run("import", {out_, "--output", imported_});
  const std::string file = out_ + ".gguf";
  const json exported = run("export", {imported["directory"], "--format", "gguf", "--output", file});
  EXPECT_THAT(exported["note"].get<std::string>(),
              HasSubstr("331 would also end a text, but the tokenizer, and so the file, has only 330 tokens"));
  EXPECT_EQ(std::get<uint32_t>(GgufFile(file).entries().at("tokenizer.ggml.eot_token_id")), 5u);
}

// What is advised can be done, and generate says the same later.
TEST_F(Exports, WhyNoTokenizerCameAlongIsKept) {
  const std::string from = export_with(example_model() + kNormaliser), words = "/tokenizer.model changes text";
  const std::string text = text_of("import", {from, "--format", "hf", "--output", imported_});
  EXPECT_THAT(text, AllOf(HasSubstr("without a tokenizer: " + from + words), HasSubstr("docs/dataset-format.md"),
                          Not(HasSubstr("tokenizer train"))));
  const std::string step = imported_ + "/checkpoints/step-00000000";
  const auto said = [](const std::string& of) {
    const Error error = error_of([&] { tokenizer_of(open_checkpoint(of)); });
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return std::string(error.what());
  };
  EXPECT_THAT(said(step),
              AllOf(HasSubstr(step + " has no tokenizer: " + from + words), Not(HasSubstr("import again"))));
  const json again = run("import", {step, "--format", "shiftron", "--output", imported_ + "2"});
  EXPECT_THAT(said(again["directory"]), HasSubstr(from + words));
  EXPECT_THAT(again["without_tokenizer"].get<std::string>(), HasSubstr(from + words));
}

TEST_F(Exports, ATokenizerThatIsMissingOrAnotherModelsIsPutThere) {
  const std::string from = export_with("");
  EXPECT_THAT(text_of("import", {from, "--format", "hf", "--output", imported_}),
              AllOf(HasSubstr(from + " has no tokenizer.model or tokenizer.json"), HasSubstr("import again")));
  write_text(from + "/tokenizer.model",
             example_model() + piece_field("a1", kNormal) + piece_field("b1", kNormal) + piece_field("c1", kNormal));
  EXPECT_THAT(text_of("import", {from, "--format", "hf", "--output", imported_ + "2"}),
              AllOf(HasSubstr("has 333 tokens, but the model has only 332"), HasSubstr("import again")));
}

// A tokenizer of another kind goes with the model, with what its files say about documents, through a run and back.
TEST_F(Exports, ATokenizerJsonIsKeptUnchanged) {
  const std::string cases = std::string(SHIFTRON_SOURCE_DIR) + "/tests/tokenizer/cases/llama_3.json";
  const std::string bytes = json::parse(read_file(cases))["tokenizer"].dump();
  const std::string from = export_with("");
  write_text(from + "/tokenizer.json", bytes);
  write_text(from + "/tokenizer_config.json", R"({"eos_token": "<|end_of_text|>", "add_bos_token": true,
                                                  "bos_token": "<|begin_of_text|>"})");
  EXPECT_THAT(text_of("import", {from, "--format", "hf", "--output", imported_}),
              HasSubstr("has 450 tokens, but the model has only 332"));
  fs::remove_all(out_);
  fs::remove_all(directory_.path() + "/run");
  run("export", {step_of(model(450)), "--output", out_});
  fs::remove(out_ + "/tokenizer.model");
  write_text(out_ + "/tokenizer.json", bytes);
  write_text(out_ + "/tokenizer_config.json", R"({"eos_token": "<|end_of_text|>"})");
  const json imported = run("import", {out_, "--output", imported_ + "2"});
  EXPECT_EQ(imported["tokenizer"], true) << imported["without_tokenizer"];
  const StoredTokenizer stored = open_checkpoint(imported["directory"]).content.tokenizer;
  EXPECT_EQ(stored.file.name, "tokenizer.json");
  EXPECT_EQ(stored.file.bytes, bytes);
  EXPECT_EQ(stored.settings, (TokenizerSettings{1, 0, false}));
  const json again = run("import", {imported["directory"], "--format", "shiftron", "--output", imported_ + "3"});
  EXPECT_EQ(open_checkpoint(again["directory"]).content.tokenizer.settings, stored.settings);
  run("export", {again["directory"], "--output", out_ + "2"});
  EXPECT_EQ(read_file(out_ + "2/tokenizer.json"), bytes);
  const json config = json::parse(read_file(out_ + "2/tokenizer_config.json"));
  EXPECT_EQ(config["eos_token"], "<|end_of_text|>");
  EXPECT_EQ(config["bos_token"], "<|begin_of_text|>");
  EXPECT_EQ(config["add_bos_token"], true);
  EXPECT_EQ(json::parse(read_file(out_ + "2/generation_config.json"))["eos_token_id"], 1);
  const json gguf = run("export", {again["directory"], "--format", "gguf", "--output", out_ + ".gguf"});
  EXPECT_FALSE(gguf.contains("note")) << "the tokenizer is in the file";
}

TEST_F(Exports, LlamaCppIsToldToPutASpaceInFront) {
  const std::string cases = std::string(SHIFTRON_SOURCE_DIR) + "/tests/tokenizer/cases/";
  run("export", {step_of(model(650)), "--output", out_});
  fs::remove(out_ + "/tokenizer.model");
  const std::string from = out_;
  const auto puts_space = [&](const std::string& family) {
    write_text(from + "/tokenizer.json", json::parse(read_file(cases + family + ".json"))["tokenizer"].dump());
    write_text(from + "/tokenizer_config.json", R"({"eos_token": "</s>"})");
    const json imported = run("import", {from, "--output", imported_ + family});
    EXPECT_EQ(imported["tokenizer"], true) << imported["without_tokenizer"];
    run("export", {imported["directory"], "--format", "gguf", "--output", out_ + family + ".gguf"});
    return std::get<bool>(GgufFile(out_ + family + ".gguf").entries().at("tokenizer.ggml.add_space_prefix"));
  };
  EXPECT_TRUE(puts_space("mistral"));
  EXPECT_FALSE(puts_space("gemma"));
}

// What the files say in addition to the weights: training here does not use it, but an export writes it again.
TEST_F(Exports, WhatAnImportKnowsOfTheModelGoesAlong) {
  const std::string from = export_with("");
  const auto set = [&](const json& changes) {
    json config = json::parse(read_file(from + "/config.json"));
    config.update(changes);
    write_text(from + "/config.json", config.dump());
  };
  set({{"max_position_embeddings", 131072}, {"eos_token_id", {7, 8}}, {"bos_token_id", 1}});
  std::string step = run("import", {from, "--output", imported_})["directory"];
  EXPECT_EQ(open_checkpoint(step).config.train.sequence_length, 4096);  // that it is evaluated with
  const auto expect_said = [&](const std::string& out) {
    const json exported = run("export", {step, "--output", out});
    EXPECT_FALSE(exported.contains("note"));
    const json config = json::parse(read_file(out + "/config.json"));
    EXPECT_EQ(config["max_position_embeddings"], 131072);
    for (const json& said : {config, json::parse(read_file(out + "/generation_config.json"))}) {
      EXPECT_EQ(said["eos_token_id"], json::parse("[7, 8]"));
      EXPECT_EQ(said["bos_token_id"], 1);
    }
    EXPECT_FALSE(run("export", {step, "--format", "gguf", "--output", out + ".gguf"}).contains("note"));
    const GgufFile file(out + ".gguf");
    EXPECT_EQ(std::get<uint32_t>(file.entries().at("tokenizer.ggml.eot_token_id")), 8u);
    EXPECT_EQ(std::get<uint32_t>(file.entries().at("llama.context_length")), 131072u);
    EXPECT_EQ(std::get<uint32_t>(file.entries().at("tokenizer.ggml.eos_token_id")), 7u);
  };
  expect_said(out_ + "2");
  EXPECT_THAT(read_file(out_ + "2/README.md"),
              HasSubstr("| origin | imported from `" + from + "`, not trained since |"));
  const std::string first = step;
  step = run("import", {step, "--format", "shiftron", "--output", imported_ + "2"})["directory"];
  expect_said(out_ + "3");
  EXPECT_THAT(read_file(out_ + "3/README.md"), HasSubstr("imported from `" + from + ", then " + first + "`, not"));
}

TEST_F(Exports, AnotherEndThanTheTokenizersIsTold) {
  tokenizer_ = example_model();
  run("export", {step_of(model()), "--output", out_});
  EXPECT_FALSE(run("import", {out_, "--output", imported_}).contains("note"));
  const json config = json::parse(read_file(out_ + "/generation_config.json"));
  const int64_t own = config["eos_token_id"];
  write_text(out_ + "/generation_config.json", R"({"eos_token_id": 7})");
  const json told = run("import", {out_, "--output", imported_ + "2"});
  EXPECT_THAT(
      told["note"].get<std::string>(),
      HasSubstr("eos_token_id is 7, but " + out_ + "/tokenizer.model ends documents with " + std::to_string(own)));
  EXPECT_THAT(text_of("import", {out_, "--format", "hf", "--output", imported_ + "3"}),
              HasSubstr("\nnote: eos_token_id"));
  run("export", {told["directory"], "--output", out_ + "2"});
  EXPECT_EQ(json::parse(read_file(out_ + "2/generation_config.json"))["eos_token_id"], json({own, 7}));
}

// Of GGUF two: the tokenizer's own, and another.
TEST_F(Exports, EndsThatAFileHasNoPlaceForAreTold) {
  tokenizer_ = example_model();
  const std::string step = step_of(model()), file = out_ + ".gguf";
  const auto ends = [&] {
    const std::map<std::string, GgufValue> entries = GgufFile(file).entries();
    fs::remove(file);
    std::vector<uint32_t> said;
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
      if (entries.contains(key)) said.push_back(std::get<uint32_t>(entries.at(key)));
    }
    return said;
  };
  run("export", {step, "--format", "gguf", "--output", file});
  const uint32_t own = ends().at(0);
  run("export", {step, "--output", out_});
  write_text(out_ + "/generation_config.json", json({{"eos_token_id", {5, own, 7}}, {"bos_token_id", 332}}).dump());
  const json imported = run("import", {out_, "--output", imported_});
  EXPECT_THAT(imported["note"].get<std::string>(), HasSubstr("bos_token_id 332 is ignored"));
  const json exported = run("export", {imported["directory"], "--format", "gguf", "--output", file});
  EXPECT_EQ(ends(), (std::vector<uint32_t>{own, 5}));
  EXPECT_THAT(exported["note"].get<std::string>(), HasSubstr("these are not written: 7"));
}

// Steps of versions that kept no more of an import than its name.
TEST_F(Exports, AnOlderImportIsNamedToo) {
  SavedState state;
  state.imported_from = "/older";
  EXPECT_EQ(saved_state(to_json(state), "").origin.from, "/older");
}

TEST_F(Exports, AModelWithoutAnyEndIsTold) {
  const std::string step = step_of(model());
  for (const char* format : {"hf", "gguf"}) {
    EXPECT_THAT(run("export", {step, "--format", format, "--output", out_ + format})["note"].get<std::string>(),
                HasSubstr("no token ends a text"));
  }
}

TEST_F(Exports, NamesThatAreNoUtf8) {
  run("export", {step_of(model()), "--output", out_});
  const std::string odd = directory_.path() + "/odd\xFF";
  fs::rename(out_, odd);
  const Error error = error_of([&] { run("import", {odd, "--output", imported_}); });
  EXPECT_EQ(error.code(), ExitCode::bad_input);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("odd\\xFF"), HasSubstr("must be UTF-8; rename it")));
  EXPECT_FALSE(fs::exists(imported_));
}

TEST_F(Exports, TheNameOfAGgufIsText) {
  const std::string step = step_of(model());
  const auto name_of = [&](const std::string& output, const std::string& file) {
    run("export", {step, "--format", "gguf", "--output", output});
    return std::get<std::string>(GgufFile(file).entries().at("general.name"));
  };
  const std::string folder = directory_.path() + "/";
  EXPECT_EQ(name_of(folder + "a\xFF.gguf", folder + "a\xFF.gguf"), "a\\xFF");
  EXPECT_EQ(name_of(folder + "b.gguf/", folder + "b.gguf"), "b");
}

TEST_F(Exports, AdvisedCommandsAreWordsOfAShell) {
  run("export", {step_of(model()), "--output", out_});
  const std::string next = run("import", {out_, "--output", directory_.path() + "/a run"})["next"];
  EXPECT_EQ(next, "shiftron train --config '" + directory_.path() + "/a run/config.conf' --config YOURS.conf " +
                      "--output.directory '" + directory_.path() + "/a run'");
}

}  // namespace
}  // namespace shiftron::cli
