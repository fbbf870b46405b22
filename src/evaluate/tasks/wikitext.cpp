// The steps in the harness's order: each works on the result of the previous ones.
#include "evaluate/tasks/wikitext.h"

#include "evaluate/tasks/python_text.h"

namespace shiftron {
namespace {

enum class By { text, pattern };

struct Step {
  By by;
  std::string from, to;
};

// Removes white space inside a pair of marks.
Step closed_up(const std::string& open, const std::string& inside, const std::string& close, const std::string& shown) {
  const std::string space = std::string("[") + python::kSpaces + "]*";
  return {By::pattern, open + space + "(" + inside + "*?)" + space + close, shown};
}

std::vector<Step> steps() {
  std::vector<Step> all = {
      {By::text, "s '", "s'"},  {By::pattern, "/' [0-9]/", "/'[0-9]/"},  // a bug of the harness, kept to match it
      {By::text, " @-@ ", "-"}, {By::text, " @,@ ", ","},
      {By::text, " @.@ ", "."},
  };
  for (const char* mark : {":", ";", ".", "!", "?", ","}) {
    all.push_back({By::text, std::string(" ") + mark + " ", std::string(mark) + " "});
  }
  all.push_back(closed_up("\\(", "[^)]", "\\)", "($1)"));
  all.push_back(closed_up("\\[", "[^\\]]", "\\]", "[$1]"));
  all.push_back(closed_up("\\{", "[^}]", "\\}", "{$1}"));
  all.push_back(closed_up("\"", "[^\"]", "\"", "\"$1\""));
  all.push_back(closed_up("'", "[^']", "'", "'$1'"));
  const Step rest[] = {
      {By::text, "= = = =", "===="}, {By::text, "= = =", "==="}, {By::text, "= =", "=="},  {By::text, " ° ", "°"},
      {By::text, " \n", "\n"},       {By::text, "\n ", "\n"},    {By::text, " N ", " 1 "}, {By::text, " 's", "'s"},
  };
  all.insert(all.end(), std::begin(rest), std::end(rest));
  return all;
}

}  // namespace

std::string detokenized_wikitext(std::string_view page) {
  static const std::vector<Step> kSteps = steps();
  std::string text(page);
  for (const Step& step : kSteps) {
    text =
        step.by == By::text ? python::replace(text, step.from, step.to) : python::substitute(step.from, step.to, text);
  }
  return text;
}

}  // namespace shiftron
