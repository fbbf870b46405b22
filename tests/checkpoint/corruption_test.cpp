// Two hundred random damages of a step as saved, as converted, and as only parameters in bfloat16: each is found and
// named by file and tensor, and the older step is loaded.
#include <nlohmann/json.hpp>
#include <random>

#include "checkpoint/digest.h"
#include "checkpoint/fixture.h"
#include "checkpoint/reader.h"
#include "checkpoint/step_writer.h"
#include "checkpoint/verify.h"

namespace shiftron {
namespace {

using namespace shiftron::testing;
using ::testing::HasSubstr;

const FakeModel kCorruptedModel{.layers = 2, .kv_heads = 2, .vocab = 61};
const ParallelLayout kCorruptionReader{.tp = 2, .pp = 2};

class Corruption : public ::testing::Test {
 public:
  using Random = std::mt19937_64;

  void SetUp() override {
    ASSERT_TRUE(save_state(source_.path(), kCorruptedModel, {.tp = 3}, 10, 10).saved);
    ASSERT_TRUE(save_state(source_.path(), kCorruptedModel, {.tp = 3}, 20, 20).saved);
    manifest_ = check_step(source_.path() + "/step-00000020");
  }

  // A copy of both steps; the newer one will be damaged.
  struct Case {
    TemporaryDirectory directory;
    std::string step, file;            // of the damage
    std::vector<std::string> tensors;  // hit by it; empty = it is seen without reading tensors
  };
  std::unique_ptr<Case> fresh() {
    auto made = std::make_unique<Case>();
    fs::copy(source_.path(), made->directory.path(), fs::copy_options::recursive);
    made->step = made->directory.path() + "/step-00000020";
    return made;
  }
  const ManifestBox& random_box(Random& random) { return manifest_.boxes[random() % manifest_.boxes.size()]; }
  std::string file_of(const ManifestBox& box) { return manifest_.files[static_cast<size_t>(box.file)].name; }

  // Overwrites bytes; false where they were the same before.
  static bool overwrite(const std::string& path, uint64_t offset, const std::string& bytes) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    std::string before(bytes.size(), '\0');
    file.seekg(static_cast<int64_t>(offset));
    file.read(before.data(), static_cast<int64_t>(before.size()));
    file.seekp(static_cast<int64_t>(offset));
    file.write(bytes.data(), static_cast<int64_t>(bytes.size()));
    EXPECT_TRUE(file.good()) << path;
    return before != bytes;
  }

  void flip_bit(Case& c, Random& random) {
    const ManifestBox& box = random_box(random);
    c.file = file_of(box);
    c.tensors = {manifest_.dataset(box)};
    const std::string content = read_file(c.step + "/" + c.file);
    const uint64_t at = box.byte_offset + random() % box.bytes;
    overwrite(c.step + "/" + c.file, at, std::string(1, static_cast<char>(content[at] ^ 1 << random() % 8)));
  }
  void zero_page(Case& c, Random& random) {
    const ManifestBox& box = random_box(random);
    c.file = file_of(box);
    const uint64_t begin = box.byte_offset / 4096 * 4096;
    const uint64_t end = std::min(begin + 4096, fs::file_size(c.step + "/" + c.file));
    for (const ManifestBox& other : manifest_.boxes) {
      if (other.file == box.file && other.byte_offset < end && other.byte_offset + other.bytes > begin) {
        c.tensors.push_back(manifest_.dataset(other));
      }
    }
    overwrite(c.step + "/" + c.file, begin, std::string(end - begin, '\0'));
  }
  void truncate(Case& c, Random& random) {
    const ManifestFile& file = manifest_.files[random() % 3];
    c.file = file.name;
    fs::resize_file(c.step + "/" + c.file, random() % file.bytes);
  }
  void remove_file(Case& c, Random& random) {
    c.file = manifest_.files[random() % manifest_.files.size()].name;
    fs::remove(c.step + "/" + c.file);
  }
  // A rank's file of the other step, of the same size.
  void swap_files(Case& c, Random& random) {
    c.file = "rank-0000" + std::to_string(random() % 3) + ".h5";
    const std::string path = c.step + "/" + c.file;
    fs::remove(path);
    fs::copy(c.directory.path() + "/step-00000010/" + c.file, path);
    for (const ManifestBox& box : manifest_.boxes) {
      if (file_of(box) == c.file) c.tensors.push_back(manifest_.dataset(box));
    }
  }
  // A repeated line of the manifest, with or without the hash made good again.
  void repeat_entry(Case& c, Random& random) {
    c.file = "manifest.json";
    const std::string path = c.step + "/" + c.file;
    std::string text = read_file(path);
    const std::vector<std::string> lists = {"tensors", "files", "boxes"};
    if (random() % 2 == 0) {
      nlohmann::json root = nlohmann::json::parse(text);
      root.erase("xxh3_128");
      nlohmann::json& entries = root[lists[random() % 3]];
      entries.push_back(entries[random() % entries.size()]);
      const std::string body = root.dump().substr(1) + "\n";
      text = "{\"xxh3_128\":\"" + to_hex(xxh3_128(body)) + "\",\n" + body;
    } else {
      const size_t begin = text.find("{\"blocks\":");
      const size_t end = text.find('\n', begin) + 1;
      text.insert(begin, text.substr(begin, end - begin));
    }
    write_text(path, text);
  }
  void damage_manifest(Case& c, Random& random) {
    c.file = "manifest.json";
    std::string text = read_file(c.step + "/" + c.file);
    const size_t at = random() % text.size();
    if (random() % 3 == 0) {
      text.resize(at);
    } else {
      text[at] = static_cast<char>(text[at] ^ 1 << random() % 8);
    }
    write_text(c.step + "/" + c.file, text);
  }

