// What some tasks append to their documents.
#pragma once

#include <string>

#include "evaluate/tasks/records.h"
#include "evaluate/tasks/task_definition.h"

namespace shiftron {

// HellaSwag's text without the marks that WikiHow left in it.
std::string hellaswag_text(const std::string& text);

// Appends to `record`, or overwrites in place. Throws Error(bad_input) with the record's place.
void prepare(Preparation preparation, Record& record);

}  // namespace shiftron
