// Files of benchmark items: JSONL, JSON, CSV, lines of text. Errors name file and line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace shiftron {

// One item of a file.
struct Record {
  nlohmann::ordered_json value;  // an object; its keys in the file's order
  std::string where;             // FILE:LINE, for messages
};

// One JSON object per line. Skips blank lines and lines that do not contain `with`. Throws Error(bad_input).
std::vector<Record> read_jsonl(const std::string& path, const std::string& with = "");
// The file is one JSON object. Throws Error(bad_input).
Record read_json(const std::string& path);

struct CsvRow {
  std::vector<std::string> cells;
  std::string where;
};
// RFC 4180: cells in quotes may hold commas, line ends and quotes written twice. Rows end with \n or \r\n; empty lines
// are skipped. Characters after a closing quote belong to the cell, as in Python's csv. Throws Error(bad_input).
std::vector<CsvRow> read_csv(const std::string& path);
// A CSV file whose first row names the columns; cells are texts, and every row has as many as the first.
std::vector<Record> read_csv_records(const std::string& path);

// {"text": …} for each line, which ends with \n or \r\n; the last one need not.
std::vector<Record> read_lines(const std::string& path);
// {"text": the whole file}
Record read_text(const std::string& path);

}  // namespace shiftron
