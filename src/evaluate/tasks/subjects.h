// The subjects of MMLU and CMMLU, as in their file names.
#pragma once

#include <string>
#include <vector>

namespace shiftron {

struct SubjectArea {
  std::string name;   // as in its group's name
  std::string alias;  // in tables
  std::vector<std::string> subjects;
};
std::vector<SubjectArea> mmlu_areas();

struct ChineseSubject {
  std::string name;
  std::string chinese;  // as in the prompt
};
std::vector<ChineseSubject> cmmlu_subjects();

}  // namespace shiftron
