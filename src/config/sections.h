// The sections of a run's configuration with their defaults; [model] and [shift] are in model/config.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/enum_names.h"
#include "data/loader.h"
#include "model/recompute.h"
#include "parallel/layout.h"
#include "parallel/pipeline_kind.h"

namespace shiftron {

enum class Precision { fp32, bf16, fp64 };
enum class LearningRateSchedule { constant, cosine, linear, wsd };
enum class DeviceChoice { cpu, cuda };
// Which runs give the same bits: no promise; the same command; the same for any dp, pp, microbatch, zero.
enum class Deterministic { off, repeat, layouts };

// Whether texts of benchmarks begin with the token that precedes a document.
enum class BeginningToken {
  tokenizer,  // as the tokenizer does, and with it the exported one
  never,
  always,
};

constexpr std::array<const char*, 3> names_of(Precision) {
  return {"fp32", "bf16", "fp64"};
}
constexpr std::array<const char*, 4> names_of(LearningRateSchedule) {
  return {"constant", "cosine", "linear", "wsd"};
}
constexpr std::array<const char*, 2> names_of(DeviceChoice) {
  return {"cpu", "cuda"};
}
constexpr std::array<const char*, 3> names_of(Deterministic) {
  return {"off", "repeat", "layouts"};
}

constexpr std::array<const char*, 3> names_of(BeginningToken) {
  return {"tokenizer", "0", "1"};
}

struct TrainSection {
  int64_t steps = 0;
  int64_t global_batch = 0;  // sequences
  int64_t micro_batch = 1;   // sequences
  int64_t sequence_length = 0;
  int64_t stop_at = 0;  // save and exit with 75 after that step; 0 = never
  Precision precision = Precision::fp32;
  int64_t seed = 0;
  Deterministic deterministic = Deterministic::off;
};

struct Betas {
  double first = 0.9, second = 0.95;
};

struct OptimizerSection {
  double learning_rate = 0;  // peak
  Betas betas{};
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double shift_weight_decay = 0;
  double shift_learning_rate_scale = 1;
  double clip = 1;  // 0 = off
  LearningRateSchedule schedule = LearningRateSchedule::constant;
  int64_t warmup = 0;       // steps
  int64_t decay_steps = 0;  // 0 = to the last step; wsd: a fifth of the run
  double final_fraction = 0;
};

// What backward recomputes on each pipeline stage.
struct StageRecompute {
  StageRecompute(RecomputeKind of_all = RecomputeKind::none) : kinds{of_all} {}
  explicit StageRecompute(std::vector<RecomputeKind> of_each) : kinds(std::move(of_each)) {}
  std::vector<RecomputeKind> kinds;  // one for all stages, or one for each
  RecomputeKind of_stage(int stage) const {
    return kinds.size() == 1 ? kinds.front() : kinds.at(static_cast<size_t>(stage));
  }
};

struct ParallelSection {
  int tp = 1, cp = 1, pp = 1;
  RankOrder rank_order = kUsualRankOrder;
  int chunks = 1;
  int zero = 0;
  int64_t bucket_elements = 0;  // 0 = by the number of data-parallel ranks
  PipelineKind pipeline = PipelineKind::one_forward_one_backward;
  StageRecompute recompute{};
  std::vector<int64_t> stage_layers{};  // layers of each stage; empty = equal work
};

struct DataSection {
  std::vector<DataSource> train{}, validation{};
  bool document_reset = true;
};

struct EvaluationSection {
  int64_t every = 0;                 // steps; 0 = never
  int64_t sequences = 0;             // in each evaluation; 0 = all of data.validation
  std::string tasks{};               // names of benchmarks, joined by commas; empty = none
  std::string data{};                // directory of their files
  std::optional<int64_t> fewshot{};  // examples before each item; unset = the task's default
  double limit = 0;                  // items of each task; below 1: their share; 0 = all
  BeginningToken bos = BeginningToken::tokenizer;
  int64_t max_gen_toks = 0;  // of a generated answer; 0 = the task's default
  bool boundary_fallback = false;
};

struct ResumeChoice {
  enum class Kind { automatic, never, step } kind = Kind::automatic;
  int64_t step = 0;  // for Kind::step
};

struct CheckpointSection {
  int64_t every = 0;  // steps; 0 = only at the end and on stops
  int64_t keep = 2;   // newest steps kept
  int64_t keep_every = 0;
  bool asynchronous = false;
  ResumeChoice resume{};
};

// Deadlines in seconds.
struct FaultSection {
  double setup_deadline = 600;
  double step_deadline = 0;  // 0 = automatic; does not count waiting for files
  double read_deadline = 600;
  double evaluation_deadline = 600;
  double checkpoint_deadline = 600;
  int64_t non_finite_in_row = 3;
};

struct OutputSection {
  std::string directory{};
  int64_t log_every = 1;  // steps
};

struct DeviceSection {
  DeviceChoice kind = DeviceChoice::cpu;
  int threads = 0;         // per rank; 0 = cores in the affinity mask / ranks that share it
  int64_t reserve = 1152;  // MiB of a GPU that plans leave free for context and libraries
};

}  // namespace shiftron
