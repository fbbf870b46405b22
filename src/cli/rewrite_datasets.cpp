// `shiftron data merge | split`.
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/built_datasets.h"
#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "core/check.h"
#include "core/log.h"
#include "data/merge.h"

namespace shiftron::cli {
namespace {

void report_rewritten(const CommandLine& line, const RewrittenDatasets& result) {
  if (line.has("json")) {
    nlohmann::ordered_json json = {{"datasets", nlohmann::ordered_json::array()}, {"was_there", result.was_there}};
    for (const BuiltDataset& dataset : result.datasets) json["datasets"].push_back(to_json(dataset));
    print_json(json);
  } else {
    if (result.was_there) std::cout << "already finished by an earlier run of this command, which was then killed:\n";
    for (const BuiltDataset& dataset : result.datasets) std::cout << to_text(dataset);
  }
  std::cout.flush();
}

std::vector<CommandOption> merge_options() {
  CommandOption datasets = directories("the datasets, in the order in which their documents follow each other");
  datasets.values = kUnlimited;
  datasets.takes_rest = true;
  return {datasets, required(text_option("output", "DIR", "new or empty directory")), json_flag()};
}

int merge(const CommandLine& line) {
  DatasetMerge merge;
  merge.datasets = line.texts("directory");
  merge.output = line.text("output");
  ignore_write_signals();
  if (const std::string warning = repeated_inputs(merge.datasets); !warning.empty()) {
    print_to_stderr("data merge: warning: " + warning);
  }
  merge_datasets(merge, {}, [&](const RewrittenDatasets& result) { report_rewritten(line, result); });
  return 0;
}

std::vector<CommandOption> split_options() {
  return {directories("the dataset"),
          required(text_option("output", "DIR",
                               "new or empty directory; gets the datasets DIR/train and "
                               "DIR/validation")),
          integer_option("documents", "number of documents in DIR/validation, chosen at random; or give --fraction",
                         at_least(1)),
          real_option("fraction", "fraction of the documents in DIR/validation, chosen at random",
                      {.low = 0, .high = 1, .low_open = true, .high_open = true}),
          integer_option("seed", "random seed of the choice", at_least(0), "0"),
          shard_tokens(),
          json_flag()};
}

int split(const CommandLine& line) {
  if (line.has("documents") == line.has("fraction")) {
    throw_bad_input("data split needs --documents N or --fraction F: how many documents go to DIR/validation");
  }
  DatasetSplit split;
  split.dataset = line.text("directory");
  split.output = line.text("output");
  split.documents = line.integer("documents");
  split.fraction = line.real("fraction");
  split.seed = static_cast<uint64_t>(line.integer("seed"));
  split.shard_tokens = line.integer("shard-tokens");
  ignore_write_signals();
  split_dataset(split, {}, [&](const RewrittenDatasets& result) { report_rewritten(line, result); });
  return 0;
}

}  // namespace

std::vector<Command> rewrite_commands() {
  return {{"data", "merge", "joins datasets to one", "DIR... --output DIR", merge_options(), false, merge,
           "shiftron data merge data/books data/web --output data/all"},
          {"data", "split", "divides a dataset into a training and a validation part",
           "DIR --output DIR --fraction F | --documents N", split_options(), false, split,
           "shiftron data split data/all --output data/parts --fraction 0.01"}};
}

}  // namespace shiftron::cli
