// From tasks to requests, to answers, to a report.
#include "evaluate/benchmarks.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/progress.h"
#include "model/config.h"
#include "parallel/agree.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::vector<Request> requests_of(const std::vector<AnsweredTask>& tasks) {
  std::vector<Request> requests;
  for (const AnsweredTask& entry : tasks) {
    for (const Item& item : entry.task.items) {
      requests.insert(requests.end(), item.requests.begin(), item.requests.end());
    }
  }
  return requests;
}

// Where each request comes from, for messages.
std::vector<std::string> origins_of(const std::vector<AnsweredTask>& tasks) {
  std::vector<std::string> origins;
  for (const AnsweredTask& entry : tasks) {
    for (const Item& item : entry.task.items) {
      origins.insert(origins.end(), item.requests.size(),
                     entry.task.name + ", item " + std::to_string(item.number) + " (" + item.where + ")");
    }
  }
  return origins;
}

std::string packed(const std::vector<Request>& requests) {
  Json list = Json::array();
  for (const Request& request : requests) {
    list.push_back({static_cast<int>(request.kind), request.context, request.continuation, request.generation.until,
                    request.generation.most_tokens});
  }
  std::string bytes;
  Json::to_msgpack(list, bytes);
  return bytes;
}

std::vector<Request> unpacked(const std::string& bytes) {
  std::vector<Request> requests;
  for (const Json& one : Json::from_msgpack(bytes)) {
    requests.push_back({.kind = static_cast<RequestKind>(one[0].get<int>()),
                        .context = one[1].get<std::string>(),
                        .continuation = one[2].get<std::string>(),
                        .generation = {one[3].get<std::vector<std::string>>(), one[4].get<int64_t>()}});
  }
  return requests;
}

// A hash of the requests and the model: different evaluations, at the same time or after one that was killed, do not
// share a journal.
std::string journal_of(const std::string& output, const std::string& identity, const std::vector<Request>& requests) {
  return output + "/journal/" + to_hex(xxh3_128(identity + packed(requests)));
}

void warn(const std::string& warning) {
  if (!warning.empty()) Log(0).warning(warning);
}

Json configuration_of(const CheckpointModel& model, const BenchmarkOptions& options) {
  const RunConfig& config = model.config;
  const TaskOptions& task = options.task;
  return {{"model", "shiftron"},
          {"model_args",
           {{"checkpoint", model.directory},
            {"step", model.content.step},
            {"precision", to_string(config.train.precision)},
            {"beginning_token", to_string(options.scorer.beginning)},
            {"code_version", model.content.code_version}}},
          {"model_num_parameters", static_cast<int64_t>(parameter_count(config.model))},
          {"model_dtype", to_string(config.train.precision)},
          {"model_revision", nullptr},
          {"model_sha", nullptr},
          {"batch_size", std::to_string(options.scorer.token_budget) + " tokens"},
          {"batch_sizes", Json::array()},
          {"device", to_string(config.device.kind)},
          {"use_cache", nullptr},
          {"limit", task.limit == 0 ? Json(nullptr) : Json(task.limit)},
          {"bootstrap_iters", 100'000},
          {"gen_kwargs", task.most_tokens ? Json{{"max_gen_toks", *task.most_tokens}} : Json(nullptr)},
          {"random_seed", 0},
          {"numpy_seed", 1234},
          {"torch_seed", 1234},
          {"fewshot_seed", 1234}};
}

}  // namespace

Benchmarks::Benchmarks(const BenchmarkOptions& options, ControlPlane& world) {
  std::string bytes;
  run_on_all_ranks(world, [&] {
    if (world.rank() != 0) return;
    TaskRegistry registry;
    selection_ = registry.select(options.tasks);
    for (const std::string& name : selection_.tasks) {
      tasks_.push_back({.task = registry.load(name, options.data, options.task), .answers = {}});
    }
    origins_ = origins_of(tasks_);
    bytes = packed(requests_of(tasks_));
  });
  requests_ = unpacked(world.broadcast_text(bytes, 0));
}

void Benchmarks::release_texts() {
  for (Request& request : requests_) {
    request.context = {};
    request.continuation = {};
  }
}

std::string Benchmarks::warning_of(const std::vector<Answer>& answers, const BenchmarkReport& report) const {
  const std::string of_answers = non_finite(answers);
  return of_answers.empty() ? infinite_perplexity_note(report.rows()) : of_answers;
}

std::string Benchmarks::warning_of(const RequestTokens& tokens, int64_t max_length) const {
  if (tokens.shortened.empty()) return "";
  return list_of(tokens.shortened,
                 detail::concatenate("requests do not fit into the model's ", max_length,
                                     " tokens and were cut at the beginning, so their scores mean little")) +
         "; use fewer examples, or a model with a longer context";
}

