// `shiftron checkpoint export` and `import` from end to end, in one process.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <streambuf>

#include "checkpoint/verify.h"
#include "cli/interchange_fixture.h"
#include "core/directory_lock.h"
#include "evaluate/checkpoint_model.h"
#include "interchange/gguf.h"
#include "interchange/hugging_face_source.h"

namespace shiftron::cli {
namespace {

TEST_F(Interchange, ExportsAreCheckedAndComeBack) {
  const std::string step = step_of(small_model({.query = 0, .key = 1, .value = 1}));
  const json exported = run("export", {step, "--output", out_});
  EXPECT_EQ(exported["form"], "kv-shift");
  EXPECT_EQ(exported["precision"], "float32");
  EXPECT_LE(exported["check"]["largest_difference"], exported["check"]["allowed"]);
  EXPECT_EQ(exported["check"]["tokens"], 16);
  EXPECT_EQ(names_in(out_), (std::vector<std::string>{"README.md", "config.json", "generation_config.json",
                                                      "model.safetensors", "modeling_kv_shift_llama.py"}));
  const std::string card = read_file(out_ + "/README.md");
  for (const char* fact : {"9 steps of 4 sequences of 32 tokens: 1152 tokens", "`0123`", "`test, 1`",
                           "trust_remote_code=True", "files computed the logits of", "keys 1, values 1"}) {
    EXPECT_THAT(card, HasSubstr(fact));
  }
  EXPECT_THAT(card, ::testing::ContainsRegex("tested with transformers 5[.0-9]+(, 5[.0-9]+)*, refuses"));
  const json imported = run("import", {out_, "--output", imported_});
  EXPECT_EQ(imported["directory"], imported_ + "/checkpoints/step-00000000");
  EXPECT_THAT(imported["next"].get<std::string>(), HasSubstr("shiftron train --config " + imported_ + "/config.conf"));
  StepReader read(imported["directory"], check_step(imported["directory"]));
  for (const ManifestTensor& tensor : source_->tensors()) {
    std::vector<float> values(static_cast<size_t>(tensor.shape.count()));
    read.read(read.find(TensorGroup::parameters, tensor.name), whole_box(tensor.shape), values.data());
    EXPECT_EQ(values, source_->values(tensor.name)) << tensor.name;
  }
  EXPECT_EQ(open_checkpoint(imported["directory"]).config.model,
            source_.has_value() ? small_model({.query = 0, .key = 1, .value = 1}) : ModelConfig{});
  const std::string config = read_file(imported_ + "/config.conf");
  EXPECT_THAT(config, HasSubstr("[model]"));
  EXPECT_THAT(config, HasSubstr("key = 1"));
  EXPECT_EQ(config.find("[train]"), std::string::npos);
}

// An export holds taps as they are mixed, a step of these forms the weights that they are made of.
TEST_F(Interchange, DiffMixesTapsOfEveryForm) {
  for (const ShiftForm form : {ShiftForm::gate, ShiftForm::clamp, ShiftForm::project}) {
    SCOPED_TRACE(to_string(form));
    const ModelConfig model = small_model({.query = 0, .key = 1, .value = 1, .form = form});
    const std::string step = step_of(model);
    run("export", {step, "--output", out_});
    EXPECT_EQ(diff(step, out_)["equal"], true);
    EXPECT_EQ(diff(out_, step)["equal"], true);
    std::filesystem::remove_all(out_);
    MemorySource changed(model);
    for (float& weight : changed.values("layers.1.attention.shift_key")) weight = 0.375F - weight;
    write_hugging_face(changed, export_of(model, HuggingFaceForm::kv_shift), out_);
    const json other = diff(step, out_);
    ASSERT_EQ(other["unequal"].size(), 1u);
    EXPECT_EQ(other["unequal"][0]["path"], "parameters/layers.1.attention.shift_key");
    std::filesystem::remove_all(directory_.path() + "/run");
    std::filesystem::remove_all(out_);
  }
}

// A manifest's hash protects its text, not its sense.
TEST_F(Interchange, AStepOfAnImpossibleModelIsRefused) {
  ModelConfig model = small_model({.query = 0, .key = 1, .value = 1});
  model.rope_base = -1;
  const std::string step = step_of(model);
  for (const char* format : {"hf", "gguf"}) {
    const Error error = error_of([&] { run("export", {step, "--format", format, "--output", out_}); });
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), HasSubstr("model.rope_base"));
  }
}

