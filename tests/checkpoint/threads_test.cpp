// Several threads of a rank write and read the same bytes as one.
#include <atomic>
#include <set>

#include "checkpoint/fixture.h"
#include "checkpoint/steps.h"
#include "checkpoint/verify.h"
#include "thread_room.h"

namespace shiftron {
namespace {

using namespace shiftron::testing;
using ::testing::HasSubstr;

// Boxes of many blocks of 512 bytes, with shorter ones at their ends, and boxes of less than one.
const FakeModel kFloats{.layers = 3, .hidden = 24, .heads = 12, .kv_heads = 2, .ffn = 36, .vocab = 131};
const FakeModel kHalves{.layers = 3, .hidden = 24, .heads = 12, .kv_heads = 2, .ffn = 36, .vocab = 131, .halves = true};

SaveOptions by_threads(int threads) {
  SaveOptions options = small_blocks();
  options.threads = threads;
  return options;
}

std::string save_by(int threads, const std::string& directory, const FakeModel& model, const ParallelLayout& layout) {
  const SaveResult saved =
      save_state(directory, model, layout, 3, 5, {.keep = 1000, .keep_every = 0}, by_threads(threads));
  EXPECT_TRUE(saved.saved) << saved.reason;
  return saved.directory;
}

// Flips a bit of the last byte of the middle box of a step's first file; returns its dataset.
std::string damage(const std::string& step) {
  const Manifest manifest = read_manifest(step);
  const ManifestBox& box = manifest.boxes[manifest.boxes.size() / 2];
  const std::string path = step + "/" + manifest.files[static_cast<size_t>(box.file)].name;
  std::string bytes = read_file(path);
  bytes[box.byte_offset + box.bytes - 1] ^= 1;
  write_text(path, bytes);
  return manifest.dataset(box);
}

class Threads : public ::testing::TestWithParam<bool> {
 protected:
  const FakeModel& model() const { return GetParam() ? kHalves : kFloats; }
  const TemporaryDirectory directory_{fast_parent()};
};

// The hashes are those of the files before there were threads.
TEST_P(Threads, FilesAreThoseOfOneThread) {
  const std::string one = save_by(1, directory_.path() + "/one", model(), {.tp = 2});
  for (const int threads : {2, 3}) {
    const std::string many =
        save_by(threads, directory_.path() + "/" + std::to_string(threads), model(), {.tp = 2});
    ASSERT_EQ(names_in(one), names_in(many));
    for (const std::string& name : names_in(one)) {
      EXPECT_EQ(read_file(one + "/" + name), read_file(many + "/" + name)) << name;
    }
    EXPECT_THAT(verify_step(many), ::testing::IsEmpty());
  }
  EXPECT_EQ(to_hex(xxh3_128(read_file(one + "/" + rank_file_name(0)))), "b7ccf9c81bd16c3163d9d68c666313e4");
  EXPECT_EQ(to_hex(xxh3_128(read_file(one + "/" + rank_file_name(1)))), "30210c85d8f416fa4bd3f9f99280653a");
}

TEST_P(Threads, AnyLayoutIsReadAsByOneThread) {
  const std::string step = save_by(2, directory_.path(), model(), {.tp = 2});
  for (const ParallelLayout& layout : {ParallelLayout{.tp = 2}, ParallelLayout{}, ParallelLayout{.tp = 4, .pp = 2}}) {
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      using Reads = std::multiset<std::pair<std::string, uint64_t>>;
      Reads reads[2];
      for (const int threads : {1, 4}) {
        Ledger ledger;
        ParameterSet set = make_set(model(), layout, rank, ledger);
        Reads& some = reads[threads > 1 ? 1 : 0];
        load_parameters(step, set,
                        {.with_moments = true,
                         .threads = threads,
                         .at_read = [&](const ManifestFile& file, uint64_t byte_offset, uint64_t) {
                           some.emplace(file.name, byte_offset);
                         }});
        EXPECT_EQ(count_wrong(model(), set, 5), 0) << layout.tp << " " << layout.pp << " rank " << rank;
      }
      EXPECT_EQ(reads[0], reads[1]);  // no block twice
    }
  }
}

// What is read at once is less than such a block, and the last piece of one shorter than the others.
TEST_P(Threads, ABlockOfManyPiecesIsWhole) {
  FakeModel large = model();
  large.vocab = 30011;
  const SaveResult saved = save_state(directory_.path(), large, {}, 3, 5, {.keep = 1000, .keep_every = 0}, SaveOptions{});
  ASSERT_TRUE(saved.saved) << saved.reason;
  Ledger ledger;
  ParameterSet set = make_set(large, {}, 0, ledger);
  load_parameters(saved.directory, set, {.with_moments = true, .threads = 2});
  EXPECT_EQ(count_wrong(large, set, 5), 0);
}

TEST_P(Threads, DamageIsNamedByAnyOfThem) {
  const std::string step = save_by(2, directory_.path(), model(), {});
  const std::string dataset = damage(step);
  Ledger ledger;
  ParameterSet set = make_set(model(), {}, 0, ledger);
  for (int time = 0; time < 20; ++time) {
    const Error error = error_of([&] { load_parameters(step, set, {.with_moments = true, .threads = 4}); });
    EXPECT_EQ(error.code(), ExitCode::no_checkpoint);
    EXPECT_THAT(error.what(), HasSubstr(dataset + ": block "));
    EXPECT_THAT(error.what(), HasSubstr("it is damaged"));
  }
}

TEST_P(Threads, AStopAtAnyPointLeavesOtherStepsAlone) {
  ASSERT_TRUE(save_by(2, directory_.path(), model(), {}) != "");
  for (const char* point : {"file created", "half written", "file closed", "file synced"}) {
    SaveOptions options = by_threads(2);
    options.at_point = [&](const std::string& passed) {
      if (passed == point) throw_crash("stopped at ", point);
    };
    const SaveResult saved =
        save_state(directory_.path(), model(), {}, 4, 6, {.keep = 1000, .keep_every = 0}, options);
    EXPECT_FALSE(saved.saved);
    EXPECT_THAT(saved.reason, HasSubstr(point));
    EXPECT_EQ(names_in(directory_.path()), std::vector<std::string>{step_name(3)});
  }
}

INSTANTIATE_TEST_SUITE_P(Halves, Threads, ::testing::Bool());

TEST_P(Threads, WhereNoneCanBeMadeOneReadsIt) {
  const std::string step = save_by(1, directory_.path(), model(), {.tp = 2});
  for (const int room : {0, 1}) {
    EXPECT_EXIT(
        {
          Ledger ledger;
          ParameterSet set = make_set(model(), {}, 0, ledger);
          leave_room_for_threads(room);
          load_parameters(step, set, {.with_moments = true, .threads = 4});
          _exit(count_wrong(model(), set, 5) == 0 ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "")
        << room;
  }
}

}  // namespace
}  // namespace shiftron
