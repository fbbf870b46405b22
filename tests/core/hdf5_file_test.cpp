// HDF5 files: round trip, layout, and refusal of files that refer to other data.
#include "core/hdf5_file.h"

#include <gtest/gtest.h>
#include <hdf5.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "core/file.h"
#include "expect_error.h"
#include "few_files.h"
#include "scratch.h"
#include "small_disk.h"

namespace shiftron {
namespace {

std::vector<float> counted(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i) / 3;
  return values;
}

void write_example(const std::string& path) {
  Hdf5File file = Hdf5File::create(path);
  file.create_dataset("parameters/layers.0.query@0,0,2,0", Hdf5Type::f32, {2, 3, 4, 5});
  file.create_dataset("tokens", Hdf5Type::u16, {1000});
  file.create_dataset("none", Hdf5Type::u64, {0});
  file.create_dataset("scalar", Hdf5Type::i64, {});
  file.write("parameters/layers.0.query@0,0,2,0", counted(120).data());
  for (int64_t first = 0; first < 1000; first += 300) {
    std::vector<uint16_t> piece;
    for (int64_t i = first; i < std::min<int64_t>(first + 300, 1000); ++i)
      piece.push_back(static_cast<uint16_t>(i * 61));
    file.write_range("tokens", first, static_cast<int64_t>(piece.size()), piece.data());
  }
  const int64_t scalar = -7;
  file.write("none", nullptr);
  file.write("scalar", &scalar);
  file.set_attribute("/", "count", int64_t{1} << 60);
  file.set_attribute("tokens", "rate", 0.1);
  file.set_attribute("parameters/layers.0.query@0,0,2,0", "text", std::string("größer"));
  file.set_attribute("/", "empty", std::string());
  file.close();
}

TEST(Hdf5File, RoundTrip) {
  const Scratch scratch;
  write_example(scratch / "file.h5");
  const Hdf5File file = Hdf5File::open(scratch / "file.h5");
  EXPECT_EQ(file.datasets(),
            (std::vector<std::string>{"none", "parameters/layers.0.query@0,0,2,0", "scalar", "tokens"}));
  EXPECT_EQ(file.read_all<float>("parameters/layers.0.query@0,0,2,0", Hdf5Type::f32), counted(120));
  const auto tokens = file.read_all<uint16_t>("tokens", Hdf5Type::u16);
  EXPECT_EQ(tokens.at(999), static_cast<uint16_t>(999 * 61));
  uint16_t some[3];
  file.read_range("tokens", 500, 3, some);
  EXPECT_EQ(some[1], static_cast<uint16_t>(501 * 61));
  EXPECT_EQ(file.read_all<int64_t>("scalar", Hdf5Type::i64), std::vector<int64_t>{-7});
  EXPECT_TRUE(file.read_all<uint64_t>("none", Hdf5Type::u64).empty());
  EXPECT_EQ(file.integer_attribute("/", "count"), int64_t{1} << 60);
  EXPECT_EQ(file.real_attribute("tokens", "rate"), 0.1);
  EXPECT_EQ(file.text_attribute("parameters/layers.0.query@0,0,2,0", "text"), "größer");
  EXPECT_EQ(file.text_attribute("/", "empty"), "");
  EXPECT_TRUE(file.has_attribute("/", "empty"));
  EXPECT_FALSE(file.has_attribute("/", "missing"));
  EXPECT_TRUE(file.has_dataset("tokens"));
  EXPECT_FALSE(file.has_dataset("parameters"));
}

TEST(Hdf5File, OffsetsLeadToTheBytes) {
  const Scratch scratch;
  write_example(scratch / "file.h5");
  const Hdf5DatasetInfo info = Hdf5File::open(scratch / "file.h5").info("tokens");
  EXPECT_EQ(info.type, Hdf5Type::u16);
  EXPECT_EQ(info.shape, std::vector<int64_t>{1000});
  EXPECT_EQ(info.byte_size, 2000u);
  EXPECT_EQ(info.byte_offset % 4096, 0u);
  uint16_t token = 0;
  FileDescriptor::open_for_reading(scratch / "file.h5").read_at(info.byte_offset + 2 * 700, &token, 2);
  EXPECT_EQ(token, static_cast<uint16_t>(700 * 61));
}

TEST(Hdf5File, EqualContentGivesEqualBytes) {
  const Scratch scratch;
  write_example(scratch / "a.h5");
  ::usleep(1100000);  // time stamps count seconds
  write_example(scratch / "b.h5");
  EXPECT_EQ(Scratch::read(scratch / "a.h5"), Scratch::read(scratch / "b.h5"));
}

TEST(Hdf5File, WhatTheMachineRefusesIsNoFaultOfTheFile) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer itself opens a pipe to look at an object";
#endif
  const Scratch scratch;
  write_example(scratch / "file.h5");
  const FewFiles none(0);
  EXPECT_ERROR(Hdf5File::open(scratch / "file.h5"), ExitCode::crash, "ulimit -n");
}

