// Steps that one process writes from any step: every layout into every other, as its run would have saved them.
#include "checkpoint/step_writer.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <set>

#include "checkpoint/digest.h"
#include "checkpoint/elements.h"
#include "checkpoint/fixture.h"
#include "checkpoint/reader.h"
#include "checkpoint/verify.h"
#include "core/hdf5_file.h"

namespace shiftron {
namespace {

using namespace shiftron::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<CheckpointLayout> kWriterLayouts = {
    {{}},
    {{.tp = 2}},
    {{.tp = 3}},
    {{.tp = 4}},
    {{.dp = 2}},
    {{.dp = 5}},
    {{.pp = 2}},
    {{.pp = 2}, {2, 1}},
    {{.pp = 3}},
    {{.cp = 2}},
    {{.tp = 2, .dp = 2}},
    {{.tp = 2, .pp = 2}, {1, 2}},
    {{.tp = 2, .cp = 2}},
    {{.dp = 2, .pp = 2}},
    {{.tp = 4, .pp = 2}},
    {{.tp = 6}},
    {{.dp = 2}, {}, {.divided = true}},
    {{.dp = 3}, {}, {.divided = true, .bucket_elements = 1}},
    {{.tp = 2, .dp = 2}, {}, {.divided = true, .bucket_elements = 300}},
    {{.dp = 2, .pp = 2}, {1, 2}, {.divided = true, .bucket_elements = 1000}},
    {{.dp = 2, .pp = 3}, {}, {.divided = true}},
    {{.cp = 2, .dp = 2}, {}, {.divided = true}},
    {{.tp = 3, .dp = 2}, {}, {.divided = true, .bucket_elements = 100}},
    {{.tp = 4, .dp = 2}, {}, {.divided = true, .bucket_elements = 50}},
};

// What the ranks of `target` write, from declarations alone.
std::vector<StepFile> files_of(const FakeModel& model, const ParallelLayout& layout) {
  std::vector<StepFile> files;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    Ledger ledger;
    const DType type = model.precise ? DType::float64 : DType::float32;
    ParameterSet set(layout, layout.coordinates(rank), {type, type});
    declare(set, model);
    set.allocate(Stream{.device = DeviceKind::meta, .ledger = &ledger}, true, model.division);
    std::vector<BoxOfTensor> boxes = boxes_to_write(set);
    if (!boxes.empty()) files.push_back({rank_file_name(rank), std::move(boxes)});
  }
  return files;
}

StepWriteOptions blocks_of_512() {
  StepWriteOptions options;
  options.block_bytes = 512;
  return options;
}

WrittenStep convert(const std::string& from, const std::vector<StepFile>& files, const ParallelLayout& layout,
                    const std::string& to, const StepWriteOptions& options = blocks_of_512()) {
  StepReader reader(from, check_step(from));
  return write_step(reader, {.content = read_content(from), .writer = layout, .files = files}, to, options);
}

// Every layout into every other: byte by byte the files, and the manifest, that a run under it saves.
void convert_all_pairs(const FakeModel& model, const std::vector<CheckpointLayout>& cases) {
  const TemporaryDirectory directory(fast_parent());
  std::vector<std::string> saved;
  for (size_t i = 0; i < cases.size(); ++i) {
    const SaveResult result =
        save_state(directory.path() + "/" + std::to_string(i), under(model, cases[i]), cases[i].layout, 3, 7);
    ASSERT_TRUE(result.saved) << result.reason;
    saved.push_back(result.directory);
  }
  for (size_t j = 0; j < cases.size(); ++j) {
    const std::vector<StepFile> files = files_of(under(model, cases[j]), cases[j].layout);
    const std::string expected = read_file(saved[j] + "/manifest.json");  // has the hash of every file
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::string place = directory.path() + "/converted";
      const WrittenStep made = convert(saved[i], files, cases[j].layout, place);
      ASSERT_EQ(names_in(made.directory), names_in(saved[j])) << i << " into " << j;
      ASSERT_EQ(read_file(made.directory + "/manifest.json"), expected) << i << " into " << j;
      if (i == 0) { EXPECT_THAT(verify_step(made.directory), IsEmpty()); }
      fs::remove_all(place);
    }
  }
}

TEST(StepWriter, EveryLayoutIntoEveryOther) {
  ASSERT_GE(kWriterLayouts.size(), 24u);
  convert_all_pairs({.layers = 3, .hidden = 12, .heads = 12, .kv_heads = 2, .ffn = 12, .vocab = 23, .tied = true},
                    kWriterLayouts);
}

