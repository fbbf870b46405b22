// Compares the files, clocks, disks and arithmetic of all hosts.
#include "preflight/preflight.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "checkpoint/steps.h"
#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/median.h"
#include "core/system_error.h"
#include "parallel/agree.h"
#include "run/resume.h"
#include "run/run_files.h"
#include "train/batches.h"
#include "train/engine.h"

namespace shiftron {
namespace {

constexpr int64_t kProbeBytes = int64_t{4} << 20;  // written, synced and read by another host

// The program and what the loader mapped for it.
std::map<std::string, std::string> hashes_of_files() {
  std::set<std::string> paths;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t at = line.find('/');
    if (at != std::string::npos && line.find(".so", at) != std::string::npos) paths.insert(line.substr(at));
  }
  std::map<std::string, std::string> hashes = {{"the program", to_hex(xxh3_64(read_file("/proc/self/exe")))}};
  for (const std::string& path : paths) {
    if (!std::filesystem::is_regular_file(path)) continue;  // replaced since it was mapped
    hashes[std::filesystem::path(path).filename()] = to_hex(xxh3_64(read_file(path)));
  }
  return hashes;
}

std::string probe_path(const std::string& directory, const std::string& name) {
  return directory + "/.preflight-" + name;
}

// The missing folders of a path; removed at the end if they are still empty.
class MissingFolders {
 public:
  explicit MissingFolders(const std::string& directory) {
    std::error_code error;
    std::filesystem::path path = directory;
    for (; !path.empty() && !std::filesystem::exists(path, error) && !error; path = path.parent_path())
      paths_.push_back(path);
  }
  ~MissingFolders() {
    for (const std::string& path : paths_) ::rmdir(path.c_str());
  }
  MissingFolders(const MissingFolders&) = delete;
  MissingFolders& operator=(const MissingFolders&) = delete;

 private:
  std::vector<std::string> paths_;  // the innermost first
};

// Writes the probe of that name. Returns what went wrong, or "".
std::string write_probe(const std::string& directory, const std::string& name) {
  try {
    create_directories_durably(directory);
    std::filesystem::remove(probe_path(directory, name));
    FileDescriptor file = FileDescriptor::create(probe_path(directory, name));
    const std::string bytes(kProbeBytes, 'p');
    file.append(bytes.data(), bytes.size());
    file.sync();
    file.close();
    return "";
  } catch (const std::exception& error) {
    return fmt::format("it cannot write to {}: {}", directory, error.what());
  }
}

// Probes of `names` that this host does not see.
std::vector<std::string> unseen(const std::string& directory, const std::vector<std::string>& names) {
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    std::error_code error;
    if (std::filesystem::file_size(probe_path(directory, name), error) != kProbeBytes || error) missing.push_back(name);
  }
  return missing;
}

nlohmann::json to_json(const RankReport& report) {
  return {{"host", report.host},
          {"local_rank", report.local_rank},
          {"files", report.files},
          {"clock", report.clock},
          {"disk_fault", report.disk_fault},
          {"data_fault", report.data_fault},
          {"device", report.device},
          {"gpu", report.gpu},
          {"device_fault", report.device_fault},
          {"wrong_products", report.wrong_products},
          {"operations", report.operations}};
}

RankReport rank_report_of(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {.host = json.at("host"),
          .local_rank = json.at("local_rank"),
          .files = json.at("files"),
          .clock = json.at("clock"),
          .disk_fault = json.at("disk_fault"),
          .data_fault = json.at("data_fault"),
          .device = json.at("device"),
          .gpu = json.at("gpu"),
          .device_fault = json.at("device_fault"),
          .wrong_products = json.at("wrong_products"),
          .operations = json.at("operations")};
}

// The most common name; of equally common ones the smallest, so that every rank gets the same.
std::string most_common(const std::map<std::string, int>& counts) {
  return std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; })->first;
}

DevicesOfHosts devices_of(const std::vector<RankReport>& reports) {
  DevicesOfHosts hosts;
  for (const RankReport& report : reports) {
    if (!report.device.empty()) add_rank(hosts, report.host, report.device);  // otherwise on a CPU, or a fault
  }
  return hosts;
}

void find_device_faults(const DevicesOfHosts& hosts, std::vector<HostFault>& faults, std::vector<HostFault>& warnings) {
  const bool all_share = std::ranges::all_of(hosts, [](const auto& entry) { return entry.second.shares(); });
  for (const auto& [host, of] : hosts) {
    if (!of.shares()) continue;
    if (all_share)
      warnings.push_back({host, of.text()});
    else
      faults.push_back({host, of.text() + ", but other hosts have one GPU per rank: check nvidia-smi there"});
  }
}