TEST(Hdf5File, FaultsNameFileAndDataset) {
  const Scratch scratch;
  write_example(scratch / "file.h5");
  EXPECT_ERROR(Hdf5File::create(scratch / "file.h5"), ExitCode::crash, "file.h5");
  EXPECT_ERROR(Hdf5File::open(scratch / "missing.h5"), ExitCode::bad_input, "missing.h5");
  EXPECT_ERROR(Hdf5File::open(scratch.write("text.h5", "no HDF5")), ExitCode::bad_input, "text.h5");
  const Hdf5File file = Hdf5File::open(scratch / "file.h5");
  EXPECT_ERROR(file.info("absent"), ExitCode::bad_input, "file.h5 has no dataset absent");
  EXPECT_ERROR(file.info("parameters/absent"), ExitCode::bad_input, "parameters/absent");
  EXPECT_ERROR(file.read_all<float>("tokens", Hdf5Type::f32), ExitCode::bad_input, "holds u16, not f32");
  EXPECT_ERROR(file.integer_attribute("/", "absent"), ExitCode::bad_input, "absent");
  EXPECT_ERROR(file.text_attribute("/", "count"), ExitCode::bad_input, "not a string");
  EXPECT_ERROR(file.integer_attribute("tokens", "rate"), ExitCode::bad_input, "not a whole number");
  const std::string whole = Scratch::read(scratch / "file.h5");
  EXPECT_ERROR(Hdf5File::open(scratch.write("cut.h5", whole.substr(0, whole.size() - 1))), ExitCode::bad_input,
               "cut.h5");
}

// Of datasets of more dims, too.
TEST(Hdf5File, RangesOfRows) {
  const Scratch scratch;
  std::vector<float> values(5 * 2 * 3);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  {
    Hdf5File file = Hdf5File::create(scratch / "rows.h5");
    file.create_dataset("rows", Hdf5Type::f32, {5, 2, 3});
    for (int64_t first = 0; first < 5; first += 2) {
      file.write_range("rows", first, std::min<int64_t>(2, 5 - first), values.data() + first * 6);
    }
    EXPECT_THROW(file.write_range("rows", 4, 2, values.data()), Error);
    file.create_dataset("one", Hdf5Type::f32, {});
    EXPECT_THROW(file.write_range("one", 0, 1, values.data()), Error);
    file.close();
  }
  const Hdf5File file = Hdf5File::open(scratch / "rows.h5");
  EXPECT_EQ(file.read_all<float>("rows", Hdf5Type::f32), values);
  std::vector<float> two(12);
  file.read_range("rows", 3, 2, two.data());
  EXPECT_EQ(two, std::vector<float>(values.begin() + 18, values.end()));
}

TEST(Hdf5File, FilesAreNeverOpenedForWriting) {
  const Scratch scratch;
  write_example(scratch / "file.h5");
  Hdf5File file = Hdf5File::open(scratch / "file.h5");
  EXPECT_ERROR(file.create_dataset("more", Hdf5Type::u8, {1}), ExitCode::crash, "more");
  const uint16_t zero = 0;
  EXPECT_ERROR(file.write_range("tokens", 0, 1, &zero), ExitCode::crash, "tokens");
}

TEST(Hdf5File, AFullDiskIsReported) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small file system here";
  Hdf5File file = Hdf5File::create(disk / "file.h5");
  EXPECT_ERROR(file.create_dataset("large", Hdf5Type::f32, {1 << 20}), ExitCode::crash, "No space left on device");
  file.close();
}

TEST(Hdf5File, ThreadsMayUseFilesAtOnce) {
  const Scratch scratch;
  write_example(scratch / "file.h5");
  std::vector<std::thread> threads;
  std::vector<int> good(4);
  for (size_t t = 0; t < good.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const Hdf5File file = Hdf5File::open(scratch / "file.h5");
        good[t] += file.read_all<uint16_t>("tokens", Hdf5Type::u16).at(1) == 61 ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, std::vector<int>(4, 20));
}

