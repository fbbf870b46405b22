// The k-hop task of Sanford et al., "Transformers, parallel computation, and logarithmic depth" (2024).
// docs/generated-data.md has the draws.
#include "data/generate/hop.h"

#include "core/check.h"
#include "data/generate/draws.h"

namespace shiftron {
namespace {

constexpr int32_t kNoSymbol = 1;  // the label of positions without a symbol k hops back
constexpr int32_t kFirstOfAlphabet = 2;

class Hop : public DocumentGenerator {
 public:
  Hop(uint64_t seed, const GeneratorSettings& settings)
      : seed_(seed),
        alphabet_(settings.number("alphabet")),
        length_(settings.number("length")),
        hops_(settings.number("hops")),
        least_hops_(settings.number("least-hops")) {
    if (least_hops_ > hops_) {
      throw_bad_input("--least-hops ", least_hops_, " is more than --hops ", hops_, "; give --least-hops ", hops_,
                      " or less");
    }
  }

  int32_t vocabulary() const override { return first_hop() + hops_ + 1; }
  int32_t longest_document() const override { return length_; }
  std::string token_name(int32_t id) const override {
    if (id == kNoSymbol) return "~";
    if (id >= first_hop()) return "hop" + std::to_string(id - first_hop());
    const int32_t symbol = id - kFirstOfAlphabet;
    return alphabet_ <= 26 ? std::string(1, static_cast<char>('a' + symbol)) : "s" + std::to_string(symbol);
  }

  GeneratedDocument document(uint64_t number) const override {
    Draws draws(seed_, "data.generate.hop", number);
    const int32_t hops =
        least_hops_ + static_cast<int32_t>(draws.below(static_cast<uint32_t>(hops_ - least_hops_ + 1)));
    std::vector<int32_t> symbols;
    while (symbols.size() + 2 < static_cast<size_t>(length_)) {
      const auto symbol = static_cast<int32_t>(draws.below(static_cast<uint32_t>(alphabet_)));
      if (symbols.empty() || symbols.back() != symbol) symbols.push_back(symbol);
    }
    GeneratedDocument made;
    made.ids.push_back(first_hop() + hops);
    for (const int32_t symbol : symbols) made.ids.push_back(kFirstOfAlphabet + symbol);
    made.targets = labels(symbols, hops);
    return made;
  }

 private:
  int32_t first_hop() const { return kFirstOfAlphabet + alphabet_; }

  // One hop leads from a position to the one after the last earlier occurrence of its symbol.
  std::vector<int32_t> labels(const std::vector<int32_t>& symbols, int32_t hops) const {
    constexpr size_t kNowhere = SIZE_MAX;
    std::vector<size_t> hop(symbols.size()), last(static_cast<size_t>(alphabet_), kNowhere);
    std::vector<int32_t> targets = {kNotCounted};
    for (size_t i = 0; i < symbols.size(); ++i) {
      size_t& seen = last[static_cast<size_t>(symbols[i])];
      hop[i] = seen == kNowhere ? kNowhere : seen + 1;
      seen = i;
      size_t place = i;
      for (int32_t k = 0; k < hops && place != kNowhere; ++k) place = hop[place];
      targets.push_back(place == kNowhere ? kNoSymbol : kFirstOfAlphabet + symbols[place]);
    }
    return targets;
  }

  const uint64_t seed_;
  const int32_t alphabet_, length_, hops_, least_hops_;
};

}  // namespace

GeneratorKind hop_kind() {
  return {.name = "hop",
          .summary = "every position is labelled with the symbol k hops back (the paper's Figure 9)",
          .options = {{.name = "alphabet", .help = "number of symbols", .otherwise = "4", .low = 2, .high = 1000},
                      {.name = "length", .help = "tokens per document", .otherwise = "100", .low = 3, .high = 1000000},
                      {.name = "hops", .help = "most hops", .otherwise = "16", .low = 0, .high = 1000},
                      {.name = "least-hops", .help = "fewest hops", .otherwise = "0", .low = 0, .high = 1000}},
          .make = [](uint64_t seed, const GeneratorSettings& settings) -> std::unique_ptr<DocumentGenerator> {
            return std::make_unique<Hop>(seed, settings);
          }};
}

}  // namespace shiftron
