// The files that words of a command line mean: folders, patterns, lists.
#pragma once

#include <string>
#include <vector>

namespace shiftron::cli {

struct InputPaths {
  std::vector<std::string> paths;
  std::vector<std::string> notes;  // of files in folders that were passed over, for stderr
};

// Adds what each word means, in order:
//  * "-" and the name of a file or pipe: itself;
//  * a folder: its files with endings of text (.jsonl .ndjson .json .txt .text .md, also packed: .gz .zst .xz .bz2), of
//    all folders in it too, sorted by path. Names that begin with a dot are left out;
//  * a pattern with * ? [ ] of which no file has the name: the files and folders that match, sorted;
//  * "@FILE": the words in the lines of FILE; "@-": those on stdin.
// Throws Error(bad_input) with every word that means no file. A name that does not exist means itself, and opening it
// reports it.
InputPaths input_paths(const std::vector<std::string>& words);

// The words in the lines of a file, or of stdin ("-"). Throws Error(bad_input) if there are none.
std::vector<std::string> listed_words(const std::string& list);

}  // namespace shiftron::cli
