// The journal's lines: what was appended is found by the next start, whatever a kill left of the last line.
#include "evaluate/score_journal.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "parallel/host_communicator.h"
#include "scratch.h"

namespace shiftron::testing {
namespace {

std::string found(const ScoreJournal& journal, const std::string& key) {
  const std::string* value = journal.find(key);
  return value != nullptr ? *value : "nothing";
}

TEST(ScoreJournal, IsReadByEveryRank) {
  const Scratch scratch;
  for (int round = 0; round < 2; ++round) {
    run_thread_ranks(3, [&](HostCommunicator& world) {
      ScoreJournal journal(scratch / "journal/below", world);
      EXPECT_EQ(journal.known(), 3 * round);
      const std::string rank = std::to_string(world.rank());
      journal.append(std::to_string(round) + "key" + rank, "value" + rank);
      EXPECT_EQ(found(journal, "0key2"), round == 0 ? "nothing" : "value2");
    });
  }
}

TEST(ScoreJournal, TornAndChangedLinesAreLeftOut) {
  const Scratch scratch;
  const auto world = make_single_world();
  const auto append = [&](const std::string& key) { ScoreJournal(scratch.path(), *world).append(key, "value"); };
  append("a");
  append("b");
  const std::string path = scratch / "answers-0.txt";
  const std::string whole = read_file(path);
  scratch.write("answers-0.txt", whole.substr(0, whole.size() - 5));
  append("c");  // after the torn line
  {
    const ScoreJournal journal(scratch.path(), *world);
    EXPECT_EQ(found(journal, "a"), "value");
    EXPECT_EQ(found(journal, "b"), "nothing");
    EXPECT_EQ(found(journal, "c"), "value");
  }
  std::string changed = read_file(path);
  changed[changed.find("value")] = 'w';
  scratch.write("answers-0.txt", changed);
  const ScoreJournal journal(scratch.path(), *world);
  EXPECT_EQ(found(journal, "a"), "nothing");
  EXPECT_EQ(found(journal, "c"), "value");
}

}  // namespace
}  // namespace shiftron::testing