TEST_F(Interchange, DiffComparesAStepWithItsExport) {
  const std::string step = step_of(small_model({.query = 0, .key = 1, .value = 1}));
  run("export", {step, "--output", out_});
  const json same = diff(step, out_);
  EXPECT_EQ(same["equal"], true);
  EXPECT_EQ(same["steps"], json::parse("[9, null]"));  // files of another program know no step
  EXPECT_EQ(same["state_equal"], json());
  MemorySource changed(small_model({.query = 0, .key = 1, .value = 1}));
  changed.values("layers.1.attention.shift_value")[3] += 1;
  write_hugging_face(changed, export_of(small_model({.query = 0, .key = 1, .value = 1}), HuggingFaceForm::kv_shift),
                     out_ + "2");
  EXPECT_EQ(diff(step, out_ + "2")["equal"], false);
  EXPECT_EQ(diff(out_, out_ + "2")["steps"], json::parse("[null, null]"));
  run("export", {step, "--output", out_ + "3", "--precision", "fp64"});
  EXPECT_EQ(diff(out_ + "3", step)["equal"], true);  // the same numbers in another type
}

// In float64 no bit is lost on either way.
TEST_F(Interchange, AWideRunAndItsExportAreEqual) {
  const std::string step = step_of(small_model({.query = 0, .key = 1, .value = 1}), Precision::fp64);
  EXPECT_EQ(run("export", {step, "--output", out_})["precision"], "float64");
  EXPECT_EQ(diff(step, out_)["equal"], true);
  const std::string imported = run("import", {out_, "--output", imported_})["directory"];
  EXPECT_EQ(open_checkpoint(imported).config.train.precision, Precision::fp64);
  EXPECT_EQ(diff(imported, out_)["equal"], true);
  run("export", {step, "--output", out_ + "2", "--precision", "fp32"});
  EXPECT_EQ(diff(step, out_ + "2")["equal"], false);
}

TEST_F(Interchange, PrecisionAndFormAreThoseAskedFor) {
  const std::string step = step_of(small_model({.query = 0, .key = 1, .value = 1}), Precision::bf16);
  EXPECT_EQ(run("export", {step, "--output", out_})["precision"], "bfloat16");
  EXPECT_EQ(run("export", {step, "--output", out_ + "2", "--precision", "fp32", "--as", "canon"})["precision"],
            "float32");
  EXPECT_THAT(read_file(out_ + "2/README.md"), HasSubstr("PhysicsLM4"));
  const Error error = error_of([&] { run("export", {step, "--output", out_ + "3", "--as", "llama"}); });
  EXPECT_EQ(error.code(), ExitCode::bad_input);
  EXPECT_FALSE(fs::exists(out_ + "3"));
}

// transformers' Llama reads its number of heads and loads only widths that they divide; our module computes any.
TEST_F(Interchange, AWidthThatHeadsDoNotDivideIsNoPlainLlama) {
  const std::string step = step_of(small_model({.query = 0, .key = 0, .value = 0}));
  const Error error = error_of([&] { run("export", {step, "--output", out_, "--as", "llama"}); });
  EXPECT_EQ(error.code(), ExitCode::bad_input);
  EXPECT_THAT(error.what(), HasSubstr("hidden 10, heads 4; use --as kv-shift"));
  EXPECT_EQ(run("export", {step, "--output", out_})["form"], "kv-shift");
  EXPECT_THAT(read_file(out_ + "/config.json"), HasSubstr("\"shift_k\": 0"));
  EXPECT_THAT(read_file(out_ + "/README.md"),
              AllOf(HasSubstr("trust_remote_code=True"), HasSubstr("# A language model\n"),
                    HasSubstr("whose width, 10, is not a multiple of its number of heads, 4")));
  EXPECT_EQ(diff(step, out_)["equal"], true);
}

// Kills its process where it is given anything.
class KillingBuffer : public std::streambuf {
  int overflow(int) override { return ::kill(::getpid(), SIGKILL); }
};

