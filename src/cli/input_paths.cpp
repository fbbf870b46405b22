// Walks folders, and matches patterns as a shell does.
#include "cli/input_paths.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <set>
#include <sstream>
#include <string_view>

#include "core/check.h"
#include "core/file.h"
#include "core/foreign_text.h"
#include "core/system_error.h"
#include "data/unpacker.h"

namespace shiftron::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> kEndings = {".jsonl", ".ndjson", ".json", ".txt", ".text", ".md"};

bool has_text_ending(const fs::path& path) {
  const fs::path name = packing_of_name(path) == Packing::none ? path.filename() : path.filename().replace_extension();
  std::string ending = name.extension();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::count(kEndings, ending) > 0;
}

// The files of one folder and the folders in it.
class Folder {
 public:
  explicit Folder(const std::string& path) : path_(path) {
    add(path);
    std::ranges::sort(files_);
  }
  const std::vector<std::string>& files() const { return files_; }
  // What was passed over; "" if nothing.
  std::string note() const {
    if (others_ == 0) return "";
    return printable(path_) + ": " + std::to_string(others_) + (others_ == 1 ? " file" : " files") + " left out that " +
           (others_ == 1 ? "is" : "are") + " not regular or without an ending of text (" + printable(other_) +
           "); name such files, or give a pattern in quotes, to read them";
  }

 private:
  void add(const fs::path& folder) {
    std::error_code error;
    if (!seen_.insert(fs::canonical(folder, error)).second) return;  // links may form a circle
    std::set<fs::path> paths;  // in order, so that of two names of a folder always the same one is read
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      paths.insert(entry->path());
    }
    if (error) {
      const std::string message =
          "cannot read the folder " + folder.string() + ": " + error.message() + advice_on(error.value());
      if (is_system_error(error.value())) throw SystemError(message, ExitCode::bad_input);
      throw_bad_input(message);
    }
    for (const fs::path& path : paths) {
      if (path.filename().native().starts_with('.')) continue;
      if (fs::is_directory(path, error)) {
        add(path);
      } else if (fs::is_regular_file(path, error) && has_text_ending(path)) {
        files_.push_back(path);
      } else {
        if (others_++ == 0 || path.native() < other_) other_ = path;
      }
    }
  }

  std::string path_;
  std::vector<std::string> files_;
  std::set<fs::path> seen_;
  size_t others_ = 0;
  std::string other_;  // one that was passed over
};

std::vector<std::string> matches_of(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (result == GLOB_NOSPACE) throw std::bad_alloc();
  std::ranges::sort(paths);  // whatever the locale
  return paths;
}

class Expansion {
 public:
  void add(const std::string& word, bool is_listed) {
    try {
      expand(word, is_listed);
    } catch (const SystemError&) {
      throw;
    } catch (const Error& error) {
      faults_ += (faults_.empty() ? "" : "\n") + std::string(error.what());
    }
  }
  InputPaths take() {
    if (!faults_.empty()) throw_bad_input(faults_);
    return std::move(found_);
  }

 private:
  void expand(const std::string& word, bool is_listed) {
    std::error_code error;
    if (!is_listed && word.starts_with('@') && !name_exists(word)) {
      for (const std::string& listed : listed_words(word.substr(1))) add(listed, true);
    } else if (word.find_first_of("*?[") != std::string::npos && !name_exists(word)) {
      const std::vector<std::string> paths = matches_of(word);
      if (paths.empty()) throw_bad_input("no file matches ", printable(word), "; check the folder and the pattern");
      for (const std::string& path : paths) add_name(path);
    } else {
      add_name(word);
    }
  }

  void add_name(const std::string& path) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      found_.paths.push_back(path);
      return;
    }
    const Folder folder(path);
    if (const std::string note = folder.note(); !note.empty()) found_.notes.push_back(note);
    if (folder.files().empty()) {
      throw_bad_input("the folder ", printable(path),
                      " has no file with an ending of text (.jsonl, .ndjson, .json, .txt, .text, .md, or one of these "
                      "and .gz, .zst, .xz, .bz2); name its files, or give a pattern in quotes");
    }
    found_.paths.insert(found_.paths.end(), folder.files().begin(), folder.files().end());
  }

  InputPaths found_;
  std::string faults_;
};

}  // namespace

InputPaths input_paths(const std::vector<std::string>& words) {
  Expansion expansion;
  for (const std::string& word : words) expansion.add(word, false);
  return expansion.take();
}

std::vector<std::string> listed_words(const std::string& list) {
  std::istringstream file(is_stdin(list) ? std::string() : read_file(list));
  std::istream& stream = is_stdin(list) ? std::cin : file;
  std::vector<std::string> words;
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) words.push_back(line);
  }
  if (words.empty()) {
    throw_bad_input("the list ", is_stdin(list) ? "on stdin" : printable(list), " names no file; give one per line");
  }
  return words;
}

}  // namespace shiftron::cli