TEST(StepWriter, UntiedPreciseIntoEachOther) {
  const std::vector<CheckpointLayout> cases = {kWriterLayouts[0],  kWriterLayouts[3],  kWriterLayouts[7],
                                               kWriterLayouts[13], kWriterLayouts[19], kWriterLayouts[23]};
  convert_all_pairs({.layers = 3, .hidden = 12, .heads = 12, .kv_heads = 1, .ffn = 12, .vocab = 23, .precise = true},
                    cases);
}

struct FileRead {
  std::string file;
  uint64_t byte_offset, bytes;
};

// What every rank of a layout reads of a step that was converted to it: its own file whole, front to back, once; of
// other files only what this rank does not write, because another one with the same elements does.
TEST(StepWriter, ARankReadsItsOwnFileOnceFromFrontToBack) {
  const FakeModel model{.layers = 3, .hidden = 12, .heads = 12, .kv_heads = 2, .ffn = 12, .vocab = 23};
  const TemporaryDirectory directory(fast_parent());
  ASSERT_TRUE(save_state(directory.path(), model, {.tp = 3}, 3, 7).saved);
  for (size_t i = 0; i < kWriterLayouts.size(); ++i) {
    const CheckpointLayout& target = kWriterLayouts[i];
    const ParallelLayout& layout = target.layout;
    const FakeModel cut = under(model, target);
    const std::string place = directory.path() + "/converted";
    const std::string step =
        convert(directory.path() + "/step-00000003", files_of(cut, layout), layout, place).directory;
    const Manifest manifest = read_manifest(step);
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      Ledger ledger;
      ParameterSet set = make_set(cut, layout, rank, ledger);
      std::vector<FileRead> reads;
      load_parameters(
          step, set,
          {.with_moments = true, .at_read = [&](const ManifestFile& file, uint64_t byte_offset, uint64_t bytes) {
             reads.push_back({file.name, byte_offset, bytes});
           }});
      EXPECT_EQ(count_wrong(cut, set, 7), 0);
      const std::string own = rank_file_name(rank),
                        what = "layout " + std::to_string(i) + ", rank " + std::to_string(rank);
      std::map<std::string, uint64_t> ends;
      uint64_t own_bytes = 0, of_own_file = 0;
      std::set<std::string> files;
      for (const FileRead& read : reads) {
        EXPECT_GE(read.byte_offset, ends[read.file]) << what << " goes back in " << read.file;
        ends[read.file] = read.byte_offset + read.bytes;
        files.insert(read.file);
        if (read.file == own) own_bytes += read.bytes;
      }
      for (const ManifestBox& box : manifest.boxes) {
        if (manifest.files[static_cast<size_t>(box.file)].name == own) of_own_file += box.bytes;
      }
      EXPECT_EQ(own_bytes, of_own_file) << what;
      files.erase(own);
      if (layout.tp * layout.dp * layout.cp == 1) { EXPECT_THAT(files, IsEmpty()) << what; }
      if (layout.dp * layout.cp == 1) { EXPECT_LE(files.size(), 2u) << what; }  // of norms, and of shared KV heads
    }
    fs::remove_all(place);
  }
}

class Interrupted : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(save_state(source_.path(), kSmallModel, {.tp = 2}, 10, 10).saved);
    convert(from_, files_, kLayout, target_.path() + "/counted",
            hooked(blocks_of_512(), [&](int, const std::string& point) { points_.push_back(point); }));
    fs::remove_all(target_.path() + "/counted");
    ASSERT_GT(points_.size(), 20u);
    ASSERT_EQ(points_.back(), "committed");
  }
  void expect_whole(const std::string& place) {
    EXPECT_THAT(names_in(place), ElementsAre("step-00000010"));
    EXPECT_THAT(verify_step(place + "/step-00000010"), IsEmpty());
    EXPECT_TRUE(diff_steps(from_, place + "/step-00000010").equal());
  }
  static constexpr ParallelLayout kLayout{.dp = 2, .pp = 2};
  TemporaryDirectory source_{fast_parent()}, target_{fast_parent()};
  const std::string from_ = source_.path() + "/step-00000010";
  const std::vector<StepFile> files_ = files_of(kSmallModel, kLayout);
  std::vector<std::string> points_;
};

