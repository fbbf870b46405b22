// Reads windows from datasets.
#include "data/loader.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <optional>

#include "core/check.h"
#include "core/hash.h"
#include "data/dataset.h"
#include "data/order.h"

namespace shiftron {
namespace {

constexpr uint64_t kCheckedWindows = 1000;  // one of so many windows has its blocks' hashes checked

bool is_checked(int64_t source, int64_t window) {
  const int64_t place[2] = {source, window};
  return xxh3_64(place, sizeof place) % kCheckedWindows == 0;
}

// Data without a tokenizer is compared by its ids.
void check_ids(const Dataset& first, const Dataset& other) {
  const ShardHeader& a = first.description().header;
  const ShardHeader& b = other.description().header;
  const auto without = [](const Dataset& one, const Dataset& another) {
    if (one.tokenizer().is_there() || !another.tokenizer().is_there()) return;
    throw_bad_input("data source ", one.directory(), " has no tokenizer, but ", another.directory(),
                    " has one; build the first with --ids --tokenizer ", another.tokenizer_path());
  };
  without(first, other);
  without(other, first);
  if (a.tokenizer_hash.empty() && (a.vocab_size != b.vocab_size || a.end_of_document != b.end_of_document)) {
    throw_bad_input("data sources with different token ids: ", first.directory(), " (vocabulary ", a.vocab_size,
                    ", end of document ", a.end_of_document, ") and ", other.directory(), " (vocabulary ", b.vocab_size,
                    ", end of document ", b.end_of_document,
                    "); build both with the same --vocab and --end-of-document");
  }
}

void check_same_tokenizer(const Dataset& first, const Dataset& other) {
  const ShardHeader& a = first.description().header;
  const ShardHeader& b = other.description().header;
  if (a.tokenizer_hash != b.tokenizer_hash || a.vocab_size != b.vocab_size || a.end_of_document != b.end_of_document) {
    throw_bad_input("data sources with different tokenizers: ", first.directory(), " (", a.vocab_size, " tokens, hash ",
                    a.tokenizer_hash, ") and ", other.directory(), " (", b.vocab_size, " tokens, hash ",
                    b.tokenizer_hash, "); build both with the same ", a.tokenizer_file);
  }
  if (a.tokenizer_file != b.tokenizer_file || !(a.tokenizer_settings == b.tokenizer_settings)) {
    throw_bad_input("data sources whose tokenizer was used differently: ", first.directory(), " (",
                    words_of(a.tokenizer_settings, a.end_of_document), ") and ", other.directory(), " (",
                    words_of(b.tokenizer_settings, b.end_of_document), "); build both with the same options");
  }
}

// Packed data has windows of one length.
void check_pack(const Dataset& dataset, int64_t sequence_length) {
  const int64_t pack = dataset.description().header.pack;
  if (pack == 0 || pack == sequence_length) return;
  throw_bad_input(dataset.directory(), " is packed into windows of ", pack, " tokens, but train.sequence_length is ",
                  sequence_length, "; set train.sequence_length=", pack, ", or build it with --pack ", sequence_length);
}

// If there are no stored targets, the last token of a window needs the token after it.
int64_t windows_in(const Dataset& dataset, int64_t sequence_length) {
  return (dataset.tokens() - (dataset.has_targets() ? 0 : 1)) / sequence_length;
}

// For blended sources: each must be read at some time.
void check_quotas(const std::vector<DataSource>& sources, const std::vector<int64_t>& windows, int64_t all_windows,
                  const std::vector<int64_t>& quotas) {
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::string& directory = sources[i].directory;
    if (quotas[i] > 0) continue;
    if (sources[i].weight > 0) {
      throw_bad_input("weight ", sources[i].weight, " of data source ", directory, " is less than one sample in ",
                      kBlendBlock, "; raise it or leave the source out");
    }
    throw_bad_input("data source ", directory, " has ", windows[i], " of ", all_windows,
                    " windows, less than one sample in ", kBlendBlock, "; give every source a weight (", directory,
                    ":WEIGHT) or leave it out");
  }
}

}  // namespace