// Killed before they printed their result: each prints it when it is run again.
TEST_F(Interchange, WhatWasNotToldIsToldByTheSameCommand) {
  const std::string step = step_of(small_model({.query = 0, .key = 0, .value = 0}));
  run("export", {step, "--output", out_});
  const auto run_killed = [&](const std::vector<Command>& commands, const std::vector<std::string>& words) {
    const pid_t child = ::fork();
    if (child == 0) {
      KillingBuffer buffer;
      std::cout.rdbuf(&buffer);
      ::_exit(dispatch(commands, words));
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << words[1];
  };
  const std::string converted = directory_.path() + "/converted";
  const std::vector<std::pair<std::vector<Command>, std::vector<std::string>>> commands = {
      {interchange_commands(), {"checkpoint", "import", out_, "--format", "hf", "--output", imported_}},
      {interchange_commands(), {"checkpoint", "import", step, "--format", "shiftron", "--output", imported_ + "2"}},
      {checkpoint_commands(), {"checkpoint", "convert", step, "--layout", "tp=2", "--output", converted}},
      {interchange_commands(), {"checkpoint", "export", step, "--format", "hf", "--output", out_ + "2"}},
      {interchange_commands(), {"checkpoint", "export", step, "--format", "gguf", "--output", out_ + ".gguf"}}};
  for (const auto& [table, given] : commands) {
    SCOPED_TRACE(given[1] + " " + given.back());
    std::vector<std::string> words = given;
    words.push_back("--json");
    run_killed(table, words);
    ASSERT_TRUE(fs::exists(given.back()));
    const auto [code, text] = output_of(table, words);
    EXPECT_EQ(code, 0);
    const json told = json::parse(text);
    if (given[1] != "export") {
      EXPECT_EQ(told["was_there"], true);
      EXPECT_TRUE(verify_step(told["directory"]).empty());
      EXPECT_EQ(names_in(given.back()), (std::vector<std::string>{"checkpoints", "config.conf"}));
    }
    EXPECT_FALSE(fs::exists(given.back() + ".tmp"));
    const Error again = error_of([&, table = table] { output_of(table, words); });
    EXPECT_EQ(again.code(), ExitCode::bad_input);
    EXPECT_THAT(again.what(), HasSubstr("already"));
  }
  fs::remove_all(converted);  // another request is refused
  std::vector<std::string> words = commands[2].second;
  run_killed(commands[2].first, words);
  words[4] = "pp=2";
  const Error other = error_of([&] { output_of(commands[2].first, words); });
  EXPECT_EQ(other.code(), ExitCode::bad_input);
  EXPECT_THAT(other.what(), HasSubstr("step-00000009 already exists"));
}

// A killed import may be given again; of two at once the later one is refused, and harms nothing.
TEST_F(Interchange, ImportsAfterAKillAndAtOnce) {
  const std::string step = step_of(small_model({.query = 0, .key = 0, .value = 0}));
  run("export", {step, "--output", out_});
  fs::create_directories(imported_ + "/checkpoints/step-00000000.tmp");
  write_text(imported_ + "/checkpoints/step-00000000.tmp/rank-00000.h5", "half");
  {
    const DirectoryLock other(imported_, "wait for it", [](const std::string&) {});
    const Error error = error_of([&] { run("import", {out_, "--output", imported_}); });
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), HasSubstr("is in use"));
    EXPECT_TRUE(fs::exists(imported_ + "/checkpoints/step-00000000.tmp/rank-00000.h5"));
  }
  run("import", {out_, "--output", imported_});
  EXPECT_EQ(names_in(imported_), (std::vector<std::string>{"checkpoints", "config.conf"}));
  EXPECT_EQ(names_in(imported_ + "/checkpoints"), std::vector<std::string>{"step-00000000"});
  EXPECT_THAT(error_of([&] { run("import", {out_, "--output", imported_}); }).what(), HasSubstr("already exists"));
}

TEST_F(Interchange, WhatIsThereIsNotTouched) {
  const std::string step = step_of(small_model({.query = 0, .key = 0, .value = 0}, 2, false, 12));
  EXPECT_EQ(run("export", {step, "--output", out_})["form"], "llama");
  EXPECT_EQ(error_of([&] { run("export", {step, "--output", out_}); }).code(), ExitCode::bad_input);
  EXPECT_THAT(error_of([&] {
                run("export", {directory_.path() + "/run", "--output", out_ + "2"});
              }).what(),
              HasSubstr("its newest step is"));
  fs::create_directory(imported_);
  write_text(imported_ + "/mine", "text");
  EXPECT_THAT(error_of([&] { run("import", {out_, "--output", imported_}); }).what(), HasSubstr("already contains"));
  EXPECT_EQ(names_in(imported_), std::vector<std::string>{"mine"});
  EXPECT_THAT(error_of([&] {
                run("import", {out_ + "9", "--output", imported_ + "2"});
              }).what(),
              HasSubstr("is not a directory"));
  EXPECT_FALSE(fs::exists(imported_ + "2"));
}