TEST_F(Interrupted, AKillAtAnyPointLeavesNoStepAndTheNextAttemptSucceeds) {
  const auto renamed = std::find(points_.begin(), points_.end(), "step renamed") - points_.begin();
  for (int killed_at = 0; killed_at < static_cast<int>(points_.size()); ++killed_at) {
    const std::string place = target_.path() + "/" + std::to_string(killed_at);
    const pid_t child = ::fork();
    if (child == 0) {
      convert(from_, files_, kLayout, place, hooked(blocks_of_512(), [&](int number, const std::string&) {
                if (number == killed_at) std::raise(SIGKILL);
              }));
      ::_exit(3);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    const std::string what = points_[static_cast<size_t>(killed_at)];
    if (killed_at < renamed) {
      EXPECT_THAT(list_steps(place), IsEmpty()) << what;
      convert(from_, files_, kLayout, place);
    }
    expect_whole(place);
  }
}

TEST_F(Interrupted, AnExceptionAtAnyPointLeavesNothing) {
  for (int failing_at = 0; failing_at + 1 < static_cast<int>(points_.size()); ++failing_at) {
    const std::string place = target_.path() + "/" + std::to_string(failing_at);
    EXPECT_THAT(error_of([&] {
                  convert(from_, files_, kLayout, place, hooked(blocks_of_512(), [&](int number, const std::string&) {
                            if (number == failing_at) throw_crash("disk on fire");
                          }));
                }).what(),
                HasSubstr("disk on fire"));
    EXPECT_THAT(names_in(place), IsEmpty()) << points_[static_cast<size_t>(failing_at)];
    convert(from_, files_, kLayout, place);
    expect_whole(place);
  }
}

TEST_F(Interrupted, DamageOfTheSourceIsNamedAndLeavesNothing) {
  const Manifest manifest = check_step(from_);
  const ManifestBox& box = manifest.boxes.back();
  const std::string file = from_ + "/" + manifest.files[static_cast<size_t>(box.file)].name;
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<int64_t>(box.byte_offset));
  stream.put('\x7f');
  stream.close();
  const Error error = error_of([&] { convert(from_, files_, kLayout, target_.path()); });
  EXPECT_EQ(error.code(), ExitCode::no_checkpoint);
  EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr(file), HasSubstr(manifest.dataset(box))));
  EXPECT_THAT(names_in(target_.path()), IsEmpty());
}

TEST_F(Interrupted, AStepThatIsThereStays) {
  convert(from_, files_, kLayout, target_.path());
  const std::string manifest = read_file(target_.path() + "/step-00000010/manifest.json");
  const Error error = error_of([&] { convert(from_, one_file(read_manifest(from_).tensors), {}, target_.path()); });
  EXPECT_EQ(error.code(), ExitCode::bad_input);
  EXPECT_THAT(error.what(), HasSubstr("already exists"));
  EXPECT_EQ(read_file(target_.path() + "/step-00000010/manifest.json"), manifest);
}

TEST_F(Interrupted, TensorsThatTheSourceHasNot) {
  std::vector<ManifestTensor> tensors = read_manifest(from_).tensors;
  const ManifestTensor good = tensors[0];
  tensors[0].name = "head.wait";
  EXPECT_THAT(error_of([&] { convert(from_, one_file(tensors), {}, target_.path()); }).what(),
              HasSubstr("head.wait is missing in the source"));
  tensors[0] = good;
  tensors[0].shape[0] += 1;
  EXPECT_THAT(error_of([&] { convert(from_, one_file(tensors), {}, target_.path()); }).what(),
              HasSubstr("must be written as"));
  // A tensor of which one half is written.
  std::vector<StepFile> files = files_of(kSmallModel, {.tp = 2});
  files.pop_back();
  EXPECT_THAT(error_of([&] { convert(from_, files, {}, target_.path()); }).what(), HasSubstr("boxes cover"));
  EXPECT_THAT(names_in(target_.path()), IsEmpty());
}

TEST_F(Interrupted, BytesOfProgressAreThoseOfTheTensors) {
  StepWriteOptions options = blocks_of_512();
  uint64_t last = 0, all = 0;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GT(done, last);
    last = done;
    all = total;
  };
  convert(from_, files_, kLayout, target_.path(), options);
  uint64_t bytes = 0;
  for (const ManifestBox& box : read_manifest(from_).boxes) bytes += box.bytes;
  EXPECT_EQ(all, bytes);
  EXPECT_EQ(last, bytes);
}

