// Speed of saving and restoring, compared with the disk's limit.
//   checkpoint_files --config FILE [--KEY VALUE]… [--directory DIR] [--rounds N] [--json] [--live]
// The state of a run (masters and two moments, random bits) is saved and restored as `shiftron train` does it, on one
// rank. In every round, alternately before or after it, plain calls move the same bytes between the same memory and a
// file on the same disk: write and fsync, pread, block by block, with one thread, without a hash. A share is the time
// of the plain calls over ours, by rounds. Reads are measured twice: "cold", after the page cache has dropped the files
// (checked with mincore()), and "warm", when it holds all of them. `written`: until the file is on the disk, hashed but
// not yet read back; `saved`: the whole save.
// --live: reads requests on stdin ("save", "restore cold", …) and answers each with a line of JSON, for
// checkpoint_vs_pytorch.py.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/reader.h"
#include "checkpoint/restore.h"
#include "checkpoint/save.h"
#include "cli/config_reader.h"
#include "cli/process.h"
#include "config/config_text.h"
#include "config/validate.h"
#include "core/file.h"
#include "interchange/hugging_face_export.h"
#include "local_trainer.h"
#include "program.h"
#include "train/convert.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kPiece = size_t{4} << 20;  // of plain calls: what save and restore move at once

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Share of a file's pages that the page cache holds.
double cached_share(const std::string& path) {
  const FileDescriptor file = FileDescriptor::open_for_reading(path);
  const size_t bytes = file.size(), pages = (bytes + 4095) / 4096;
  if (bytes == 0) return 0;
  void* view = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  CHECK(view != MAP_FAILED, "cannot map ", path);
  std::vector<unsigned char> present(pages);
  const int result = ::mincore(view, bytes, present.data());
  ::munmap(view, bytes);
  CHECK(result == 0, "cannot ask for the pages of ", path);
  return static_cast<double>(std::ranges::count_if(present, [](unsigned char page) { return (page & 1) != 0; })) /
         static_cast<double>(pages);
}

// The page cache forgets the files, which are synced, below a path; returns the largest share that it keeps of one.
double forget(const std::string& path) {
  double kept = 0;
  const auto forget_file = [&](const std::string& name) {
    const FileDescriptor file = FileDescriptor::open_for_reading(name);
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    kept = std::max(kept, cached_share(name));
  };
  if (!fs::is_directory(path)) {
    forget_file(path);
  } else {
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) forget_file(entry.path());
    }
  }
  return kept;
}