void find_gpu_faults(const std::vector<RankReport>& reports, std::vector<HostFault>& faults,
                     std::vector<HostFault>& warnings) {
  std::vector<RankGpu> gpus;
  for (const RankReport& report : reports) {
    if (!report.gpu.empty()) gpus.push_back({report.host, report.local_rank, report.gpu});
  }
  for (const GpuRemark& remark : odd_gpus(gpus)) warnings.push_back({remark.host, remark.what});
  for (const GpuRemark& remark : gpus_with_errors(gpus)) faults.push_back({remark.host, remark.what});
}

}  // namespace

std::vector<HostFault> judge(const std::vector<RankReport>& reports, std::vector<HostFault>& warnings) {
  std::vector<HostFault> faults;
  std::map<std::string, std::map<std::string, int>> variants;  // of each file
  std::vector<double> clocks, rates;
  for (const RankReport& report : reports) {
    if (report.device_fault.empty()) rates.push_back(report.operations);
    if (report.local_rank != 0) continue;
    clocks.push_back(report.clock);
    for (const auto& [name, hash] : report.files) ++variants[name][hash];
  }
  const double clock = median_of(clocks), rate = rates.empty() ? 0 : median_of(rates);
  std::set<std::string> slow_hosts;
  for (const RankReport& report : reports) {
    if (report.wrong_products > 0) {
      faults.push_back({report.host, fmt::format("a matrix product on its rank {1} has {0} wrong elements",
                                                 report.wrong_products, report.local_rank)});
    }
    if (!report.device_fault.empty()) {
      faults.push_back({report.host, fmt::format("on its rank {}: {}", report.local_rank, report.device_fault)});
    } else if (report.operations < kLeastShareOfSpeed * rate && slow_hosts.insert(report.host).second) {
      warnings.push_back({report.host, fmt::format("its rank {} multiplies at {:.0f} GFLOP/s, but the median is {:.0f}",
                                                   report.local_rank, report.operations / 1e9, rate / 1e9)});
    }
    if (!report.data_fault.empty()) {
      faults.push_back({report.host, fmt::format("its rank {} cannot open data that other hosts can: {}",
                                                 report.local_rank, report.data_fault)});
    }
    if (report.local_rank != 0) continue;
    for (const auto& [name, hash] : report.files) {
      if (hash != most_common(variants.at(name))) {
        faults.push_back({report.host, name + " differs from the other hosts': install the same version everywhere"});
      }
    }
    if (std::abs(report.clock - clock) > kMostClockSkew) {
      faults.push_back(
          {report.host, fmt::format("its clock is {:.0f} s {} the others': start chrony or ntpd there",
                                    std::abs(report.clock - clock), report.clock > clock ? "ahead of" : "behind")});
    }
    if (!report.disk_fault.empty()) faults.push_back({report.host, report.disk_fault});
  }
  find_device_faults(devices_of(reports), faults, warnings);
  find_gpu_faults(reports, faults, warnings);
  return faults;
}

std::string shared_directory_fault(const std::string& directory, size_t written,
                                   const std::vector<std::string>& unseen) {
  // A host that sees most of the others is not at fault. If the hosts split into halves, nobody knows which half is.
  if (unseen.empty() || 2 * unseen.size() < written) return "";
  const bool is_alone = unseen.size() + 1 == written;
  if (is_alone && written > 2)
    return fmt::format("its {} is not the other hosts' directory: it must be on a shared file system", directory);
  const std::string others = unseen.size() > 1 ? fmt::format(" and {} more hosts have", unseen.size() - 1) : " has";
  return fmt::format("{} does not show what {}{} written: it must be on a shared file system", directory,
                     unseen.front(), others);
}

DiskSpaceForSteps steps_needing_space(const RunConfig& config, int64_t there) {
  const CheckpointSection& checkpoint = config.checkpoint;
  const int64_t saves = checkpoint.every > 0 ? (config.train.steps - 1) / checkpoint.every + 2 : 1;  // step 0 too
  const int64_t at_once = std::min(std::max<int64_t>(checkpoint.keep, 1) + 1, saves);
  return {.least = std::clamp<int64_t>(at_once - there, 1, there > 0 ? 1 : 2),
          .all = std::max<int64_t>(at_once - there, 0)};
}

