// One line per fault.
#include "config/faults.h"

#include "core/check.h"

namespace shiftron {

void refuse_faults(const std::vector<std::string>& faults, const std::string& place, const std::string& advice) {
  if (faults.empty()) return;
  std::string text = std::to_string(faults.size()) + (faults.size() == 1 ? " fault in " : " faults in ") + place + ":";
  for (const std::string& fault : faults) text += "\n  " + fault;
  throw_bad_input(text, advice.empty() ? "" : "\n" + advice);
}

}  // namespace shiftron