TEST_F(Interchange, AShiftThatIsAskedForBeginsAsTheIdentity) {
  const std::string step = step_of(small_model({.query = 0, .key = 0, .value = 0}));
  run("export", {step, "--output", out_});
  const json imported = run("import", {out_, "--output", imported_, "--shift.key", "1", "--shift.value", "2"});
  const ShiftConfig shift = open_checkpoint(imported["directory"]).config.model.shift;
  EXPECT_EQ(shift, (ShiftConfig{.query = 0, .key = 1, .value = 2}));
  EXPECT_THAT(read_file(imported_ + "/config.conf"), HasSubstr("value = 2"));
}

TEST_F(Interchange, GgufIsCheckedToo) {
  const ModelConfig model = small_model({.query = 0, .key = 0, .value = 0});
  const std::string step = step_of(model), file = out_ + ".gguf";
  const json exported = run("export", {step, "--format", "gguf", "--output", file});
  EXPECT_EQ(exported["file"], file);
  EXPECT_EQ(exported["precision"], "float32");
  EXPECT_EQ(exported["bytes"], fs::file_size(file));
  EXPECT_LE(exported["check"]["largest_difference"], exported["check"]["allowed"]);
  EXPECT_GT(exported["check"]["largest_logit"], 0.1);
  const GgufFile read(file);
  EXPECT_EQ(std::get<std::string>(read.entries().at("general.name")), "out");
  EXPECT_EQ(std::get<std::string>(read.entries().at("tokenizer.ggml.model")), "none");
  for (const char* precision : {"f16", "bf16"}) {
    const std::string other = out_ + precision;
    EXPECT_EQ(run("export", {step, "--format", "gguf", "--output", other, "--precision", precision})["precision"],
              precision == std::string("f16") ? "float16" : "bfloat16");
  }
}

TEST_F(Interchange, AShiftIsNoGguf) {
  const std::string step = step_of(small_model({.query = 0, .key = 1, .value = 0}));
  const Error error = error_of([&] { run("export", {step, "--format", "gguf", "--output", out_}); });
  EXPECT_EQ(error.code(), ExitCode::bad_input);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("llama.cpp cannot compute"), HasSubstr("--format hf")));
  EXPECT_EQ(names_in(directory_.path()), std::vector<std::string>{"run"});
}

TEST_F(Interchange, OptionsOfAnotherFormatAreRefused) {
  const std::string step = step_of(small_model({.query = 0, .key = 0, .value = 0}));
  const auto fault = [&](const std::string& verb, const std::string& format, std::vector<std::string> more) {
    more.insert(more.begin(), {step, "--format", format, "--output", out_});
    const Error error = error_of([&] { run(verb, more); });
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_FALSE(fs::exists(out_));
    return std::string(error.what());
  };
  EXPECT_THAT(fault("export", "gguf", {"--as", "llama"}), HasSubstr("--format gguf does not use --as"));
  EXPECT_THAT(fault("export", "gguf", {"--precision", "fp32"}), HasSubstr("takes --precision f32|f16|bf16, not fp32"));
  EXPECT_THAT(fault("export", "hf", {"--precision", "f16"}), HasSubstr("takes --precision fp32|bf16|fp64, not f16"));
  EXPECT_THAT(fault("export", "megatron", {}), HasSubstr("megatron"));
  EXPECT_THAT(fault("import", "gguf", {}), HasSubstr("gguf"));
  EXPECT_THAT(fault("import", "megatron", {"--norm-head"}), HasSubstr("--format megatron does not use --norm-head"));
}

