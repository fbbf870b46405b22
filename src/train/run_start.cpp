// Directory, log lines, algorithms and rates of a start.
#include "train/run_start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "config/config_text.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/host.h"
#include "parallel/agree.h"
#include "plan/layout_picture.h"
#include "run/run_files.h"
#include "run/run_report.h"
#include "train/device.h"
#include "train/library_choices.h"
#include "train/start_text.h"

namespace shiftron {

void open_directory(const RunConfig& config, const RunEnvironment& environment) {
  HostCommunicator& world = environment.world;
  const std::string& directory = config.output.directory;
  const bool first_rank = world.rank() == 0;
  run_on_all_ranks(world, [&] {
    if (first_rank) environment.lock = open_run(directory, environment.log);
  });
  require_shared(world, directory, first_rank ? environment.lock->path() : "");
  run_on_all_ranks(world, [&] { add_log_file(directory, environment.log); });
  environment.events = Events(directory, world.rank());  // not earlier: a refused start leaves no trace
}

void write_start(const RunConfig& config, const RunEnvironment& environment, const ParallelLayout& layout) {
  const std::vector<std::string> names = environment.world.gather_text(host_name(), 0);
  if (environment.world.rank() != 0) return;
  environment.log.info(start_text(config, layout, names, environment.share.threads));
  if (const std::string warning = host_warning(layout, names); !warning.empty()) environment.log.warning(warning);
  std::map<std::string, int> hosts;  // ranks on each
  for (const std::string& name : names) ++hosts[name];
  environment.events.write("start",
                           {{"process", ::getpid()},
                            {"ranks", layout.ranks()},
                            {"layout", {{"tp", layout.tp}, {"cp", layout.cp}, {"dp", layout.dp}, {"pp", layout.pp}}},
                            {"rank_order", text_of(layout.order)},
                            {"hosts", hosts},
                            {"threads", environment.share.threads},
                            {"configuration", to_hex(xxh3_64(hash_input(config)))}});
}

std::string choose_run_algorithms(const RunConfig& config, const RunEnvironment& environment,
                                  const BatchReader& first_step, Trainer& trainer, const std::string& saved) {
  const std::string path = config.output.directory + "/library_choices.json";
  const bool first_rank = environment.world.rank() == 0;
  std::string source = "the checkpoint's algorithms", known = saved;
  if (known.empty()) {
    source = path;
    const bool reads = first_rank && config.device.kind == DeviceChoice::cuda && std::filesystem::exists(path);
    known = environment.world.broadcast_text(reads ? read_file(path) : std::string(), 0);
  }
  std::string chosen =
      choose_algorithms(config, trainer, first_step, environment.world, known, source, environment.log);
  if (first_rank && !chosen.empty()) write_file_durably(path, chosen);
  return chosen;
}

MeasuredRates measure_rates(const RunConfig& config, const RunEnvironment& environment, Trainer& trainer,
                            Stream& stream) {
  environment.world.barrier();  // all at once, as in training
  Libraries& libraries = trainer.engine().libraries();
  libraries.time_candidates(config.train.deterministic == Deterministic::off);
  std::vector<double> measured;
  for (int run = 0; run < 3; ++run) {
    measured.push_back(measure_matmul_peak(stream, product_type(config.train.precision, stream.cpu)));
  }
  MeasuredRates rates;
  rates.own.operations = credible_peak(measured);
  libraries.time_candidates(false);
  if (environment.profile) rates.own.bytes = measure_copy_bandwidth(stream);
  for (const std::string& rate : environment.world.gather_text(fmt::format("{}", rates.own.operations), 0)) {
    rates.operations += std::stod(rate);
  }
  return rates;
}

void announce(const RunConfig& config, const Ledger& ledger, const Loader& data, double peak, Log& log) {
  const std::string peak_text =
      std::isnan(peak) ? "GEMM peak unknown, as other work ran during its measurement; no share of it is shown"
                       : fmt::format("GEMM peak of all ranks {:.0f} GFLOP/s", peak / 1e9);
  log.info(fmt::format("rank 0 holds {:.1f} MB; {}", static_cast<double>(ledger.memory_total()) / 1e6, peak_text));
  const std::vector<DataSource>& sources = config.data.train;
  const std::vector<double> passes = data.passes(config.train.steps * config.train.global_batch);
  std::string read;  // how often each source is read
  for (size_t i = 0; i < sources.size(); ++i) {
    read += fmt::format("{}{:.3g} times{}", i == 0 ? "" : ", ", passes[i],
                        sources.size() > 1 ? " " + sources[i].directory : "");
  }
  log.info(fmt::format("training data: {} windows of {} tokens ({} tokens dropped); {} steps read the data {}",
                       thousands(data.windows()), config.train.sequence_length, data.dropped_tokens(),
                       thousands(config.train.steps), read));
}

}  // namespace shiftron
