// Appendix D of the paper, as printed or continued by the rule of its section 3.2. docs/generated-data.md has the
// draws.
#include "data/generate/induction.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "data/generate/draws.h"

namespace shiftron {
namespace {

class Induction : public DocumentGenerator {
 public:
  Induction(uint64_t seed, const GeneratorSettings& settings)
      : seed_(seed),
        length_(settings.number("length")),
        pool_(settings.number("pool")),
        symbols_(settings.number("symbols") == 0 ? pool_ : settings.number("symbols")),
        continued_(settings.text("rule") == "continued"),
        masked_(settings.text("targets") == "answers") {
    if (symbols_ < pool_) {
      throw_bad_input("--symbols ", symbols_, " is less than --pool ", pool_, "; give --symbols ", pool_,
                      " or more, or a smaller --pool");
    }
    if (share_within(length_) < 0.01) {
      int32_t enough = length_;
      while (share_within(enough) < 0.5) ++enough;
      throw_bad_input("--length ", length_, " is too short for --pool ", pool_, ": only ",
                      std::round(share_within(length_) * 1e5) / 1e3,
                      " % of the documents would contain their answer; give --length ", enough,
                      " or more, or a smaller --pool");
    }
  }

  int32_t vocabulary() const override { return 1 + symbols_; }
  int32_t longest_document() const override { return length_; }
  std::string token_name(int32_t id) const override { return std::to_string(id); }

  GeneratedDocument document(uint64_t number) const override {
    Draws draws(seed_, "data.generate.induction", number);
    const std::vector<int32_t> pool = pool_ < symbols_ ? draws.choose(symbols_, pool_) : std::vector<int32_t>();
    GeneratedDocument made;
    std::vector<int32_t>& ids = made.ids;
    size_t first = 0;
    do first = draw_until_answer(draws, pool, ids);
    while (ids.size() + 1 > static_cast<size_t>(length_));
    const size_t repeat = ids.size() - 2;
    while (continued_ && ids.size() + 1 < static_cast<size_t>(length_))
      ids.push_back(ids[ids.size() - (repeat - first)]);
    if (masked_) {
      made.targets.assign(ids.size(), kNotCounted);
      std::copy(ids.begin() + static_cast<ptrdiff_t>(repeat) + 1, ids.end(),
                made.targets.begin() + static_cast<ptrdiff_t>(repeat));
    }
    return made;
  }

 private:
  // Fills `ids`; returns the first position of the repeated symbol.
  size_t draw_until_answer(Draws& draws, const std::vector<int32_t>& pool, std::vector<int32_t>& ids) const {
    ids.clear();
    while (true) {
      const uint32_t place = draws.below(static_cast<uint32_t>(pool_));
      const int32_t id = 1 + (pool.empty() ? static_cast<int32_t>(place) : pool[place]);
      if (!ids.empty() && ids.back() == id) continue;
      const auto found = std::ranges::find(ids, id);
      const size_t first = static_cast<size_t>(found - ids.begin());
      const bool repeats = found != ids.end();
      ids.push_back(id);
      if (!repeats) continue;
      ids.push_back(ids[first + 1]);
      return first;
    }
  }

  // Share of the documents that have their answer within `length` ids, including the end: a symbol after k distinct
  // ones repeats one of them with probability (k − 1) / (pool − 1).
  double share_within(int32_t length) const {
    double without = 1;
    for (int32_t k = 1; k <= length - 3; ++k) without *= 1 - std::min(1.0, (k - 1.0) / (pool_ - 1.0));
    return 1 - without;
  }

  const uint64_t seed_;
  const int32_t length_, pool_, symbols_;
  const bool continued_, masked_;
};

}  // namespace

GeneratorKind induction_kind() {
  return {
      .name = "induction",
      .summary = "symbols up to the first repeat, then what came after it (the paper's Appendix D)",
      .options =
          {{.name = "rule",
            .help = "printed: a document ends with its answer; continued: it repeats as a cycle up to --length",
            .otherwise = "printed",
            .choices = {"printed", "continued"}},
           {.name = "pool",
            .help = "symbols that a document draws from",
            .otherwise = "512",
            .low = 2,
            .high = 1000000},
           {.name = "symbols",
            .help =
                "symbols in the vocabulary; if more than --pool, each document draws its own pool; 0: same as --pool",
            .otherwise = "0",
            .low = 0,
            .high = 1000000},
           {.name = "length", .help = "most tokens per document", .otherwise = "512", .low = 5, .high = 1000000},
           {.name = "targets",
            .help = "answers: only tokens that the rule determines count; all: every next token",
            .otherwise = "answers",
            .choices = {"answers", "all"}}},
      .make = [](uint64_t seed, const GeneratorSettings& settings) -> std::unique_ptr<DocumentGenerator> {
        return std::make_unique<Induction>(seed, settings);
      }};
}

}  // namespace shiftron
