// The benchmarks' datasets: where their files lie below --data, in which forms, and which columns they have.
#pragma once

#include <string>
#include <vector>

#include "evaluate/tasks/records.h"

namespace shiftron {

struct DatasetHelp {
  std::string name;    // also the folder below --data
  std::string hub;     // dataset of the Hugging Face hub
  std::string origin;  // of the original files, and what they are called
};
std::vector<DatasetHelp> datasets();
// By name. Throws Error(crash) for an unknown one.
DatasetHelp dataset_help(const std::string& name);

// The paths, relative to --data, at which a split is looked for, in this order.
std::vector<std::string> split_paths(const std::string& dataset, const std::string& part, const std::string& split);

struct DatasetOptions {
  bool keep_index = false;  // of CMMLU's CSV files, as the column "Unnamed: 0": some loaders do
};

struct Split {
  std::vector<Record> records;     // in the hub's columns, in the file's order
  std::vector<std::string> files;  // that were read
};
// The split out of the first of its paths that is there. Throws Error(bad_input): none is there, or an item is
// malformed; `user` says who needs it.
Split read_split(const std::string& dataset, const std::string& part, const std::string& split, const std::string& data,
                 const std::string& user, const DatasetOptions& options = {});

}  // namespace shiftron
