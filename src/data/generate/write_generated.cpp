// Generated documents go through the writer of datasets, which appends end tokens and packs.
#include "data/generate/write_generated.h"

#include <utility>

#include "core/check.h"
#include "data/generate/generate.h"

namespace shiftron {
namespace {

void check_sizes(const DocumentGenerator& generator, const GeneratedData& data) {
  if (data.vocabulary < generator.vocabulary()) {
    throw_bad_input("--vocab ", data.vocabulary, " is less than the ", generator.vocabulary(),
                    " tokens that these documents use; give --vocab ", generator.vocabulary(), " or more");
  }
  if (data.dataset.pack > 0 && data.dataset.pack < generator.longest_document()) {
    throw_bad_input("--pack ", data.dataset.pack, " is less than the ", generator.longest_document(),
                    " tokens that a document may have, including its end; give --pack ", generator.longest_document(),
                    " or more, or options that make shorter documents");
  }
}

}  // namespace

std::vector<BuiltDataset> write_generated(const DocumentGenerator& generator, const GeneratedData& data,
                                          const std::function<void(const std::vector<BuiltDataset>&)>& notify,
                                          const Progress::Output& output) {
  check_sizes(generator, data);
  const int64_t count = data.documents + data.validation;
  DatasetOutput options = data.dataset;
  options.validation_fraction = static_cast<double>(data.validation) / static_cast<double>(count);
  const std::string request = detail::concatenate(data.request, ' ', data.vocabulary, ' ', data.documents, ' ',
                                                  data.validation, ' ', options.pack, ' ', options.shard_tokens);
  const uint64_t bytes = static_cast<uint64_t>(count) * static_cast<uint64_t>(generator.longest_document()) * 4;
  DatasetWriter writer(options, {.size = data.vocabulary, .end_of_document = kEndOfGenerated, .tokenizer = {}},
                       {.words = {{"the options of data generate", request}}}, data.source, bytes, count);
  if (!writer.was_there()) {
    Progress progress("generating", static_cast<uint64_t>(count), "documents", output);
    int64_t number = 0;
    generate_documents(generator, static_cast<uint64_t>(count), options.threads, [&](GeneratedDocument& made) {
      TokenDocument document;
      document.ids = std::move(made.ids);
      document.targets = std::move(made.targets);
      document.is_validation = number >= data.documents;
      document.where = "document " + std::to_string(number++);
      writer.close(document);
      writer.add(document);
      progress.advance(1);
    });
  }
  std::vector<BuiltDataset> built = writer.finish({.nothing = "no document"}, output);
  if (notify) notify(built);
  writer.commit();
  return built;
}

}  // namespace shiftron