  TemporaryDirectory source_;
  Manifest manifest_;
};

enum class Written { saved, converted, bare };
void PrintTo(Written written, std::ostream* out) {
  *out << std::array{"saved", "converted", "bare"}[static_cast<size_t>(written)];
}

class DamagedSteps : public Corruption, public ::testing::WithParamInterface<Written> {
 public:
  void SetUp() override {
    Corruption::SetUp();
    if (GetParam() == Written::saved) return;
    for (const char* name : {"/step-00000010", "/step-00000020"}) {
      const std::string step = source_.path() + name, place = source_.path() + "/new";
      StepReader reader(step, check_step(step));
      std::vector<StepFile> files;
      for (int rank = 0; rank < 3; ++rank) files.push_back({rank_file_name(rank), {}});
      for (ManifestTensor tensor : reader.tensors()) {  // another cut: whole tensors, one file after the other
        if (GetParam() == Written::bare && tensor.group != TensorGroup::parameters) continue;
        if (GetParam() == Written::bare) tensor.dtype = DType::bfloat16;
        std::vector<BoxOfTensor>& least =
            std::ranges::min_element(files, {}, [](const StepFile& file) { return file.boxes.size(); })->boxes;
        least.push_back({tensor, whole_box(tensor.shape)});
      }
      const WrittenStep made =
          write_step(reader, {.content = read_content(step), .files = files}, place, {.block_bytes = 512});
      fs::remove_all(step);
      fs::rename(made.directory, step);
      fs::remove_all(place);
    }
    manifest_ = check_step(source_.path() + "/step-00000020");
  }
  // The step whose every tensor is read, the newest first, as who evaluates would; the log names what is damaged.
  static int64_t read_newest(const std::string& directory, const std::string& log_file) {
    Log log;
    log.add_file(log_file);
    for (const StepDirectory& entry : list_steps(directory)) {
      try {
        digest_step(entry.path);
        return entry.step;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::no_checkpoint);
        log.warning("step " + std::to_string(entry.step) + " cannot be used: " + error.what());
      }
    }
    return -1;
  }
};
INSTANTIATE_TEST_SUITE_P(All, DamagedSteps, ::testing::Values(Written::saved, Written::converted, Written::bare),
                         ::testing::PrintToStringParamName());

TEST_P(DamagedSteps, TwoHundredAreFoundAndNamed) {
  using Damage = void (Corruption::*)(Case&, Random&);
  const std::vector<Damage> damages = {&Corruption::flip_bit,        &Corruption::zero_page,  &Corruption::truncate,
                                       &Corruption::remove_file,     &Corruption::swap_files, &Corruption::repeat_entry,
                                       &Corruption::damage_manifest, &Corruption::flip_bit};
  Random random(11);
  for (int trial = 0; trial < 200; ++trial) {
    const auto c = fresh();
    (this->*damages[static_cast<size_t>(trial) % damages.size()])(*c, random);
    const std::string what = "trial " + std::to_string(trial) + ": " + c->file;
    std::string faults;
    for (const std::string& fault : verify_step(c->step)) faults += fault + "\n";
    EXPECT_THAT(faults, HasSubstr(c->file)) << what;
    for (const std::string& tensor : c->tensors) EXPECT_THAT(faults, HasSubstr(tensor)) << what;

    const std::string log_file = c->directory.path() + "/log";
    int64_t wrong = 0;
    const auto salt = [](int64_t step) { return static_cast<uint64_t>(step); };
    EXPECT_EQ(GetParam() == Written::bare
                  ? read_newest(c->directory.path(), log_file)
                  : load_state(c->directory.path(), kCorruptedModel, kCorruptionReader, salt, &wrong, {}, log_file),
              10)
        << what;
    EXPECT_EQ(wrong, 0) << what;
    const std::string log = read_file(log_file);
    EXPECT_THAT(log, HasSubstr("step 20 cannot be used")) << what;
    EXPECT_THAT(log, HasSubstr(c->file)) << what;
    // Every rank tells the first damaged tensor that it meets.
    const bool named = std::any_of(c->tensors.begin(), c->tensors.end(), [&](const std::string& tensor) {
      return log.find(c->file + ": " + tensor + ": block ") != std::string::npos;
    });
    EXPECT_EQ(named, !c->tensors.empty()) << what << log;
  }
}