std::string Benchmarks::list_of(const std::vector<size_t>& requests, const std::string& what) const {
  constexpr size_t kMost = 4;
  std::string named;
  const std::string* last = nullptr;
  size_t items = 0;
  for (const size_t request : requests) {
    const std::string& origin = origins_.at(request);
    if (last != nullptr && origin == *last) continue;
    last = &origin;
    if (++items <= kMost) named += (named.empty() ? "" : "; ") + origin;
  }
  return detail::concatenate(requests.size(), " of ", origins_.size(), " ", what, ": ", named,
                             items > kMost ? "; …" : "");
}

std::string Benchmarks::non_finite(const std::vector<Answer>& answers) const {
  std::vector<size_t> requests;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!std::isfinite(answers[i].log_likelihood)) requests.push_back(i);
  }
  if (requests.empty()) return "";
  return list_of(requests, "answers are not finite, so scores computed from them are meaningless") + "; " +
         kNonFiniteAdvice;
}

BenchmarkReport Benchmarks::report(const std::vector<Answer>& answers, const Pieces& pieces) {
  auto next = answers.begin();
  for (AnsweredTask& entry : tasks_) {
    for (const Item& item : entry.task.items) {
      const auto end = next + static_cast<std::ptrdiff_t>(item.requests.size());
      entry.answers.insert(entry.answers.end(), next, end);
      next = end;
    }
  }
  constexpr int64_t kResamples = 100'000;  // as the harness
  return BenchmarkReport(selection_, std::move(tasks_), kResamples, pieces);
}

void Benchmarks::take_back(BenchmarkReport report) {
  tasks_ = std::move(report).release_tasks();
  for (AnsweredTask& entry : tasks_) entry.answers.clear();
}

ReportFacts facts_of(const CheckpointModel& model, const BenchmarkOptions& options, const Tokenizer& tokenizer,
                     const std::string& code_version, double began) {
  const int32_t end = tokenizer.end_of_document(), begin = tokenizer.beginning_of_document();
  return {.model_name = model_name_of(model.directory),
          .configuration = configuration_of(model, options),
          .max_length = max_length_of(options.scorer, model.config),
          .end_of_document = tokenizer.piece(end),
          .end_of_document_id = end,
          .beginning_of_document = begin < 0 ? "" : tokenizer.piece(begin),
          .beginning_of_document_id = begin,
          .code_version = code_version,
          .began = began,
          .seconds = seconds_since_1970() - began,
          .time = time_of_report()};
}

BenchmarkOutcome run_benchmarks(const CheckpointModel& model, const BenchmarkOptions& options,
                                const std::string& code_version, HostCommunicator& world, const HostShare& share) {
  const double began = seconds_since_1970();
  const bool leads = world.rank() == 0;
  Benchmarks benchmarks(options, world);
  ScorerOptions scoring = options.scorer;
  run_on_all_ranks(world, [&] {
    if (leads && !options.output.empty()) create_directories_durably(options.output);
  });
  if (leads) scoring.name_of = [&](size_t request) { return benchmarks.origin_of(request); };
  std::vector<Answer> answers;
  ReportFacts facts;
  {
    Scorer scorer(model, world, share);
    if (!options.output.empty()) scoring.journal = journal_of(options.output, scorer.identity(), benchmarks.requests());
    run_on_all_ranks(world, [&] {
      if (leads && !scoring.journal.empty()) create_directories_durably(scoring.journal);
    });
    const RequestTokens tokens = scorer.tokens(benchmarks.requests(), scoring);
    if (leads) warn(benchmarks.warning_of(tokens, max_length_of(scoring, model.config)));
    answers = scorer.answer(benchmarks.requests(), tokens, scoring);
    facts = facts_of(model, options, scorer.tokenizer(), code_version, began);
  }
  BenchmarkOutcome outcome;
  run_on_all_ranks(world, [&] {
    if (!leads) return;
    std::optional<Progress> progress;  // one at a time, for each metric with bootstrap errors
    const BenchmarkReport report = benchmarks.report(answers, [&](int64_t done, int64_t all) {
      if (!scoring.progress) return;
      if (!progress) progress.emplace("standard errors", static_cast<uint64_t>(all), "thousand draws");
      progress->update(static_cast<uint64_t>(done));
      if (done == all) progress.reset();
    });
    outcome.rows = report.rows();
    warn(benchmarks.warning_of(answers, report));
    if (options.output.empty()) return;
    outcome.results_path = report.write(options.output, facts);
    std::error_code kept;  // ignored: a journal that stays does no harm
    fs::remove_all(scoring.journal, kept);
    fs::remove(fs::path(scoring.journal).parent_path(), kept);  // if no other journal is left
  });
  return outcome;
}

}  // namespace shiftron
