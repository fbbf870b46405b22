// Every kind has one line here.
#include "data/generate/kinds.h"

#include "core/check.h"
#include "core/foreign_text.h"
#include "core/nearest_name.h"
#include "data/generate/hop.h"
#include "data/generate/induction.h"
#include "data/generate/math.h"
#include "data/generate/ngram.h"

namespace shiftron {

const std::vector<GeneratorKind>& generator_kinds() {
  static const std::vector<GeneratorKind> kinds = {induction_kind(), ngram_kind(), hop_kind(), math_kind()};
  return kinds;
}

const GeneratorKind& generator_kind(const std::string& name) {
  std::vector<std::string> names;
  for (const GeneratorKind& kind : generator_kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  std::string all;
  for (const std::string& one : names) all += (all.empty() ? "" : ", ") + one;
  throw_bad_input("unknown kind of generated data '", printable(name), "'", suggestion(name, names), "; the kinds are ",
                  all);
}

}  // namespace shiftron