// One tensor of NaN.
class SpoiltSource : public TensorSource {
 public:
  const std::vector<ManifestTensor>& tensors() const override { return tensors_; }
  int find(TensorGroup, const std::string&) const override { return 0; }
  void read(int, const Box& box, void* to) override {
    std::fill_n(static_cast<float*>(to), box.extent.count(), std::nanf(""));
  }

 private:
  std::vector<ManifestTensor> tensors_ = {{TensorGroup::parameters, "norm.weight", {7, 3}, DType::float32}};
};

TEST_F(Interrupted, AValueThatIsNotFiniteIsRefusedWhereThatIsAskedFor) {
  SpoiltSource source;
  StepToWrite step{.content = read_content(from_), .files = one_file(source.tensors())};
  const Error error = error_of([&] { write_step(source, step, target_.path(), {.only_finite = true}); });
  EXPECT_EQ(error.code(), ExitCode::bad_input);
  EXPECT_THAT(error.what(), HasSubstr("parameters/norm.weight holds a value that is not finite"));
  EXPECT_THAT(names_in(target_.path()), IsEmpty());
  write_step(source, step, target_.path());
}

// A tensor of 256 MiB that is nowhere.
class LargeSource : public TensorSource {
 public:
  const std::vector<ManifestTensor>& tensors() const override { return tensors_; }
  int find(TensorGroup, const std::string&) const override { return 0; }
  void read(int, const Box& box, void* to) override {
    std::fill_n(static_cast<float*>(to), box.extent.count(), static_cast<float>(box.offset[0]));
  }

 private:
  std::vector<ManifestTensor> tensors_ = {
      {TensorGroup::parameters, "large.weight", {1 << 14, 1 << 12}, DType::float32}};
};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(StepWriter, MemoryDoesNotGrowWithTensors) {
  const TemporaryDirectory directory;
  const auto child_peak = [](const std::function<void()>& work) {  // bytes beyond what this process has
    rusage before{};
    ::getrusage(RUSAGE_SELF, &before);
    const pid_t child = ::fork();
    if (child == 0) {
      work();
      ::_exit(0);
    }
    int status = 0;
    rusage used{};
    EXPECT_EQ(::wait4(child, &status, 0, &used), child);
    EXPECT_EQ(status, 0);
    return (used.ru_maxrss - before.ru_maxrss) * 1024;
  };
  const ManifestTensor tensor = LargeSource().tensors().front();
  const auto halves = [&](int dim) {
    std::vector<StepFile> files;
    for (int i = 0; i < 2; ++i) {
      Box box = whole_box(tensor.shape);
      box.extent[dim] /= 2;
      box.offset[dim] = i * box.extent[dim];
      files.push_back({rank_file_name(i), {{tensor, box}}});
    }
    return files;
  };
  constexpr int64_t kMost = int64_t{64} << 20;
  EXPECT_LT(child_peak([&] {
              LargeSource source;
              write_step(source, {.content = content_at(1), .files = halves(1)}, directory.path() + "/columns");
            }),
            kMost);
  const std::string columns = directory.path() + "/columns/step-00000001";
  EXPECT_LT(child_peak([&] { convert(columns, halves(0), {}, directory.path() + "/rows", {}); }), kMost);
  EXPECT_TRUE(diff_steps(columns, directory.path() + "/rows/step-00000001").equal());
}
#endif

std::vector<float> values_in(const std::string& step, const ManifestTensor& tensor) {
  StepReader reader(step, check_step(step));
  const int index = reader.find(tensor.group, tensor.name);
  const DType type = reader.tensors()[static_cast<size_t>(index)].dtype;
  std::vector<std::byte> stored(static_cast<size_t>(tensor.shape.count() * size_of(type)));
  reader.read(index, whole_box(tensor.shape), stored.data());
  std::vector<float> values(static_cast<size_t>(tensor.shape.count()));
  cast_elements(type, stored.data(), DType::float32, values.data(), tensor.shape.count());
  return values;
}

