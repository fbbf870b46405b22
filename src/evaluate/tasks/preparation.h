// Fields that some tasks add to their documents.
#pragma once

#include <string>

#include "evaluate/tasks/records.h"
#include "evaluate/tasks/task_definition.h"

namespace shiftron {

// HellaSwag's text without WikiHow's marks.
std::string hellaswag_text(const std::string& text);

// Appends fields to `record`, or overwrites them in place. Throws Error(bad_input) that names the record's file and
// line.
void prepare(Preparation preparation, Record& record);

}  // namespace shiftron
