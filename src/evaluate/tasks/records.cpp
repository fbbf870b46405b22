// Readers of item files. They read whole files, as the largest benchmark has 50 MB.
#include "evaluate/tasks/records.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/task_names.h"
#include "core/check.h"
#include "core/file.h"
#include "core/json_outline.h"
#include "core/json_reason.h"
#include "core/shell_word.h"
#include "evaluate/tasks/json_pieces.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kLargestFile = uint64_t{4} << 30;  // bytes
constexpr int kDeepest = 64;                          // copying and printing a value are recursive

// The file's text without a byte order mark. Throws if it is compressed, Parquet or not UTF-8.
std::string text_of(const std::string& path, uint64_t limit = kLargestFile) {
  std::string text = read_file(path, limit);
  if (text.starts_with("PAR1")) {
    throw_bad_input(path, " is a Parquet file; convert it with launch/benchmarks-data OUTPUT.jsonl ", shell_word(path));
  }
  if (text.starts_with("\x1F\x8B"))
    throw_bad_input(path, " is compressed with gzip; unpack it first with ", unpack_command("gunzip -k", ".gz", path));
  if (text.starts_with("PK\x03\x04"))
    throw_bad_input(path, " is a zip archive; unpack it first with unzip ", shell_word(path));
  text.erase(0, byte_order_mark(text));
  int64_t line = 1;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t bytes = utf8_length(rest);
    if (bytes == 0) {
      throw_bad_input(path, ":", line, ": not UTF-8; convert the file with iconv -f ENCODING -t UTF-8 ",
                      shell_word(path));
    }
    if (rest[0] == '\n') ++line;
    rest.remove_prefix(bytes);
  }
  return text;
}

bool fits_64_bits(std::string_view digits) {
  int64_t below_zero = 0;
  uint64_t above = 0;
  const char* const end = digits.data() + digits.size();
  return std::from_chars(digits.data(), end, below_zero).ec == std::errc() ||
         std::from_chars(digits.data(), end, above).ec == std::errc();
}

// Puts whole numbers of more than 64 bits in quotes. Otherwise they would be rounded to 53 bits, but prompts and
// answers need their digits.
std::string with_large_numbers_as_texts(std::string_view json) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr size_t kMostDigits = 18;  // numbers with so many digits always fit
  return with_pieces_replaced(json, [&](std::string_view rest) -> JsonPiece {
    const char first = rest[0];
    if (first != '-' && kDigits.find(first) == std::string_view::npos) return {};
    const std::string_view number = rest.substr(0, rest.find_first_not_of("0123456789+-.eE"));
    const bool whole = number.find_first_not_of(kDigits, 1) == std::string_view::npos;
    if (number.size() <= kMostDigits || !whole || number[first == '-' ? 1 : 0] == '0' || fits_64_bits(number)) {
      return {number.size()};
    }
    return {number.size(), '"' + std::string(number) + '"'};
  });
}

// `advice`: for text that is not JSON.
Json object_of(std::string_view text, const std::string& where, const std::string& advice) {
  const auto open = std::ranges::count_if(text, [](char c) { return c == '[' || c == '{'; });
  if (open > kDeepest) {  // only then, as the check takes time
    refuse_deep_json(text, kDeepest,
                     [&] { throw_bad_input(where, ": nested deeper than ", kDeepest, "; remove such columns"); });
  }
  Json value;
  try {
    value = Json::parse(with_large_numbers_as_texts(text));
  } catch (const nlohmann::json::exception& error) {
    throw_bad_input(where, ": not JSON: ", printable(json_reason(error)), advice);
  }
  if (!value.is_object()) throw_bad_input(where, ": a JSON ", value.type_name(), ", not an object");
  return value;
}

std::string at_line(const std::string& path, int64_t line) {
  return path + ":" + std::to_string(line);
}

// Calls take(line without its end, number) for each line.
template <typename Take>
void for_each_line(std::string_view text, const Take& take) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    take(text.substr(0, end), number);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

}  // namespace

std::vector<Record> read_jsonl(const std::string& path, const std::string& with) {
  std::vector<Record> records;
  const std::string text = text_of(path);
  for_each_line(text, [&](std::string_view line, int64_t number) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    if (line.find(with) == std::string_view::npos) return;
    const std::string where = at_line(path, number);
    records.push_back({object_of(line, where, "; each line must be one JSON object"), where});
  });
  return records;
}

Record read_json(const std::string& path) {
  return {object_of(text_of(path, kLargestTaskFile), path, ""), path};
}

std::vector<CsvRow> read_csv(const std::string& path) {
  const std::string text = text_of(path);
  std::vector<CsvRow> rows;
  CsvRow row;
  std::string cell;
  int64_t line = 1, row_line = 1, quote_line = 0;  // quote_line: 0 outside of quotes
  bool was_quoted = false;
  const auto end_cell = [&] {
    row.cells.push_back(std::move(cell));
    cell.clear();
    was_quoted = false;
  };
  const auto end_row = [&] {
    if (row.cells.empty() && cell.empty() && !was_quoted) {  // an empty line
      row_line = line;
      return;
    }
    end_cell();
    row.where = at_line(path, row_line);
    rows.push_back(std::move(row));
    row = {};
    row_line = line;
  };
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\n') ++line;
    if (quote_line > 0) {
      if (c != '"') {
        cell += c;
      } else if (at + 1 < text.size() && text[at + 1] == '"') {
        cell += c;
        ++at;
      } else {
        quote_line = 0;
      }
    } else if (c == '"' && cell.empty() && !was_quoted) {
      quote_line = line;
      was_quoted = true;
    } else if (c == ',') {
      end_cell();
    } else if (c == '\n') {
      end_row();
    } else if (c == '\r' && at + 1 < text.size() && text[at + 1] == '\n') {
      continue;
    } else {
      cell += c;
    }
  }
  if (quote_line > 0) {
    throw_bad_input(at_line(path, quote_line),
                    ": a cell's opening quote is never closed; double quotes that are inside cells");
  }
  end_row();
  return rows;
}

std::vector<Record> read_csv_records(const std::string& path) {
  const std::vector<CsvRow> rows = read_csv(path);
  if (rows.empty()) throw_bad_input(path, " is empty; its first row must name the columns");
  std::vector<Record> records;
  for (size_t i = 1; i < rows.size(); ++i) {
    const CsvRow& row = rows[i];
    if (row.cells.size() != rows[0].cells.size()) {
      throw_bad_input(row.where, ": ", row.cells.size(), " cells, but the first row names ", rows[0].cells.size(),
                      " columns; quote cells that contain commas");
    }
    Record record{Json::object(), row.where};
    for (size_t cell = 0; cell < row.cells.size(); ++cell) record.value[rows[0].cells[cell]] = row.cells[cell];
    records.push_back(std::move(record));
  }
  return records;
}

std::vector<Record> read_lines(const std::string& path) {
  std::vector<Record> records;
  const std::string text = text_of(path);
  for_each_line(text, [&](std::string_view line, int64_t number) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    records.push_back({{{"text", line}}, at_line(path, number)});
  });
  return records;
}

Record read_text(const std::string& path) {
  return {{{"text", text_of(path)}}, path};
}

}  // namespace shiftron
