// The subjects of MMLU and CMMLU, as their files are named.
#pragma once

#include <string>
#include <vector>

namespace shiftron {

struct SubjectArea {
  std::string name;   // as its group is named
  std::string alias;  // in tables
  std::vector<std::string> subjects;
};
std::vector<SubjectArea> mmlu_areas();

struct ChineseSubject {
  std::string name;
  std::string chinese;  // as the prompt calls it
};
std::vector<ChineseSubject> cmmlu_subjects();

}  // namespace shiftron