// Bytes that belong to no tensor: loading does not need them, verification sees them all the same.
TEST_F(Corruption, BytesOutsideOfTensorsAreVerifiedToo) {
  Random random(12);
  for (int trial = 0; trial < 30; ++trial) {
    const auto c = fresh();
    const ManifestFile& file = manifest_.files[0];
    uint64_t at = 0;
    const auto inside = [&](const ManifestBox& box) {
      return box.file == 0 && at >= box.byte_offset && at < box.byte_offset + box.bytes;
    };
    do {
      at = random() % file.bytes;
    } while (std::any_of(manifest_.boxes.begin(), manifest_.boxes.end(), inside));
    const std::string path = c->step + "/" + file.name;
    const char before = read_file(path)[at];
    overwrite(path, at, std::string(1, static_cast<char>(before ^ 4)));
    EXPECT_THAT(verify_step(c->step),
                ::testing::ElementsAre(HasSubstr(file.name + ": is damaged outside its tensors")));
  }
}

// A manifest whose hashes are right and whose places are not what HDF5 sees.
TEST_F(Corruption, Hdf5SeesWhatTheManifestStates) {
  const auto c = fresh();
  EXPECT_THAT(verify_step(c->step), ::testing::IsEmpty());
  Manifest changed = manifest_;
  const auto first = std::find_if(changed.boxes.begin(), changed.boxes.end(), [&](const ManifestBox& box) {
    return changed.tensors[static_cast<size_t>(box.tensor)].name == "layers.0.attention_norm.weight";
  });
  // Drop one tensor altogether: the file holds a dataset that no manifest names.
  const int dropped = first->tensor;
  std::erase_if(changed.boxes, [&](const ManifestBox& box) { return box.tensor == dropped; });
  for (ManifestBox& box : changed.boxes) box.tensor -= box.tensor > dropped;
  changed.tensors.erase(changed.tensors.begin() + dropped);
  write_text(c->step + "/manifest.json", to_text(changed));
  EXPECT_THAT(verify_step(c->step),
              ::testing::ElementsAre(HasSubstr("layers.0.attention_norm.weight is not in the manifest")));

  // The names of two tensors of one shape exchanged: the bytes hash right, HDF5 disagrees.
  changed = manifest_;
  std::vector<ManifestTensor*> norms;
  for (ManifestTensor& tensor : changed.tensors) {
    if (tensor.group == TensorGroup::parameters && tensor.shape.dims() == 1) norms.push_back(&tensor);
  }
  std::swap(norms[0]->name, norms[1]->name);
  write_text(c->step + "/manifest.json", to_text(changed));
  EXPECT_THAT(verify_step(c->step), ::testing::Contains(HasSubstr("the manifest states")));
}

TEST_F(Corruption, TheFastCheckSeesSizesAndNamesWhatIsLost) {
  const auto c = fresh();
  fs::resize_file(c->step + "/rank-00002.h5", 5000);
  const Error error = error_of([&] { check_step(c->step); });
  EXPECT_EQ(error.code(), ExitCode::no_checkpoint);
  EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("rank-00002.h5: has 5000 bytes"), HasSubstr("more are lost")));
}

// The hash is right and every box is sound, but one is missing: a part of a tensor would stay as it was.
TEST_F(Corruption, AMissingBoxIsFoundBeforeAnythingIsRead) {
  const auto c = fresh();
  Manifest changed = manifest_;
  const std::string tensor = changed.tensors[static_cast<size_t>(changed.boxes.back().tensor)].path();
  changed.boxes.pop_back();
  write_text(c->step + "/manifest.json", to_text(changed));
  EXPECT_THAT(error_of([&] { check_step(c->step); }).what(),
              ::testing::AllOf(HasSubstr(tensor), HasSubstr("boxes cover")));
}

TEST_F(Corruption, TheHashesProtectWhatALinkLeadsTo) {
  const auto c = fresh();
  const std::string elsewhere = c->directory.path() + "/elsewhere.h5";
  fs::rename(c->step + "/rank-00000.h5", elsewhere);
  fs::create_symlink("../elsewhere.h5", c->step + "/rank-00000.h5");
  EXPECT_THAT(verify_step(c->step), ::testing::IsEmpty());
  const auto in_it = [](const ManifestBox& box) { return box.file == 0; };
  const ManifestBox& box = *std::ranges::find_if(manifest_.boxes, in_it);
  ASSERT_TRUE(overwrite(elsewhere, box.byte_offset, "changed!"));
  EXPECT_THAT(verify_step(c->step), ::testing::Contains(HasSubstr(manifest_.dataset(box))));
}

}  // namespace
}  // namespace shiftron
