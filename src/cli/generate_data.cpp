// `shiftron data generate`.
#include <algorithm>
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/built_datasets.h"
#include "cli/command.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "config/option_value.h"
#include "core/check.h"
#include "data/generate/generate.h"
#include "data/generate/kinds.h"
#include "data/generate/write_generated.h"

namespace shiftron::cli {
namespace {

// Options of all kinds. An option that several kinds share takes what any of them takes; the kind checks it again.
std::vector<CommandOption> options_of_kinds() {
  std::vector<CommandOption> options;
  for (const GeneratorKind& kind : generator_kinds()) {
    for (const GeneratorOption& own : kind.options) {
      const std::string help = kind.name + ": " + own.help + " [" + own.otherwise + "]";
      const auto found = std::ranges::find(options, own.name, &CommandOption::name);
      if (found != options.end()) {
        found->help += "; " + help;
        found->limits.low = std::min(found->limits.low, static_cast<double>(own.low));
        found->limits.high = std::max(found->limits.high, static_cast<double>(own.high));
        continue;
      }
      if (own.choices.empty()) {
        options.push_back(
            integer_option(own.name, help, between(static_cast<double>(own.low), static_cast<double>(own.high))));
      } else {
        std::string names;
        for (const std::string& choice : own.choices) names += (names.empty() ? "" : "|") + choice;
        options.push_back(text_option(own.name, names, help));
        options.back().choices = own.choices;
      }
    }
  }
  return options;
}

std::vector<CommandOption> options_of_data_generate() {
  std::string kinds;
  for (const GeneratorKind& kind : generator_kinds()) kinds += "; " + kind.name + ": " + kind.summary;
  CommandOption kind = required(text_option("kind", "KIND", "what to generate (--kind can be omitted)" + kinds));
  kind.bare = true;
  std::vector<CommandOption> options = {
      kind,
      text_option("output", "DIR", "new or empty directory; writes a dataset"),
      flag("jsonl", "print the documents as JSONL of ids and targets"),
      flag("text", "print the documents as text: the names of their tokens and of their targets"),
      required(integer_option("documents", "number of documents", between(1, kLargestCount))),
      integer_option("validation",
                     "number of additional documents that go to DIR/validation; the others go to DIR/train",
                     between(0, kLargestCount), "0"),
      integer_option("pack", "window length in tokens; no document crosses a window, see `data build`; 0 = no packing",
                     between(0, kLargestCount), "0"),
      integer_option("vocab", "vocabulary size; 0 = as many tokens as the kind uses", between(0, kLargestCount), "0"),
      integer_option("shard-tokens", "approximate number of tokens per shard", at_least(1),
                     std::to_string(DatasetOutput{}.shard_tokens)),
      integer_option("seed", "random seed; document n depends only on it, n and the options of the kind", at_least(0),
                     "0"),
      integer_option("threads", "threads that generate; 0 = all processors that this process may use", between(0, 4096),
                     "0")};
  for (CommandOption& option : options_of_kinds()) options.push_back(std::move(option));
  options.push_back(json_flag());
  return options;
}

std::unique_ptr<DocumentGenerator> generator_of(const CommandLine& line) {
  const GeneratorKind& kind = generator_kind(line.text("kind"));
  std::map<std::string, std::string> given;
  for (const CommandOption& option : options_of_kinds()) {
    if (line.has(option.name)) given[option.name] = line.text(option.name);
  }
  return kind.make(static_cast<uint64_t>(line.integer("seed")), GeneratorSettings(kind, given));
}

void append_numbers(std::string& text, const std::vector<int32_t>& numbers) {
  const char* separator = "[";
  for (const int32_t number : numbers) {
    text += separator;
    separator = ",";
    if (number == kNotCounted) {
      text += "null";
      continue;
    }
    char digits[16];
    text.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  }
  text += "]";
}

std::string json_line(const GeneratedDocument& document) {
  std::string text = "{\"ids\":";
  append_numbers(text, document.ids);
  if (!document.targets.empty()) {
    text += ",\"targets\":";
    append_numbers(text, document.targets);
  }
  return text += "}\n";
}

// The document's tokens on a line, and below it the target of each, "_" if it is not counted.
std::string text_lines(const GeneratedDocument& document, const DocumentGenerator& generator) {
  const auto name_of = [&](int32_t id) {
    return id == kNotCounted ? "_" : id == kEndOfGenerated ? "<end>" : generator.token_name(id);
  };
  std::string ids = "ids    ", targets = "targets";
  for (size_t i = 0; i < document.ids.size(); ++i) {
    std::string id = name_of(document.ids[i]);
    std::string target = document.targets.empty() ? "" : name_of(document.targets[i]);
    const size_t width = std::max(id.size(), target.size());
    ids += " " + id.append(width - id.size(), ' ');
    targets += " " + target.append(width - target.size(), ' ');
  }
  ids.erase(ids.find_last_not_of(' ') + 1);
  return document.targets.empty() ? ids + "\n" : ids + "\n" + targets + "\n";
}

void print_documents(const CommandLine& line, const DocumentGenerator& generator, int threads) {
  for (const char* of_datasets : {"validation", "pack", "vocab", "shard-tokens", "json"}) {
    if (line.has(of_datasets)) {
      throw_bad_input("--", of_datasets, " only applies to a dataset, but --", line.has("text") ? "text" : "jsonl",
                      " prints documents; omit it, or write a dataset with --output");
    }
  }
  const auto count = static_cast<uint64_t>(line.integer("documents"));
  generate_documents(generator, count, threads, [&](const GeneratedDocument& document) {
    std::cout << (line.has("text") ? text_lines(document, generator) : json_line(document));
  });
}

void report_generated(const CommandLine& line, const std::vector<BuiltDataset>& datasets) {
  nlohmann::ordered_json json = {{"datasets", nlohmann::ordered_json::array()}};
  for (const BuiltDataset& dataset : datasets) {
    json["datasets"].push_back(to_json(dataset));
    json["datasets"].back().erase("text_bytes");  // there is no text
    if (!line.has("json")) std::cout << to_text(dataset);
  }
  if (line.has("json")) print_json(json);
  std::cout.flush();
}

// Everything that determines the documents, as words of the command line.
std::string words_of_request(const CommandLine& line) {
  std::string words = line.text("kind") + " --seed " + line.text("seed");
  for (const CommandOption& option : options_of_kinds()) {
    if (line.has(option.name)) words += " --" + option.name + " " + line.text(option.name);
  }
  return words;
}

void write_dataset(const CommandLine& line, const DocumentGenerator& generator, int threads) {
  GeneratedData data;
  data.dataset.output = line.text("output");
  data.dataset.pack = line.integer("pack");
  data.dataset.shard_tokens = line.integer("shard-tokens");
  data.dataset.threads = threads;
  data.vocabulary = line.integer("vocab") > 0 ? line.integer("vocab") : generator.vocabulary();
  data.documents = line.integer("documents");
  data.validation = line.integer("validation");
  data.request = data.source = words_of_request(line);
  ignore_write_signals();
  write_generated(generator, data,
                  [&](const std::vector<BuiltDataset>& datasets) { report_generated(line, datasets); });
}

int generate_data(const CommandLine& line) {
  const int ways = line.has("output") + line.has("jsonl") + line.has("text");
  if (ways != 1) {
    throw_bad_input("data generate: give ", ways == 0 ? "" : "only one of ", "--output DIR, --jsonl or --text");
  }
  const std::unique_ptr<DocumentGenerator> generator = generator_of(line);
  const int threads = thread_count(static_cast<int>(line.integer("threads")));
  if (line.has("output")) {
    write_dataset(line, *generator, threads);
  } else {
    print_documents(line, *generator, threads);
  }
  return 0;
}

}  // namespace

std::vector<Command> generate_data_commands() {
  return {{"data", "generate", "makes a dataset of synthetic documents that follow a rule",
           "KIND --documents N --output DIR", options_of_data_generate(), false, generate_data,
           "shiftron data generate induction --documents 10000 --output data"}};
}

}  // namespace shiftron::cli