std::string check_disk_space(const RunConfig& config) {
  const std::string& directory = config.output.directory;
  const std::string checkpoints = checkpoints_of(directory);
  const int64_t bytes = 3 * size_of(number_types(config.train.precision).accumulation);  // master and two moments
  const auto step = static_cast<uint64_t>(count_parameters(config).total * bytes);
  const Retention newest = {
      .keep = 1, .keep_every = config.checkpoint.keep_every, .promised_to_keep = promised_to_keep};
  const uint64_t may_go = superfluous_steps(checkpoints, newest, -1).size() * step;
  const auto there = static_cast<int64_t>(list_steps(checkpoints).size());
  const auto [least, all] = steps_needing_space(config, there);
  const uint64_t room = free_disk_space(directory);
  if (const uint64_t need = static_cast<uint64_t>(least) * step; room + may_go < need) {
    throw_bad_input(directory, " has ", room / 1'000'000, " MB of free space, but ",
                    least == 1 ? "the next checkpoint needs " : "two checkpoints need ", need / 1'000'000,
                    " MB; free up space, or choose another output.directory");
  }
  if (room / step >= static_cast<uint64_t>(all)) return "";
  return fmt::format(
      "{} has space for {} of the {} checkpoints that checkpoint.keep={} needs: older ones are removed before the next "
      "is written",
      directory, static_cast<uint64_t>(there) + room / step, there + all, config.checkpoint.keep);
}

namespace {

// Why this rank cannot open the data as training does; "" if it can. A host that lacks data which others have is at
// fault. Throws if every rank lacks the data, or if ranks have different data at the same place.
std::string check_data(const RunConfig& config, ControlPlane& world) {
  if (config.data.train.empty()) return "";
  std::vector<RankSetting> data;
  std::optional<Error> fault;
  try {
    add_data(data, "data.train", config.data.train, open_loader(config, config.data.train, true));
    if (config.evaluation.every > 0 && !config.data.validation.empty()) {
      add_data(data, "data.validation", config.data.validation, open_loader(config, config.data.validation, false));
    }
  } catch (const std::exception& exception) {
    fault = as_error(exception);
  }
  const std::vector<std::string> of_all = different_texts(world, fault ? fault->what() : "");
  if (std::ranges::find(of_all, "") == of_all.end()) run_on_all_ranks(world, [&] { throw *fault; });
  if (of_all.size() == 1) require_same_settings(world, data);
  return fault ? fault->what() : "";
}

}  // namespace

PreflightResult run_preflight(const RunConfig& config, const HostShare& share, HostCommunicator& world,
                              const BeginPart& begin) {
  const auto start = std::chrono::steady_clock::now();
  const std::string& directory = config.output.directory;
  RankReport report{.host = host_name(), .local_rank = share.local_rank};
  const bool leads = share.local_rank == 0;  // of its host

  begin("the program's and the libraries' files", {});
  if (leads) report.files = hashes_of_files();

  begin("the clocks", {});
  world.barrier();
  report.clock = seconds_since_1970();

  begin("the run's directory", {});
  // Two nodes of a batch system may have the same host name; the rank keeps their probes apart.
  const std::string own = fmt::format("{}-{}", report.host, world.rank());
  std::optional<MissingFolders> missing;
  if (leads) {
    missing.emplace(directory);
    report.disk_fault = write_probe(directory, own);
  }
  std::vector<std::string> names;
  std::istringstream joined(joined_texts(world, leads && report.disk_fault.empty() ? own + "\n" : ""));
  // That was a barrier too: all probes are written.
  for (std::string name; std::getline(joined, name);) names.push_back(name);
  if (leads && report.disk_fault.empty()) {
    report.disk_fault = shared_directory_fault(directory, names.size(), unseen(directory, names));
  }
  world.barrier();
  if (leads) {
    std::error_code ignored;
    std::filesystem::remove(probe_path(directory, own), ignored);
  }
  PreflightResult result;
  run_on_all_ranks(world, [&] {
    if (world.rank() != 0 || !report.disk_fault.empty()) return;
    const std::string warning = check_disk_space(config);
    if (!warning.empty()) result.warnings.push_back({report.host, warning});
  });

  begin("the data", {});
  report.data_fault = check_data(config, world);

  {
    DeviceCheck device(config, share, world, begin);
    report.device = device.device();
    report.gpu = device.facts();
    report.device_fault = device.fault();
    report.wrong_products = device.wrong_products();
    report.operations = device.operations();
    if (device.all_work()) device.sum_over_groups(begin);  // otherwise NCCL would wait for those that do not work
  }

  begin("the results of all ranks", {});
  std::vector<RankReport> reports;
  for (const std::string& text : world.gather_text(to_json(report).dump(), 0)) reports.push_back(rank_report_of(text));
  if (world.rank() == 0) result.faults = judge(reports, result.warnings);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace shiftron