// Makes a file with the bare library; `make` gets the file's handle.
template <typename Make>
std::string foreign_file(const Scratch& scratch, const std::string& name, Make make) {
  const hid_t file = H5Fcreate((scratch / name).c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  make(file);
  H5Fclose(file);
  return scratch / name;
}

void add_dataset(hid_t file, const char* name, hid_t type, hid_t properties) {
  const hsize_t size = 64;
  const hid_t space = H5Screate_simple(1, &size, nullptr);
  const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
  const std::vector<uint8_t> zeros(64 * 8);
  if (H5Tget_class(type) == H5T_INTEGER)
    H5Dwrite(dataset, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data());
  H5Dclose(dataset);
  H5Sclose(space);
}

void expect_refused(const std::string& path, const std::string& dataset, const std::string& reason) {
  const Hdf5File file = Hdf5File::open(path);
  uint8_t data[512];
  EXPECT_ERROR(file.info(dataset), ExitCode::bad_input, reason);
  EXPECT_ERROR(file.read(dataset, data), ExitCode::bad_input, reason);
  EXPECT_ERROR(file.read_range(dataset, 0, 1, data), ExitCode::bad_input, reason);
}

TEST(Hdf5FileRefuses, ExternalStorage) {
  const Scratch scratch;
  const std::string secret = scratch.write("secret", std::string(64, 's'));
  const std::string path = foreign_file(scratch, "external.h5", [&](hid_t file) {
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(properties, secret.c_str(), 0, 64);
    const hsize_t size = 64;
    const hid_t space = H5Screate_simple(1, &size, nullptr);
    H5Dclose(H5Dcreate2(file, "d", H5T_STD_U8LE, space, H5P_DEFAULT, properties, H5P_DEFAULT));
  });
  expect_refused(path, "d", "is in another file");
}

TEST(Hdf5FileRefuses, FiltersAndChunks) {
  const Scratch scratch;
  const std::string path = foreign_file(scratch, "chunked.h5", [](hid_t file) {
    const hsize_t chunk = 16;
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(properties, 1, &chunk);
    add_dataset(file, "chunked", H5T_STD_U8LE, properties);
    H5Pset_fletcher32(properties);
    add_dataset(file, "filtered", H5T_STD_U8LE, properties);
  });
  expect_refused(path, "chunked", "chunked or virtual");
  expect_refused(path, "filtered", "it is filtered");
}

TEST(Hdf5FileRefuses, VirtualDatasets) {
  const Scratch scratch;
  const std::string path = foreign_file(scratch, "virtual.h5", [](hid_t file) {
    const hsize_t size = 64;
    const hid_t space = H5Screate_simple(1, &size, nullptr);
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_virtual(properties, space, "missing.h5", "d", space);
    H5Dclose(H5Dcreate2(file, "d", H5T_STD_U8LE, space, H5P_DEFAULT, properties, H5P_DEFAULT));
  });
  expect_refused(path, "d", "chunked or virtual");
}

TEST(Hdf5FileRefuses, SoftAndExternalLinks) {
  const Scratch scratch;
  const std::string other =
      foreign_file(scratch, "other.h5", [](hid_t file) { add_dataset(file, "d", H5T_STD_U8LE, H5P_DEFAULT); });
  const std::string path = foreign_file(scratch, "links.h5", [&](hid_t file) {
    add_dataset(file, "d", H5T_STD_U8LE, H5P_DEFAULT);
    H5Lcreate_soft("/d", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external(other.c_str(), "d", file, "outside", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external(other.c_str(), "/", file, "group", H5P_DEFAULT, H5P_DEFAULT);
  });
  expect_refused(path, "soft", "link");
  expect_refused(path, "outside", "link");
  expect_refused(path, "group/d", "link");
  EXPECT_ERROR(Hdf5File::open(path).datasets(), ExitCode::bad_input, "link");
  EXPECT_ERROR(Hdf5File::open(path).integer_attribute("soft", "x"), ExitCode::bad_input, "link");
}

// As h5py writes strings by default.
TEST(Hdf5File, TextsOfVariableLengthAreRead) {
  const Scratch scratch;
  const std::string large((1 << 20) + 1, 'x');
  const std::string path = foreign_file(scratch, "variable.h5", [&](hid_t file) {
    const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    const std::pair<const char*, const char*> texts[] = {{"text", "größer"}, {"empty", ""}, {"large", large.c_str()}};
    for (const auto& [name, text] : texts) {
      const hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
      H5Awrite(attribute, type, &text);
      H5Aclose(attribute);
    }
    H5Aclose(H5Acreate2(file, "unwritten", type, space, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(space);
    H5Tclose(type);
  });
  const Hdf5File file = Hdf5File::open(path);
  EXPECT_EQ(file.text_attribute("/", "text"), "größer");
  EXPECT_EQ(file.text_attribute("/", "empty"), "");
  EXPECT_EQ(file.text_attribute("/", "unwritten"), "");
  EXPECT_ERROR(file.text_attribute("/", "large"), ExitCode::bad_input, "not a string of at most 1048576 bytes");
}

TEST(Hdf5FileRefuses, ForeignTypes) {
  const Scratch scratch;
  const std::string path = foreign_file(scratch, "types.h5", [](hid_t file) {
    add_dataset(file, "big", H5T_STD_U16BE, H5P_DEFAULT);
    add_dataset(file, "half", H5T_C_S1, H5P_DEFAULT);
  });
  expect_refused(path, "big", "little-endian");
  expect_refused(path, "half", "element type");
}

TEST(Hdf5FileRefuses, GroupsInCircles) {
  const Scratch scratch;
  const std::string path = foreign_file(
      scratch, "circle.h5", [](hid_t file) { H5Lcreate_hard(file, "/", file, "again", H5P_DEFAULT, H5P_DEFAULT); });
  EXPECT_ERROR(Hdf5File::open(path).datasets(), ExitCode::bad_input, "nested deeper");
}

TEST(Hdf5File, CompactDatasetsAreRead) {
  const Scratch scratch;
  const std::string path = foreign_file(scratch, "compact.h5", [](hid_t file) {
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(properties, H5D_COMPACT);
    add_dataset(file, "d", H5T_STD_U8LE, properties);
  });
  EXPECT_EQ(Hdf5File::open(path).read_all<uint8_t>("d", Hdf5Type::u8), std::vector<uint8_t>(64));
}

}  // namespace
}  // namespace shiftron
