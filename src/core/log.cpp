// Log by spdlog: a console sink and an optional file sink.
#include "core/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>

#include "core/foreign_text.h"

namespace shiftron {

void print_to_stderr(const std::string& line) {
  const std::string whole = printable_lines(line) + "\n";
  for (size_t written = 0; written < whole.size();) {
    const ssize_t now = ::write(STDERR_FILENO, whole.data() + written, whole.size() - written);
    if (now < 0 && errno != EINTR) return;
    if (now > 0) written += static_cast<size_t>(now);
  }
}

struct Log::Implementation {
  std::shared_ptr<spdlog::logger> logger;
};

Log::Log(int rank) : implementation_(std::make_unique<Implementation>()), rank_(rank) {
  auto console = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  console->set_pattern(rank == 0 ? "%v" : "[rank " + std::to_string(rank) + "] %v");
  console->set_level(rank == 0 ? spdlog::level::info : spdlog::level::warn);
  implementation_->logger = std::make_shared<spdlog::logger>("shiftron", console);
  implementation_->logger->flush_on(spdlog::level::info);
}

Log::~Log() = default;

void Log::add_file(const std::string& path) {
  auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
  file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l [rank " + std::to_string(rank_) + "] %v");
  implementation_->logger->sinks().push_back(file);
}

void Log::info(const std::string& message) {
  implementation_->logger->info(printable_lines(message));
}
void Log::warning(const std::string& message) {
  implementation_->logger->warn("warning: " + printable_lines(message));
}
void Log::error(const std::string& message) {
  implementation_->logger->error("error: " + printable_lines(message));
}

}  // namespace shiftron
