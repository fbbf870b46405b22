// Which machine this is, and what its clock says, as texts for people and files.
#pragma once

#include <string>

namespace shiftron {

std::string host_name();

// UTC with milliseconds: "2026-11-22T02:34:35.123Z".
std::string now_text();

}  // namespace shiftron
