// What ranks learn about each other, and faults that they throw together.
#include "parallel/agree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "core/host.h"
#include "parallel/same_settings.h"
#include "parallel/host_communicator.h"

namespace shiftron {
namespace {

TEST(MatchingRanks, AreCountedInTheOrderOfRanks) {
  const std::vector<std::string> lines = {"a", "b", "a", "", "a", "b", "ab"};
  const std::vector<int> counts = {3, 2, 3, 1, 3, 2, 1}, places = {0, 0, 1, 0, 2, 1, 0};
  run_thread_ranks(static_cast<int>(lines.size()), [&](HostCommunicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const MatchingRanks alike = find_matching_ranks(world, lines[rank]);
    EXPECT_EQ(alike.count, counts[rank]) << "rank " << rank;
    EXPECT_EQ(alike.place, places[rank]) << "rank " << rank;
  });
}

TEST(DifferentTexts, ComeOnceInTheOrderOfRanks) {
  const std::vector<std::string> said = {"b", "a\n", "b", "", "a\n", "c"};
  run_thread_ranks(static_cast<int>(said.size()), [&](HostCommunicator& world) {
    const std::vector<std::string> expected = {"b", "a\n", "", "c"};
    EXPECT_EQ(different_texts(world, said[static_cast<size_t>(world.rank())]), expected);
  });
}

struct Told {
  int code;
  std::string message;
  bool operator==(const Told&) const = default;
};

// What each of `ranks` threads throws.
std::vector<Told> thrown(int ranks, const std::function<void(ControlPlane&)>& body) {
  std::vector<Told> told(static_cast<size_t>(ranks), Told{0, ""});
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    try {
      body(world);
    } catch (const Error& error) {
      told[static_cast<size_t>(world.rank())] = {static_cast<int>(error.code()), error.what()};
    }
  });
  return told;
}

TEST(AllAgree, TheFirstFaultIsToldByRankZeroAlone) {
  const auto fails_on = [](std::vector<int> failing) {
    return thrown(3, [failing](ControlPlane& world) {
      run_on_all_ranks(world, [&] {
        if (std::ranges::find(failing, world.rank()) == failing.end()) return;
        throw Error("no\nway " + std::to_string(world.rank()),
                    world.rank() == 1 ? ExitCode::bad_input : ExitCode::crash);
      });
    });
  };
  EXPECT_EQ(fails_on({}), (std::vector<Told>{{0, ""}, {0, ""}, {0, ""}}));
  EXPECT_EQ(fails_on({0, 1, 2}), (std::vector<Told>{{70, "no\nway 0"}, {70, ""}, {70, ""}}));
  EXPECT_EQ(
      fails_on({1, 2}),
      (std::vector<Told>{{76, "rank 1 on " + host_name() + ": no\nway 1 (on 2 of 3 ranks)"}, {76, ""}, {76, ""}}));
}

TEST(ToldByFirst, FaultsOfAllAreToldByRankZeroAndCrashesByWhoHasThem) {
  const auto fails_on = [](std::vector<int> failing, ExitCode code) {
    return thrown(3, [=](ControlPlane& world) {
      report_on_first_rank(world, [&] {
        if (std::ranges::find(failing, world.rank()) != failing.end()) throw Error("no way", code);
      });
    });
  };
  EXPECT_EQ(fails_on({0, 1, 2}, ExitCode::bad_input), (std::vector<Told>{{76, "no way"}, {76, ""}, {76, ""}}));
  for (const ExitCode own : {ExitCode::crash, ExitCode::hang}) {
    const Told told{static_cast<int>(own), "no way"};
    EXPECT_EQ(fails_on({2}, own), (std::vector<Told>{{0, ""}, {0, ""}, told}));
  }
}

TEST(FirstAgrees, ItsFaultEndsAllAndOthersAreNotAsked) {
  for (const bool fails : {true, false}) {
    const std::vector<Told> told = thrown(2, [&](ControlPlane& world) {
      run_on_first_rank(world, [&] {
        EXPECT_EQ(world.rank(), 0);
        if (fails) throw_bad_input("not with me");
      });
    });
    const std::vector<Told> expected = {{76, "not with me"}, {76, ""}};
    EXPECT_EQ(told, fails ? expected : std::vector<Told>(2, Told{0, ""}));
  }
}

// What all throw whose ranks were given these.
std::vector<Told> refused(const std::vector<std::vector<RankSetting>>& given) {
  return thrown(static_cast<int>(given.size()),
                [&](ControlPlane& world) { require_same_settings(world, given[static_cast<size_t>(world.rank())]); });
}

TEST(GivenAlike, TheSameOnAllRanksPasses) {
  const std::vector<RankSetting> given = {{"train.seed", "1"}, {"prompt", "two\nlines"}, {"faults", ""}};
  EXPECT_EQ(refused({given, given, given}), (std::vector<Told>(3, Told{0, ""})));
}

TEST(GivenAlike, RanksThatDifferAreNamedWithTheirHostsKeysAndBothValues) {
  const std::string here = " on " + host_name();
  const std::vector<RankSetting> first = {{"train.seed", "1"}, {"train.steps", "20"}, {"--profile", ""}};
  const std::vector<RankSetting> other = {{"train.seed", "2"}, {"train.steps", "20"}, {"--profile", ""}};
  const std::vector<RankSetting> third = {{"train.seed", "1"}, {"train.steps", "9"}, {"--limit", "8"}};
  const std::vector<Told> told = refused({first, first, other, other, third, other});
  for (size_t rank = 0; rank < told.size(); ++rank) {
    EXPECT_EQ(told[rank].code, 76);
    EXPECT_EQ(told[rank].message.empty(), rank > 0);
  }
  const std::string& text = told.front().message;
  EXPECT_EQ(text.substr(0, text.find("\nStart all")),
            "the ranks were started with different settings:"
            "\n  rank 2" +
                here + " has train.seed=2, but rank 0" + here +
                " has 1"
                "\n  rank 4" +
                here + " has train.steps=9, but rank 0" + here +
                " has 20"
                "\n  rank 4" +
                here + " has --limit=8, but rank 0" + here +
                " has nothing"
                "\n  and 2 more ranks differ from rank 0");
}

TEST(GivenAlike, NoListLooksLikeAnotherAndAnEmptyValueIsNothing) {
  EXPECT_EQ(refused({{{"a", "1:b"}}, {{"a1:", "b"}}}).front().code, 76);
  EXPECT_EQ(refused({{{"a", "b"}}, {{"a", "b"}, {"c", ""}}}).front().code, 0);
}

TEST(GivenAlike, ALongListAndALongValueAreCutShort) {
  std::vector<RankSetting> first, other;
  for (int i = 0; i < 20; ++i) {
    first.push_back({"key " + std::to_string(i), "1"});
    other.push_back({"key " + std::to_string(i), std::string(5000, 'x')});
  }
  const std::string text = refused({first, other}).front().message;
  EXPECT_NE(text.find("key 5=xxx"), std::string::npos) << text;
  EXPECT_EQ(text.find("key 6="), std::string::npos) << text;
  EXPECT_NE(text.find("and 14 more keys of this rank differ"), std::string::npos) << text;
  EXPECT_LT(text.size(), 4000);
}

}  // namespace
}  // namespace shiftron