class Halves : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(save_state(directory_.path(), kSmallModel, {.tp = 2}, 10, 10).saved);
    for (ManifestTensor tensor : read_manifest(full_).tensors) {
      if (tensor.group != TensorGroup::parameters) continue;
      tensor.dtype = DType::bfloat16;
      parameters_.push_back(tensor);
    }
  }
  // Only parameters, in bfloat16, after `applied` updates.
  std::string write(const std::string& name, const std::string& applied) {
    StepReader reader(full_, check_step(full_));
    CheckpointContent content = read_content(full_);
    content.state_json = R"({"configuration":{},"trainer":{"applied_updates":)" + applied + "}}";
    return write_step(reader, {.content = content, .writer = {}, .files = one_file(parameters_)},
                      directory_.path() + "/" + name, blocks_of_512())
        .directory;
  }
  TemporaryDirectory directory_;
  const std::string full_ = directory_.path() + "/step-00000010";
  std::vector<ManifestTensor> parameters_;
};

TEST_F(Halves, AreRoundedOnceAndSeenByHdf5) {
  const std::string step = write("halves", "0");
  EXPECT_THAT(verify_step(step), IsEmpty());
  const Hdf5File file = Hdf5File::open(step + "/rank-00000.h5");
  for (const ManifestTensor& tensor : parameters_) {
    EXPECT_EQ(file.info(tensor.path()).type, Hdf5Type::u16);
    EXPECT_EQ(file.text_attribute(tensor.path(), "dtype"), "bfloat16");
    const std::vector<float> before = values_in(full_, tensor), behind = values_in(step, tensor);
    for (size_t i = 0; i < before.size(); ++i) {
      ASSERT_EQ(behind[i], to_accumulate(to_bfloat16(before[i]))) << tensor.name << " " << i;
    }
  }
}

TEST_F(Halves, AFileOfOtherNumbersIsNamed) {
  const std::string step = write("halves", "0");
  Manifest manifest = read_manifest(step);
  // The same bytes as float32: half as many columns of the last dim.
  const auto name = manifest.tensors.front().path();
  Manifest changed = manifest;
  changed.tensors.front().dtype = DType::float32;
  for (Shape* shape : {&changed.tensors.front().shape, &changed.boxes.front().box.extent}) {
    (*shape)[shape->dims() - 1] /= 2;
  }
  write_text(step + "/manifest.json", to_text(changed));
  const std::vector<std::string> faults = verify_step(step);
  ASSERT_FALSE(faults.empty());
  EXPECT_THAT(faults, ::testing::Contains(::testing::AllOf(HasSubstr(name), HasSubstr("the manifest states f32"))));
  EXPECT_THAT(faults, ::testing::Contains(HasSubstr("attribute dtype must not exist")));
}

TEST_F(Halves, ARunBeginsFromThemOnlyBeforeItsFirstUpdate) {
  const std::string log_file = directory_.path() + "/log";
  const auto load = [&](const std::string& name, ParameterSet& set) {
    Log log;
    log.add_file(log_file);
    const auto world = make_single_world();
    return load_checkpoint(directory_.path() + "/" + name, {}, set, *world, log);
  };
  Ledger ledger;
  write("fresh", "0");
  write("trained", "3");
  ParameterSet set = make_set(kSmallModel, {}, 0, ledger);
  fill(kSmallModel, set, 99);
  ASSERT_TRUE(load("fresh", set));
  const std::string log = read_file(log_file);
  EXPECT_THAT(log, HasSubstr("parameters are converted from bfloat16 to float32 masters"));
  EXPECT_THAT(log, HasSubstr("moments start at zero"));
  for (const auto& parameter : set.parameters()) {
    const std::vector<float> expected =
        values_in(directory_.path() + "/fresh/step-00000010",
                  {TensorGroup::parameters, parameter->spec.name, parameter->spec.shape});
    for (int64_t i = 0; i < parameter->box.extent.count(); ++i) {
      ASSERT_EQ(parameter->weight.data<float>()[i], expected[static_cast<size_t>(i)]);
      ASSERT_EQ(parameter->first_moment.data<float>()[i], 0);
      ASSERT_EQ(parameter->second_moment.data<float>()[i], 0);
    }
  }
  const Error error = error_of([&] { load("trained", set); });
  EXPECT_EQ(error.code(), ExitCode::bad_input);
  EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("only parameters"), HasSubstr("3 updates"),
                                             HasSubstr("shiftron checkpoint import " + directory_.path() +
                                                       "/trained/step-00000010 --format shiftron --output RUN")));
  // A reader of only the model accepts it.
  ParameterSet reads = make_set(kSmallModel, {.tp = 2}, 1, ledger, false);
  load_parameters(directory_.path() + "/trained/step-00000010", reads);
}