class State {
 public:
  State(const RunConfig& config, int threads, const std::string& directory)
      : config_(config),
        threads_(threads),
        trainer_(config, threads),
        world_(make_single_world()),
        directory_(directory) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    uint64_t bits = 1;
    std::vector<uint32_t> row;
    for (const auto& parameter : set().parameters()) {
      for (const ParameterState state : {ParameterState::first_moment, ParameterState::second_moment}) {
        row.resize(static_cast<size_t>(parameter->box.extent.count()));
        for (uint32_t& value : row) {  // floats below 1, so that a step of them can be exported
          bits = bits * 6364136223846793005u + 1442695040888963407u;
          value = static_cast<uint32_t>(bits >> 41) | 0x3e000000u;
        }
        set().write(*parameter, state, 0, static_cast<int64_t>(row.size()), row.data());
      }
      places_.push_back(parameter.get());
      bytes_ += 3 * 4 * parameter->box.extent.count();
    }
  }
  ~State() {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  int64_t bytes() const { return bytes_; }
  ParameterSet& set() { return trainer_.parameters(); }

  // Seconds until a new file of the state's bytes is synced.
  double raw_write() {
    fs::remove(raw_path());
    const auto start = Clock::now();
    FileDescriptor file = FileDescriptor::create(raw_path());
    for_each_piece([&](void* data, size_t bytes, uint64_t) { file.append(data, bytes); });
    file.sync();
    file.close();
    return seconds_since(start);
  }
  // Seconds until the bytes of raw_write() are back where they were.
  double raw_read(bool cold) {
    if (cold) note_cold(forget(raw_path()));
    const auto start = Clock::now();
    const FileDescriptor file = FileDescriptor::open_for_reading(raw_path());
    for_each_piece([&](void* data, size_t bytes, uint64_t offset) { file.read_at(offset, data, bytes); });
    return seconds_since(start);
  }

  // Seconds from the start of a save of a new step to the points of its protocol.
  std::map<std::string, double> save() {
    fs::remove_all(checkpoints());
    fs::create_directories(checkpoints());
    std::map<std::string, double> points;
    SaveOptions options;
    options.threads = threads_;
    const auto start = Clock::now();
    options.at_point = [&](const std::string& point) { points[point] = seconds_since(start); };
    const SaveResult saved = save_checkpoint(checkpoints(), content(), set(), *world_, {.keep = 2}, log_, options);
    if (!saved.saved) throw_crash("cannot save: ", saved.reason);
    points["saved"] = seconds_since(start);
    return points;
  }
  double restore(bool cold) {
    if (cold) note_cold(forget(step()));
    const auto start = Clock::now();
    load_parameters(step(), set(), {.with_moments = true, .threads = threads_});
    return seconds_since(start);
  }
  // A step of files for two ranks, out of the saved one, which the page cache holds.
  double convert() {
    const std::string output = directory_ + "/converted";
    ConvertOptions options;
    options.write.threads = threads_;
    const auto start = Clock::now();
    convert_step(step(), "tp=2", output, log_, options);
    const double seconds = seconds_since(start);
    fs::remove_all(output);
    return seconds;
  }
  // The saved step's parameters in bfloat16, without the check of their logits. Seconds and bytes written.
  std::pair<double, uint64_t> export_model() {
    const std::string output = directory_ + "/exported";
    HuggingFaceExport how;
    const ShiftConfig& shift = config_.model.shift;
    how.config = {.model = config_.model,
                  .form = most_previous_tokens(shift) > 0 ? HuggingFaceForm::kv_shift : HuggingFaceForm::llama,
                  .type = SafetensorsType::BF16,
                  .positions = config_.train.sequence_length};
    const auto start = Clock::now();
    StepReader source(step(), check_step(step()));
    const WrittenExport written = write_hugging_face(source, how, output);
    const double seconds = seconds_since(start);
    fs::remove_all(output);
    return {seconds, written.bytes};
  }

  double most_cached_when_cold() const { return cached_when_cold_; }

 private:
  std::string raw_path() const { return directory_ + "/raw"; }
  std::string checkpoints() const { return directory_ + "/checkpoints"; }
  std::string step() const { return checkpoints() + "/" + step_name(1); }
  void note_cold(double kept) { cached_when_cold_ = std::max(cached_when_cold_, kept); }

  // All bytes of the state in memory order; masters in two halves are not whole anywhere: the first moments, which
  // have as many, stand for them.
  template <typename Visit>
  void for_each_piece(Visit visit) {
    uint64_t offset = 0;
    for (const ParameterState state :
         {ParameterState::master, ParameterState::first_moment, ParameterState::second_moment}) {
      for (const Parameter* parameter : places_) {
        void* at = set().on_host(*parameter, state, 0);
        if (at == nullptr) at = set().on_host(*parameter, ParameterState::first_moment, 0);
        const auto bytes = static_cast<size_t>(parameter->box.extent.count()) * 4;
        for (size_t done = 0; done < bytes; done += kPiece) {
          const size_t some = std::min(kPiece, bytes - done);
          visit(static_cast<std::byte*>(at) + done, some, offset);
          offset += some;
        }
      }
    }
  }

  CheckpointContent content() const {
    return {.step = 1,
            .configuration = to_config_text(config_),
            .state_json = R"({"configuration":)" + to_json(config_) +
                          R"(,"trainer":{"applied_updates":1,"skipped_in_row":0,"skipped_updates":0}})",
            .tokenizer = {},
            .data_fingerprint = "none",
            .code_version = "benchmark"};
  }

  RunConfig config_;
  int threads_;
  LocalTrainer trainer_;
  std::unique_ptr<HostCommunicator> world_;
  std::string directory_;
  Log log_;
  std::vector<const Parameter*> places_;
  int64_t bytes_ = 0;
  double cached_when_cold_ = 0;
};

struct Row {
  std::vector<double> seconds, shares;
  void add(double own, double raw) {
    seconds.push_back(own);
    if (raw > 0) shares.push_back(raw / own);
  }
  json result(double bytes) const {
    json row = {{"seconds", median(seconds)}, {"bytes_per_second", bytes / median(seconds)}};
    if (!shares.empty()) {
      const auto [least, most] = std::ranges::minmax(shares);
      row["share_of_raw"] = median(shares);
      row["share_range"] = {least, most};
    }
    return row;
  }
};

