// The benchmarks' datasets: where their files are below --data, in which formats, and which columns they have.
#pragma once

#include <string>
#include <vector>

#include "evaluate/tasks/dataset_table.h"
#include "evaluate/tasks/records.h"

namespace shiftron {

std::vector<DatasetHelp> datasets();
// Finds a dataset by name. Throws Error(crash) if there is none.
DatasetHelp dataset_help(const std::string& name);

// The paths, relative to --data, that are searched for a split, in this order.
std::vector<std::string> split_paths(const std::string& dataset, const std::string& part, const std::string& split);

struct Split {
  std::vector<Record> records;     // with the hub's columns, in the file's order
  std::vector<std::string> files;  // files that were read
};
// Reads the split from the first of its paths that exists. Throws Error(bad_input) if none exists or an item is
// malformed; the message says that `user` needs it.
Split read_split(const std::string& dataset, const std::string& part, const std::string& split, const std::string& data,
                 const std::string& user, const DatasetOptions& options = {});

}  // namespace shiftron