struct Loader::Implementation {
  std::vector<Dataset> datasets;
  std::vector<double> given_weights;  // 0 = not given
  std::vector<int64_t> windows;       // per dataset
  int64_t all_windows = 0;
  int64_t sequence_length;
  bool document_reset;
  std::optional<SampleOrder> order;  // none: windows in order
  std::vector<int32_t> tokens;

  SampleLocation locate(int64_t sample) const {
    if (order) return order->locate(sample);
    SampleLocation location;
    location.epoch = sample / all_windows;
    location.window = sample % all_windows;
    while (location.window >= windows[static_cast<size_t>(location.source)]) {
      location.window -= windows[static_cast<size_t>(location.source++)];
    }
    return location;
  }

  void read_sample(const SampleLocation& location, int32_t* ids, int32_t* targets, uint8_t* document_start);
  std::string fingerprint(bool with_weights) const;
};

void Loader::Implementation::read_sample(const SampleLocation& location, int32_t* ids, int32_t* targets,
                                         uint8_t* document_start) {
  Dataset& dataset = datasets[static_cast<size_t>(location.source)];
  const int32_t end_of_document = dataset.description().header.end_of_document;
  // tokens[0] is the one before the window: an end of document if the window starts with a document.
  tokens.resize(static_cast<size_t>(sequence_length) + 2);
  tokens[0] = end_of_document;
  const int64_t first = location.window * sequence_length;
  const int64_t before = first > 0 ? 1 : 0;
  const int64_t after = dataset.has_targets() ? 0 : 1;
  const bool checked = is_checked(location.source, location.window);
  dataset.read(first - before, sequence_length + after + before, tokens.data() + 1 - before, checked);
  if (dataset.has_targets()) dataset.read_targets(first, sequence_length, targets, checked);
  const int32_t* const current = tokens.data() + 1;
  std::copy_n(current, sequence_length, ids);
  for (int64_t row = 0; row < sequence_length; ++row) document_start[row] = current[row - 1] == end_of_document;
  if (dataset.has_targets()) return;
  std::copy_n(current + 1, sequence_length, targets);
  if (!document_reset) return;
  for (int64_t row = 0; row < sequence_length; ++row) {
    targets[row] = current[row] == end_of_document ? kNotCounted : targets[row];
  }
}

Loader::Loader(const std::vector<DataSource>& sources, int64_t sequence_length, uint64_t seed, bool document_reset,
               bool shuffle)
    : implementation_(std::make_unique<Implementation>()) {
  Implementation& self = *implementation_;
  if (sources.empty()) throw_bad_input("no data source; name at least one dataset directory");
  if (sequence_length < 1) throw_bad_input("sequence length ", sequence_length, ": must be at least 1");
  self.sequence_length = sequence_length;
  self.document_reset = document_reset;
  std::vector<double> weights;
  const auto open = std::make_shared<OpenShards>();
  for (const DataSource& source : sources) {
    const Dataset& dataset = self.datasets.emplace_back(source.directory, open);
    check_pack(dataset, sequence_length);
    check_ids(self.datasets.front(), dataset);
    check_same_tokenizer(self.datasets.front(), dataset);
    const int64_t count = windows_in(dataset, sequence_length);
    if (count < 1) {
      throw_bad_input(source.directory, " holds ", dataset.tokens(), " tokens, fewer than one window of ",
                      sequence_length + (dataset.has_targets() ? 0 : 1),
                      "; lower the sequence length or give more text");
    }
    if ((source.weight > 0) != (sources.front().weight > 0)) {
      throw_bad_input("data source ", source.directory,
                      source.weight > 0 ? " has a weight, but " : " has no weight, but ", sources.front().directory,
                      source.weight > 0 ? " has none" : " has one",
                      "; give every source a weight (path:weight) or none");
    }
    self.windows.push_back(count);
    self.all_windows += count;
    self.given_weights.push_back(source.weight);
    weights.push_back(source.weight > 0 ? source.weight : static_cast<double>(count));
  }
  if (!shuffle) return;
  check_quotas(sources, self.windows, self.all_windows, blend_quotas(weights));
  self.order.emplace(self.windows, weights, seed);
}

Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

