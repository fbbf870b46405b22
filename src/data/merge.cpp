// Links shards, or copies whole documents; DatasetWriter moves them in place.
#include "data/merge.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>

#include "core/check.h"
#include "core/system_error.h"
#include "data/dataset_documents.h"
#include "data/order.h"

namespace shiftron {
namespace {

constexpr uint64_t kSplitKey = 0x73706C6974;  // of the permutation that chooses; not an order of training

std::string tokenizer_name(const ShardHeader& header) {
  return header.tokenizer_hash.empty() ? "no tokenizer" : header.tokenizer_file + " with hash " + header.tokenizer_hash;
}

// How two datasets differ in what one dataset has once; "" if they do not.
std::string difference(const ShardHeader& a, const ShardHeader& b) {
  const auto differ = [](const auto& what, const auto& one, const auto& other) {
    return detail::concatenate(what, ' ', one, " and ", what, ' ', other);
  };
  if (a.tokenizer_hash != b.tokenizer_hash || a.tokenizer_file != b.tokenizer_file) {
    return tokenizer_name(a) + " and " + tokenizer_name(b);
  }
  if (a.vocab_size != b.vocab_size) return differ("vocab_size", a.vocab_size, b.vocab_size);
  if (a.end_of_document != b.end_of_document) return differ("end_of_document", a.end_of_document, b.end_of_document);
  const TokenizerSettings &one = a.tokenizer_settings, &other = b.tokenizer_settings;
  if (one.beginning_of_document != other.beginning_of_document) {
    return differ("beginning_of_document", one.beginning_of_document, other.beginning_of_document);
  }
  if (one.special_text != other.special_text) return differ("special_text", one.special_text, other.special_text);
  if (a.has_targets != b.has_targets) {
    return a.has_targets ? "targets and no targets" : "no targets and targets";
  }
  if (a.pack != b.pack) return differ("pack", a.pack, b.pack);
  return "";
}

void require_same_kind(const std::vector<Dataset>& datasets) {
  const Dataset& first = datasets.front();
  for (const Dataset& dataset : datasets) {
    const std::string what = difference(first.description().header, dataset.description().header);
    if (what.empty()) continue;
    throw_bad_input(first.directory(), " and ", dataset.directory(), " cannot be one dataset: they have ", what,
                    "; name both in data.train, which mixes datasets with the same vocabulary, or build one of them "
                    "again");
  }
}

// What the datasets came from, each once.
std::string sources_of(const std::vector<Dataset>& datasets) {
  constexpr size_t kLongest = 4096;  // bytes
  std::set<std::string> seen;
  std::string sources;
  for (const Dataset& dataset : datasets) {
    const std::string& source = dataset.description().header.source;
    if (!seen.insert(source).second) continue;
    if (sources.size() + source.size() > kLongest) return sources + " and more";
    sources += (sources.empty() ? "" : " ") + source;
  }
  return sources;
}

// A writer of datasets of the same kind as `sources`.
DatasetWriter writer_like(const std::vector<Dataset>& sources, DatasetOutput target, const BuildRequest& request) {
  const ShardHeader& header = sources.front().description().header;
  target.pack = header.pack;
  return DatasetWriter(target, {header.vocab_size, header.end_of_document, sources.front().tokenizer()}, request,
                       sources_of(sources), 0);
}

RewrittenDatasets finish_rewritten(DatasetWriter& writer, const Progress::Output& output,
                                   const NotifyRewritten& notify) {
  RewrittenDatasets result{.was_there = writer.was_there()};
  result.datasets = writer.finish({.nothing = "no document"}, output);
  if (notify) notify(result);
  writer.commit();
  return result;
}

// Makes `to` another name of the file `from`. False if their file systems, or the rights, do not allow that.
bool link_file(const std::string& from, const std::string& to) {
  if (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) == 0) return true;
  const int error = errno;
  if (error == EXDEV || error == EPERM || error == EACCES || error == EMLINK || error == ENOTSUP || error == ENOSYS) {
    return false;
  }
  throw_crash("cannot link ", from, " as ", to, ": ", std::strerror(error), advice_on(error));
}

// The path of a shard of `dataset`, seen from `directory`.
std::string relative_path(const Dataset& dataset, const ShardRecord& shard, const std::string& directory) {
  namespace fs = std::filesystem;
  return (fs::relative(dataset.directory(), directory) / shard.file).lexically_normal();
}

// All shards of `datasets`, one after the other, as those of a dataset in `output`. Links them in `work`, from which
// they will be moved there.
DatasetDescription link_shards(const std::vector<Dataset>& datasets, const std::string& output, const std::string& work,
                               const Progress::Output& progress_output) {
  DatasetDescription merged{datasets.front().description().header, 0, {}};
  merged.header.source = sources_of(datasets);
  size_t count = 0;
  for (const Dataset& dataset : datasets) count += dataset.description().shards.size();
  Progress progress("linking shards", count, "shards", progress_output);
  for (const Dataset& dataset : datasets) {
    const DatasetDescription& description = dataset.description();
    merged.text_bytes += description.text_bytes;
    for (ShardRecord shard : description.shards) {
      const std::string name = shard_name(merged.shards.size());
      const bool is_linked = link_file(dataset.directory() + "/" + shard.file, work + "/" + name);
      shard.file = is_linked ? name : relative_path(dataset, shard, output);
      merged.shards.push_back(std::move(shard));
      progress.advance(1);
    }
  }
  const std::string text = merged.to_text();
  if (text.size() > kLargestDescription) {
    throw_bad_input("the ", count, " shards of all datasets are more than ", kDescriptionFile,
                    " can hold; build the datasets again with more --shard-tokens");
  }
  if (DatasetDescription::parse(text, output + "/" + kDescriptionFile).shards != merged.shards) {
    throw_bad_input("the path of a dataset is not UTF-8, which ", kDescriptionFile, " cannot hold; rename it");
  }
  return merged;
}

}  // namespace