// Only parameters, after updates, in halves: the gate's raw taps, the missing tokenizer and the evaluation's numbers
// are exported too.
TEST_F(Interchange, AStepOfOursBeginsANewRun) {
  const ModelConfig model =
      small_model({.query = 1, .key = 1, .value = 1, .form = ShiftForm::gate, .reset = ShiftReset::never});
  const std::string step = step_of(model, Precision::bf16, DType::bfloat16, true);
  const std::string imported = run("import", {step, "--format", "shiftron", "--output", imported_})["directory"];
  EXPECT_EQ(imported, imported_ + "/checkpoints/step-00000000");
  EXPECT_EQ(diff(step, imported, {"--parameters"})["equal"], true);
  const CheckpointModel opened = open_checkpoint(imported);
  EXPECT_EQ(opened.config.model, model);
  EXPECT_EQ(opened.config.train.precision, Precision::bf16);
  EXPECT_EQ(opened.config.train.sequence_length, 32);
  EXPECT_FALSE(opened.config.data.document_reset);
  const SavedState state = saved_state(opened.content.state_json, imported);
  EXPECT_EQ(state.imported_from, step);
  EXPECT_EQ(state.trainer, TrainerState{});
  for (const ManifestTensor& tensor : read_manifest(imported).tensors) {
    EXPECT_EQ(tensor.group, TensorGroup::parameters) << tensor.name;
    EXPECT_EQ(tensor.dtype, DType::bfloat16) << tensor.name;
  }
  EXPECT_TRUE(can_start_without_moments(opened.content.state_json));
  EXPECT_FALSE(can_start_without_moments(open_checkpoint(step).content.state_json));
  EXPECT_THAT(read_file(imported_ + "/config.conf"), AllOf(HasSubstr("form = gate"), HasSubstr("reset = never")));
  EXPECT_THAT(error_of([&] {
                run("import", {directory_.path() + "/run", "--format", "shiftron", "--output", out_});
              }).what(),
              HasSubstr("its newest step is " + step));
  EXPECT_THAT(error_of([&] {
                run("import", {step, "--format", "shiftron", "--output", out_, "--shift.key", "2"});
              }).what(),
              HasSubstr("--format shiftron does not use --shift.key"));
}

// One KV head for each head and one layer of Megatron-LM's, out of the parameters; more forms:
// checkpoint/megatron_test.
TEST_F(Interchange, MegatronsTensorsBecomeARun) {
  const ModelConfig model = small_model({.query = 0, .key = 0, .value = 0}, 4, true);
  const std::string step = step_of(model), in = directory_.path() + "/megatron";
  fs::create_directories(in);
  std::map<std::string, std::pair<std::vector<uint64_t>, std::vector<float>>> tensors;
  for (const std::string layer : {"0", "1"}) {
    const auto ours = [&](const std::string& name) {
      return source_->values("layers." + layer + "." + name + ".weight");
    };
    std::vector<float> qkv, up = ours("mlp.gate");
    for (int head = 0; head < 4; ++head) {
      for (const char* stream : {"query", "key", "value"}) {
        const std::vector<float> all = ours(std::string("attention.") + stream);
        qkv.insert(qkv.end(), all.begin() + head * 60, all.begin() + (head + 1) * 60);
      }
    }
    const std::vector<float> second = ours("mlp.up");
    up.insert(up.end(), second.begin(), second.end());
    const std::string theirs = "decoder.layers." + layer + ".";
    tensors[theirs + "self_attention.linear_qkv.weight"] = {{72, 10}, qkv};
    tensors[theirs + "self_attention.linear_qkv.layer_norm_weight"] = {{10}, ours("attention_norm")};
    tensors[theirs + "self_attention.linear_proj.weight"] = {{10, 24}, ours("attention.out")};
    tensors[theirs + "mlp.linear_fc1.weight"] = {{28, 10}, up};
    tensors[theirs + "mlp.linear_fc1.layer_norm_weight"] = {{10}, ours("mlp_norm")};
    tensors[theirs + "mlp.linear_fc2.weight"] = {{10, 14}, ours("mlp.down")};
  }
  tensors["embedding.word_embeddings.weight"] = {{19, 10}, source_->values("embedding.weight")};
  tensors["decoder.final_layernorm.weight"] = {{10}, source_->values("final_norm.weight")};
  std::vector<SafetensorsTensor> described;
  for (const auto& [name, tensor] : tensors) {
    described.push_back({.name = name, .type = SafetensorsType::F32, .shape = tensor.first});
  }
  SafetensorsWriter writer(in + "/model.safetensors", described, {});
  for (const auto& [name, tensor] : tensors) writer.append(tensor.second.data(), tensor.second.size() * sizeof(float));
  writer.finish();
  write_text(in + "/config.json", R"({"heads": 4, "rope_base": 12345, "norm_epsilon": 1e-3})");
  const json imported = run("import", {in, "--format", "megatron", "--output", imported_, "--shift.key", "1"});
  EXPECT_EQ(imported["form"], "llama");
  StepReader read(imported["directory"], check_step(imported["directory"]));
  for (const ManifestTensor& tensor : source_->tensors()) {
    std::vector<float> values(static_cast<size_t>(tensor.shape.count()));
    read.read(read.find(TensorGroup::parameters, tensor.name), whole_box(tensor.shape), values.data());
    EXPECT_EQ(values, source_->values(tensor.name)) << tensor.name;
  }
  EXPECT_EQ(open_checkpoint(imported["directory"]).config.model.shift.key, 1);
}

}  // namespace
}  // namespace shiftron::cli