void Loader::require_shards() const {
  for (const Dataset& dataset : implementation_->datasets) dataset.require_shards();
}

int64_t Loader::vocab_size() const {
  return implementation_->datasets.front().description().header.vocab_size;
}
int32_t Loader::end_of_document() const {
  return implementation_->datasets.front().description().header.end_of_document;
}
std::string Loader::tokenizer_hash() const {
  return implementation_->datasets.front().description().header.tokenizer_hash;
}
const StoredTokenizer& Loader::tokenizer() const {
  return implementation_->datasets.front().tokenizer();
}
int64_t Loader::windows() const {
  return implementation_->all_windows;
}
const std::vector<int64_t>& Loader::windows_of_sources() const {
  return implementation_->windows;
}

std::vector<double> Loader::passes(int64_t samples) const {
  const Implementation& self = *implementation_;
  std::vector<double> passes;
  for (size_t i = 0; i < self.windows.size(); ++i) {
    const double share = static_cast<double>(self.order ? self.order->quotas()[i] : self.windows[i]) /
                         static_cast<double>(self.order ? kBlendBlock : self.all_windows);
    passes.push_back(share * static_cast<double>(samples) / static_cast<double>(self.windows[i]));
  }
  return passes;
}

int64_t Loader::tokens() const {
  int64_t sum = 0;
  for (const Dataset& dataset : implementation_->datasets) sum += dataset.tokens();
  return sum;
}

int64_t Loader::dropped_tokens() const {
  const std::vector<int64_t> dropped = dropped_tokens_of_sources();
  return std::reduce(dropped.begin(), dropped.end());
}

std::vector<int64_t> Loader::dropped_tokens_of_sources() const {
  const Implementation& self = *implementation_;
  std::vector<int64_t> dropped;
  for (size_t i = 0; i < self.datasets.size(); ++i) {
    const int64_t next = self.datasets[i].has_targets() ? 0 : 1;  // the target of the last window's last token
    dropped.push_back(self.datasets[i].tokens() - self.windows[i] * self.sequence_length - next);
  }
  return dropped;
}

std::string Loader::fingerprint() const {
  return implementation_->fingerprint(implementation_->order.has_value());
}

std::string Loader::fingerprint_with_weights() const {
  return implementation_->fingerprint(true);
}

std::vector<std::string> Loader::fingerprints_of_sources() const {
  std::vector<std::string> all;
  for (const Dataset& dataset : implementation_->datasets) all.push_back(dataset.fingerprint());
  return all;
}

std::string Loader::Implementation::fingerprint(bool with_weights) const {
  if (datasets.size() == 1) return datasets.front().fingerprint();
  std::string all;
  for (size_t i = 0; i < datasets.size(); ++i) {
    char weight[40];
    std::snprintf(weight, sizeof weight, "%.17g", with_weights ? given_weights[i] : 0.0);
    all += datasets[i].fingerprint() + ":" + weight + "\n";
  }
  return to_hex(xxh3_128(all));
}

void Loader::read_by(const AroundRead& around) {
  for (Dataset& dataset : implementation_->datasets) dataset.read_by(around);
}

void Loader::read(int64_t first_sample, int64_t count, int32_t* ids, int32_t* targets, uint8_t* document_start) {
  CHECK(first_sample >= 0 && count >= 0, "samples ", first_sample, ", ", count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i * implementation_->sequence_length;
    implementation_->read_sample(implementation_->locate(first_sample + i), ids + row, targets + row,
                                 document_start + row);
  }
}

}  // namespace shiftron
