// The table of benchmark datasets: their columns on the hub, and the files that hold their splits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "evaluate/tasks/records.h"

namespace shiftron {

struct DatasetHelp {
  std::string name;    // also the folder below --data
  std::string hub;     // its dataset on the Hugging Face hub
  std::string origin;  // of the original files, and their names
};

struct DatasetOptions {
  bool keep_index = false;  // of CMMLU's CSV files, as the column "Unnamed: 0", as some loaders do
};

enum class DatasetColumnKind {
  text,
  text_or_empty,  // may be missing or null: then ""
  text_or_null,   // may be missing: then null
  label,          // a text; whole numbers are converted to text
  whole,
  whole_or_flag,  // true and false are converted to 1 and 0
  any,            // as in the file
  texts,
  labelled_texts,  // {"text": [...], "label": [...]} of equal length
};

struct DatasetColumn {
  const char* name;
  DatasetColumnKind kind;
};

struct DatasetPlace {
  std::string split;
  std::string path;  // below the dataset's folder; {part} stands for the part
  // Reads all items of the file, or of the folder if the path ends with a slash; not yet reduced to the hub's columns.
  std::function<std::vector<Record>(const std::string& path, const std::string& part, const DatasetOptions&)> read;
};

struct BenchmarkDataset {
  DatasetHelp help;
  std::vector<DatasetColumn> columns;
  std::vector<DatasetPlace> places;
  std::string optional_column;  // kept if DatasetOptions::keep_index is set
};

const std::vector<BenchmarkDataset>& dataset_table();

}  // namespace shiftron
