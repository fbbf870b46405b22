// Tasks to requests, requests to answers, answers to a report.
#include "evaluate/benchmarks.h"

#include <chrono>
#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "data/tokenizer.h"
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

BenchmarkOutcome run_benchmarks(const CheckpointModel& model, const BenchmarkOptions& options,
                                const std::string& code_version, HostCommunicator& world, const HostShare& share) {
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::duration<double> began = std::chrono::system_clock::now().time_since_epoch();
  const bool leads = world.rank() == 0;
  Selection selection;
  std::vector<AnsweredTask> tasks;
  std::vector<std::string> origins;
  std::string bytes;
  const std::string journal = options.output + "/journal";
  all_agree(world, [&] {
    if (!leads) return;
    TaskRegistry registry;
    selection = registry.select(options.tasks);
    for (const std::string& name : selection.tasks) {
      tasks.push_back({.task = registry.load(name, options.data, options.task), .answers = {}});
    }
    origins = origins_of(tasks);
    bytes = packed(requests_of(tasks));
    create_directories_durably(journal);
  });
  const std::vector<Request> requests = unpacked(world.broadcast_text(bytes, 0));
  ScorerOptions scoring = options.scorer;
  scoring.journal = journal;
  if (leads) scoring.name_of = [&origins](size_t request) { return origins[request]; };
  std::vector<Answer> answers;
  {
    Scorer scorer(model, world, share);
    answers = scorer.answer(requests, scoring);
  }
  BenchmarkOutcome outcome;
  all_agree(world, [&] {
    if (!leads) return;
    auto next = answers.begin();
    for (AnsweredTask& entry : tasks) {
      for (const Item& item : entry.task.items) {
        const auto end = next + static_cast<std::ptrdiff_t>(item.requests.size());
        entry.answers.insert(entry.answers.end(), next, end);
        next = end;
      }
    }
    const BenchmarkReport report(selection, std::move(tasks));
    const Tokenizer tokenizer(model.content.tokenizer_model, model.directory);
    const int32_t end = tokenizer.end_of_document();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    outcome.rows = report.rows();
    outcome.results_path = report.write(
        options.output, {.model_name = model.directory,
                         .configuration = configuration_of(model, options),
                         .max_length = scoring.max_length > 0 ? scoring.max_length : model.config.train.sequence_length,
                         .end_of_document = tokenizer.piece(end),
                         .end_of_document_id = end,
                         .code_version = code_version,
                         .began = began.count(),
                         .seconds = seconds.count(),
                         .time = time_of_report()});
    std::error_code kept;  // a journal that stays is read again, no more
    fs::remove_all(journal, kept);
  });
  return outcome;
}

}  // namespace shiftron