json measure(State& state, int64_t rounds) {
  std::map<std::string, Row> rows;
  uint64_t exported = 0;
  state.raw_write();  // the first writes of a file system's free space may cost more than later ones
  state.save();
  for (int64_t round = 0; round < rounds; ++round) {
    const bool raw_first = round % 2 == 0;
    double raw = 0;
    std::map<std::string, double> points;
    if (raw_first) raw = state.raw_write();
    points = state.save();
    if (!raw_first) raw = state.raw_write();
    const double written = points.at("file synced");
    rows["raw write"].add(raw, 0);
    rows["written"].add(written, raw);
    rows["saved"].add(points.at("saved"), raw);
    rows["read back"].add(points.at("file verified") - written, 0);
    for (const bool cold : {true, false}) {
      const std::string kind = cold ? " cold" : " warm";
      double own = 0;
      if (raw_first) raw = state.raw_read(cold);
      own = state.restore(cold);
      if (!raw_first) raw = state.raw_read(cold);
      rows["raw read" + kind].add(raw, 0);
      rows["restored" + kind].add(own, raw);
    }
    rows["converted"].add(state.convert(), 0);
    const auto [seconds, bytes] = state.export_model();
    rows["exported"].add(seconds, 0);
    exported = bytes;
  }
  json figures;
  for (const auto& [name, row] : rows) {
    figures[name] = row.result(name == "exported" ? static_cast<double>(exported) : static_cast<double>(state.bytes()));
  }
  return {{"bytes", state.bytes()},
          {"rounds", rounds},
          {"cached_share_when_cold", state.most_cached_when_cold()},
          {"figures", figures}};
}

void live(State& state, int threads) {
  const auto answer = [](const json& line) { std::cout << line.dump() << std::endl; };
  json shapes;
  for (const auto& parameter : state.set().parameters()) {
    std::vector<int64_t> sizes;
    for (int dim = 0; dim < parameter->spec.shape.dims(); ++dim) sizes.push_back(parameter->spec.shape[dim]);
    shapes[parameter->spec.name] = sizes;
  }
  answer({{"bytes", state.bytes()}, {"threads", threads}, {"shapes", shapes}});
  for (std::string word; std::getline(std::cin, word);) {
    if (word == "save") {
      answer({{"seconds", state.save().at("saved")}});
    } else if (word == "raw write") {
      answer({{"seconds", state.raw_write()}});
    } else if (word == "restore cold" || word == "restore warm") {
      answer({{"seconds", state.restore(word.ends_with("cold"))}, {"cached", state.most_cached_when_cold()}});
    } else if (word == "raw read cold" || word == "raw read warm") {
      answer({{"seconds", state.raw_read(word.ends_with("cold"))}, {"cached", state.most_cached_when_cold()}});
    } else {
      throw_bad_input("'", word,
                      "' is no word of --live: save, restore cold, restore warm, raw write, raw read cold, "
                      "raw read warm");
    }
  }
}

void print(const json& result) {
  std::cout << fmt::format("{:.2f} GB, {} rounds, {} threads, {}; the page cache held {:.0f} % of a cold file\n",
                           result.at("bytes").get<double>() / 1e9, result.at("rounds").get<int64_t>(),
                           result.at("threads").get<int>(), result.at("precision").get<std::string>(),
                           100 * result.at("cached_share_when_cold").get<double>());
  for (const auto& [name, row] : result.at("figures").items()) {
    std::cout << fmt::format("{:14} {:6.3f} s {:7.2f} GB/s", name, row.at("seconds").get<double>(),
                             row.at("bytes_per_second").get<double>() / 1e9);
    if (row.contains("share_of_raw")) {
      std::cout << fmt::format("  {:.2f} of raw ({:.2f} to {:.2f})", row.at("share_of_raw").get<double>(),
                               row.at("share_range")[0].get<double>(), row.at("share_range")[1].get<double>());
    }
    std::cout << "\n";
  }
}

int run(const std::vector<std::string>& arguments) {
  const cli::ParsedConfig parsed = cli::parse_config(
      arguments, {cli::text_option("directory", "DIR", "where files are written and removed; on the disk to measure"),
                  cli::integer_option("rounds", "number of rounds", at_least(1), "7"),
                  cli::flag("live", "answer requests on stdin"), cli::json_flag()});
  if (parsed.help) {
    std::cout << "checkpoint_files --config FILE [--KEY VALUE]… [--directory DIR] [--rounds N] [--json] [--live]\n";
    return 0;
  }
  RunConfig config = parsed.config;
  config.train.micro_batch = config.train.global_batch = 1;  // only the state matters, not the activations
  validate(config, 1, Use::dry_run);
  resolve(config);
  if (config.train.precision == Precision::fp64) throw_bad_input("train.precision fp64 is not measured: fp32 or bf16");
  const int threads = cli::thread_count(config.device.threads);
  State state(config, threads, parsed.text("directory", "build/checkpoint_files") + "/" + std::to_string(::getpid()));
  if (parsed.has("live")) {
    live(state, threads);
    return 0;
  }
  json result = measure(state, parsed.integer("rounds"));
  result["threads"] = threads;
  result["precision"] = to_string(config.train.precision);
  if (parsed.has("json")) {
    std::cout << result.dump() << std::endl;
  } else {
    print(result);
  }
  return 0;
}

}  // namespace
}  // namespace shiftron

int main(int argc, char** argv) {
  return shiftron::run_program("checkpoint_files", shiftron::run, argc, argv);
}