RewrittenDatasets merge_datasets(const DatasetMerge& merge, const Progress::Output& output,
                                 const NotifyRewritten& notify) {
  if (merge.datasets.empty()) throw_bad_input("no dataset; name those that are to be merged");
  std::vector<Dataset> datasets;
  BuildRequest request{.words = {{"the command", "data merge"}}};
  const auto open = std::make_shared<OpenShards>();
  for (const std::string& directory : merge.datasets) {
    datasets.emplace_back(directory, open);
    request.words.emplace_back(directory, "#" + datasets.back().fingerprint());
  }
  require_same_kind(datasets);
  DatasetOutput target;
  target.output = merge.output;
  DatasetWriter writer = writer_like(datasets, target, request);
  if (!writer.was_there()) {
    for (const Dataset& dataset : datasets) dataset.require_shards();
    writer.take_shards(link_shards(datasets, merge.output, writer.work_directory(), output));
  }
  return finish_rewritten(writer, output, notify);
}

RewrittenDatasets split_dataset(const DatasetSplit& split, const Progress::Output& output,
                                const NotifyRewritten& notify) {
  std::vector<Dataset> datasets;
  datasets.emplace_back(split.dataset);
  const int64_t all = datasets.front().description().documents();
  const int64_t chosen =
      split.documents > 0 ? split.documents : std::llround(split.fraction * static_cast<double>(all));
  if (chosen < 1 || chosen >= all) {
    throw_bad_input(chosen, " of the ", all, " documents of ", split.dataset,
                    " would be in the validation part, and at least one must be in each; change --documents or "
                    "--fraction");
  }
  const Permutation order(static_cast<uint64_t>(all), split.seed ^ kSplitKey);
  const auto is_chosen = [&](int64_t number) {
    return order(static_cast<uint64_t>(number)) < static_cast<uint64_t>(chosen);
  };
  DatasetDocuments train(datasets, [&](int64_t number) { return !is_chosen(number); });
  DatasetDocuments validation(datasets, is_chosen);
  const BuildRequest request{.words = {{"the command", "data split"},
                                       {split.dataset, "#" + datasets.front().fingerprint()},
                                       {"the documents of the validation part", std::to_string(chosen)},
                                       {"--seed", std::to_string(split.seed)},
                                       {"--shard-tokens", std::to_string(split.shard_tokens)}}};
  DatasetOutput target;
  target.output = split.output;
  target.shard_tokens = split.shard_tokens;
  target.has_validation = true;
  DatasetWriter writer = writer_like(datasets, target, request);
  if (!writer.was_there()) {
    datasets.front().require_shards();
    Progress progress("splitting", static_cast<uint64_t>(datasets.front().tokens()), "tokens", output);
    writer.write_in_order({&train, &validation},
                          [&](int64_t written) { progress.update(static_cast<uint64_t>(written)); });
  }
  return finish_rewritten(writer, output, notify);
}

}  // namespace shiftron
