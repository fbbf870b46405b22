// A table of distinct pairs of symbols, each with a third one. docs/generated-data.md has the draws.
#include "data/generate/ngram.h"

#include "core/check.h"
#include "data/generate/draws.h"

namespace shiftron {
namespace {

class Ngram : public DocumentGenerator {
 public:
  Ngram(uint64_t seed, const GeneratorSettings& settings)
      : seed_(seed), symbols_(settings.number("symbols")), masked_(settings.text("targets") == "answers") {
    const int32_t pairs = settings.number("pairs");
    if (pairs > symbols_ * symbols_) {
      throw_bad_input("--pairs ", pairs, " is more than the ", symbols_ * symbols_, " pairs of --symbols ", symbols_,
                      "; give fewer pairs or more symbols");
    }
    Draws draws(seed, "data.generate.ngram.table", 0);
    pairs_ = draws.choose(symbols_ * symbols_, pairs);
    for (int32_t i = 0; i < pairs; ++i) {
      thirds_.push_back(static_cast<int32_t>(draws.below(static_cast<uint32_t>(symbols_))));
    }
  }

  int32_t vocabulary() const override { return 1 + symbols_; }
  int32_t longest_document() const override { return 4; }
  std::string token_name(int32_t id) const override { return std::to_string(id); }

  GeneratedDocument document(uint64_t number) const override {
    Draws draws(seed_, "data.generate.ngram", number);
    const uint32_t row = draws.below(static_cast<uint32_t>(pairs_.size()));
    GeneratedDocument made;
    made.ids = {1 + pairs_[row] / symbols_, 1 + pairs_[row] % symbols_, 1 + thirds_[row]};
    if (masked_) made.targets = {kNotCounted, made.ids[2], kNotCounted};
    return made;
  }

 private:
  const uint64_t seed_;
  const int32_t symbols_;
  const bool masked_;
  std::vector<int32_t> pairs_, thirds_;  // pair first · symbols + second, and its third symbol
};

}  // namespace

GeneratorKind ngram_kind() {
  return {
      .name = "ngram",
      .summary = "two symbols and the third that a table gives for them (the paper's Figure 3)",
      .options = {{.name = "symbols", .help = "symbols in the vocabulary", .otherwise = "64", .low = 1, .high = 4096},
                  {.name = "pairs", .help = "rows of the table", .otherwise = "200", .low = 1, .high = 1000000},
                  {.name = "targets",
                   .help = "answers: only the third symbol counts; all: every next token",
                   .otherwise = "answers",
                   .choices = {"answers", "all"}}},
      .make = [](uint64_t seed, const GeneratorSettings& settings) -> std::unique_ptr<DocumentGenerator> {
        return std::make_unique<Ngram>(seed, settings);
      }};
}

}  // namespace shiftron
