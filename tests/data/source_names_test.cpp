// Names of sources, by paths that have the same end or are given twice.
#include "data/source_names.h"

#include <gtest/gtest.h>

namespace shiftron {
namespace {

std::vector<std::string> names_of(const std::vector<std::string>& directories) {
  std::vector<DataSource> sources;
  for (const std::string& directory : directories) sources.push_back({.directory = directory});
  return source_names(sources);
}

TEST(SourceNames, AreTheShortestEndsThatDiffer) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_of({"/data/books/val"}), Names{"val"});
  EXPECT_EQ(names_of({"/data/books", "web/"}), (Names{"books", "web"}));
  EXPECT_EQ(names_of({"/data/books/val", "/data/web/val", "near"}), (Names{"books/val", "web/val", "near"}));
  EXPECT_EQ(names_of({"val", "./web/../web/val"}), (Names{"val", "web/val"}));
  EXPECT_EQ(names_of({"/a/val", "/b/val", "/a/val", "/a/val"}), (Names{"a/val", "b/val", "a/val:2", "a/val:3"}));
  EXPECT_EQ(names_of({"a\nb\xff", "c"}), (Names{"a\\x0Ab\\xFF", "c"}));
}

}  // namespace
}  // namespace shiftron