// More elements than are cast at once, in blocks of the usual size.
TEST_F(Halves, ALargeTensorIsCastPieceByPiece) {
  FakeModel large = kSmallModel;
  large.vocab = 20011;
  const std::string directory = directory_.path() + "/large";
  ASSERT_TRUE(save_state(directory, large, {}, 10, 10).saved);
  const std::string full = directory + "/step-00000010";
  std::vector<ManifestTensor> parameters;
  for (ManifestTensor tensor : read_manifest(full).tensors) {
    tensor.dtype = DType::bfloat16;
    if (tensor.group == TensorGroup::parameters) parameters.push_back(tensor);
  }
  StepReader reader(full, check_step(full));
  const std::string step =
      write_step(reader, {.content = read_content(full), .writer = {}, .files = one_file(parameters)},
                 directory_.path() + "/cast", StepWriteOptions{})
          .directory;
  Ledger ledger;
  ParameterSet set = make_set(large, {}, 0, ledger, false);
  load_parameters(step, set);
  for (const auto& parameter : set.parameters()) {
    const std::vector<float> expected =
        values_in(step, {TensorGroup::parameters, parameter->spec.name, parameter->spec.shape});
    for (int64_t i = 0; i < parameter->box.extent.count(); ++i) {
      ASSERT_EQ(parameter->weight.data<float>()[i], expected[static_cast<size_t>(i)])
          << parameter->spec.name << " " << i;
    }
  }
}

// The types of a step with moments are the run's, or it is refused, as before.
TEST_F(Halves, AStepWithMomentsIsNotCast) {
  Ledger ledger;
  FakeModel precise = kSmallModel;
  precise.precise = true;
  ParameterSet set = make_set(precise, {}, 0, ledger);
  EXPECT_THAT(error_of([&] { load_parameters(full_, set, {.with_moments = true}); }).what(),
              HasSubstr("train.precision differs"));
  const std::string told = error_of([&] { load_parameters(full_, set); }).what();
  EXPECT_THAT(told, HasSubstr("train.precision differs"));
  EXPECT_THAT(told, HasSubstr("shiftron checkpoint import " + full_ + " --format shiftron"));
  EXPECT_THAT(told, ::testing::Not(HasSubstr("another model")));
  EXPECT_EQ(std::ranges::count(told, '\n'), 0) << told;
}

TEST(Elements, DoublesAreRoundedOnce) {
  // Halfway between two bfloat16 except for the last bit of the double: float32 would round it to the half, and then to
  // even.
  const double half = 1 + 0x1p-8;
  for (const double value : {half, std::nextafter(half, 2), std::nextafter(half, 0), -std::nextafter(half, 2), 1e300,
                             -1e300, 0.0, -0.0, 0x1p-140, std::nextafter(0x1.00fp0, 2)}) {
    bfloat16 rounded{};
    cast_elements(DType::float64, &value, DType::bfloat16, &rounded, 1);
    // Of the two neighbours, which a search by hand gives, the nearer; of halves the even one.
    bfloat16 best{};
    double distance = INFINITY;
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const bfloat16 candidate{static_cast<uint16_t>(bits)};
      const double at = to_accumulate(candidate);
      if (!std::isfinite(at) || std::signbit(at) != std::signbit(value)) continue;
      const double here = std::abs(at - value);
      if (here < distance || (here == distance && bits % 2 == 0)) {
        distance = here;
        best = candidate;
      }
    }
    if (std::abs(value) > 1e39) best = to_bfloat16(static_cast<float>(value));  // infinite
    EXPECT_EQ(rounded.bits, best.bits) << value;
  }
}

TEST(Elements, WideningAndBackIsExact) {
  for (uint32_t bits = 0; bits < 0x10000; bits += 7) {
    const bfloat16 value{static_cast<uint16_t>(bits)};
    if (std::isnan(to_accumulate(value))) continue;
    double wide = 0;
    float middle = 0;
    bfloat16 back{};
    cast_elements(DType::bfloat16, &value, DType::float64, &wide, 1);
    cast_elements(DType::float64, &wide, DType::float32, &middle, 1);
    cast_elements(DType::float32, &middle, DType::bfloat16, &back, 1);
    ASSERT_EQ(back.bits, value.bits);
  }
}

}  // namespace
}  // namespace shiftron
