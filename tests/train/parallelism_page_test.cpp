// Pictures and the table of bubbles of docs/parallelism.md are what the program draws and simulates.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "plan/schedule_drawing.h"

namespace shiftron {
namespace {

using enum PipelineKind;

const std::filesystem::path kDocuments = std::filesystem::path(SHIFTRON_SOURCE_DIR) / "docs";

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Named {
  const char* name;
  Schedule schedule;
};
const std::vector<Named> kSchedules = {
    {"1f1b", {one_forward_one_backward}}, {"interleaved", {interleaved, 2}}, {"zb-h1", {zb_h1}}, {"zb-v", {zb_v}}};

TEST(ParallelismPage, PicturesAreWhatIsDrawn) {
  const std::filesystem::path drawn = std::filesystem::path(SHIFTRON_BINARY_DIR) / "schedules";
  std::filesystem::create_directories(drawn);
  for (const auto& [name, schedule] : kSchedules) {
    const std::string file = std::string(name) + ".svg", picture = draw_schedule(schedule, 4, 8, {}, name);
    std::ofstream(drawn / file) << picture;
    EXPECT_TRUE(text_of(kDocuments / "schedules" / file) == picture)
        << "docs/schedules/" << file << " is another picture: cp " << (drawn / file).string() << " docs/schedules/";
  }
}

TEST(ParallelismPage, BubblesAreWhatIsSimulated) {
  std::string table = "| schedule | p | m = p | m = 2p | m = 4p | m = 8p |\n|---|---|---|---|---|---|\n";
  for (const auto& [name, schedule] : kSchedules) {
    for (const int stages : {4, 8}) {
      table += fmt::format("| {}{} | {} |", name, schedule.chunks > 1 ? ", v = 2" : "", stages);
      for (const int times : {1, 2, 4, 8})
        table += fmt::format(" {:.1f} % |", 100 * simulate(schedule, stages, times * stages).bubble);
      table += "\n";
    }
  }
  EXPECT_NE(text_of(kDocuments / "parallelism.md").find(table), std::string::npos) << "the table is\n" << table;
}

}  // namespace
}  // namespace shiftron
