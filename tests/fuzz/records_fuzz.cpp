// Bytes as a file of items in every format. Accepted CSV, rewritten with quotes, is read as the same cells; accepted
// JSON is read as the same again.
#include "evaluate/tasks/records.h"
#include "fuzz/memory_file.h"

namespace shiftron::fuzz {
namespace {

std::string quoted(const std::vector<CsvRow>& rows) {
  std::string text;
  for (const CsvRow& row : rows) {
    for (size_t i = 0; i < row.cells.size(); ++i) {
      text += i == 0 ? "\"" : ",\"";
      for (const char c : row.cells[i]) text += c == '"' ? "\"\"" : std::string(1, c);
      text += '"';
    }
    text += "\r\n";
  }
  return text;
}

void read_rows(const std::string& path) {
  const std::vector<CsvRow> rows = read_csv(path);
  const MemoryFile copy(quoted(rows));
  const std::vector<CsvRow> again = read_csv(copy.path());
  require(again.size() == rows.size(), "as many rows");
  for (size_t i = 0; i < rows.size(); ++i) require(again[i].cells == rows[i].cells, "cells are cells");
}

void read_objects(const std::string& path) {
  std::string text;
  const std::vector<Record> records = read_jsonl(path);
  for (const Record& record : records) text += record.value.dump() + "\n";
  const MemoryFile copy(text);
  const std::vector<Record> again = read_jsonl(copy.path());
  require(again.size() == records.size(), "as many records");
  for (size_t i = 0; i < records.size(); ++i) require(again[i].value == records[i].value, "a record is a record");
}

}  // namespace

std::string read_input(std::string_view bytes) {
  const MemoryFile input(bytes);
  const std::string path = input.path();
  std::string refused;
  for (const auto& read :
       {+[](const std::string& file) { read_rows(file); }, +[](const std::string& file) { read_objects(file); },
        +[](const std::string& file) { read_csv_records(file); }, +[](const std::string& file) { read_lines(file); },
        +[](const std::string& file) { read_json(file); }}) {
    const std::string message = refusal_of([&] { read(path); });
    if (message.empty()) continue;
    require(message.starts_with(path), "a refusal names the file");
    refused += (refused.empty() ? "" : "; ") + message;
  }
  return refused;
}

}  // namespace shiftron::fuzz
