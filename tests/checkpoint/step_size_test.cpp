// The bound on a step's size compared with real files: never below, and not far above.
#include "checkpoint/step_size.h"

#include <map>

#include "checkpoint/fixture.h"
#include "checkpoint/steps.h"
#include "core/hdf5_file.h"

namespace shiftron {
namespace {

using namespace shiftron::testing;

TEST(StepSize, FilesOfEveryKindStayBelowTheBound) {
  const TemporaryDirectory directory;
  for (const int64_t datasets : {1, 3, 9, 30, 250}) {
    for (const int64_t elements : {2, 127, 128, 1024, 1025}) {
      for (const size_t name : {8, 150}) {
        const std::string path = directory.path() + "/file.h5";
        std::vector<DatasetSize> sizes;
        Hdf5File file = Hdf5File::create(path);
        for (int64_t i = 0; i < datasets; ++i) {
          const char* group = i % 3 == 0 ? "parameters/" : i % 3 == 1 ? "first_moment/" : "second_moment/";
          const std::string digits = std::to_string(i);
          sizes.push_back({group + std::string(name - digits.size(), 'n') + digits,
                           static_cast<uint64_t>(elements) * sizeof(float)});
        }
        std::sort(sizes.begin(), sizes.end(), [](const auto& a, const auto& b) { return a.path > b.path; });
        for (const DatasetSize& size : sizes) file.create_dataset(size.path, Hdf5Type::f32, {elements});
        file.close();
        EXPECT_LE(fs::file_size(path), most_file_bytes(sizes)) << datasets << " of " << elements << ", names " << name;
        fs::remove(path);
      }
    }
  }
  EXPECT_EQ(most_file_bytes({}), 0u);
}

TEST(StepSize, OfAStepAboutAsMuchAsItTakes) {
  const FakeModel model{.layers = 4, .hidden = 32, .heads = 4, .kv_heads = 4, .head_dim = 8, .ffn = 64, .vocab = 384};
  for (const ParallelLayout& layout : {ParallelLayout{}, ParallelLayout{.tp = 2, .pp = 2}, ParallelLayout{.dp = 2}}) {
    const TemporaryDirectory directory;
    const SaveResult saved = save_state(directory.path(), model, layout, 10, 10);
    ASSERT_TRUE(saved.saved) << saved.reason;
    const Manifest manifest = read_manifest(saved.directory);
    std::map<int, std::vector<DatasetSize>> files;
    for (const ManifestBox& box : manifest.boxes) files[box.file].push_back({manifest.dataset(box), box.bytes});
    uint64_t bound = 0, real = 0, entries = 0;
    for (const auto& [file, datasets] : files) {
      const uint64_t bytes = manifest.files[static_cast<size_t>(file)].bytes;
      EXPECT_LE(bytes, most_file_bytes(datasets));
      bound += most_file_bytes(datasets);
      real += bytes;
      entries += most_manifest_bytes(datasets, manifest.block_bytes);
    }
    EXPECT_LE(bound, real * 13 / 10);
    EXPECT_LE(fs::file_size(saved.directory + "/manifest.json"), entries + 4096);
    EXPECT_LE(entries, 3 * fs::file_size(saved.directory + "/manifest.json"));
  }
}

}  // namespace
}  // namespace shiftron
