// Requests as JSON, and their differences.
#include "data/build_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/hash.h"

namespace shiftron {
namespace {

using RequestWords = std::vector<std::pair<std::string, std::string>>;

RequestWords parse_words(const std::string& text, const std::string& path) {
  try {
    return nlohmann::json::parse(text).get<RequestWords>();
  } catch (const nlohmann::json::exception&) {
    throw_bad_input(path, " is damaged; remove the build's --output to start over");
  }
}

// One that differs; `old` and `now` are null if the request does not have it.
std::string difference(const std::string& name, const std::string* old, const std::string* now) {
  if (old == nullptr) return name + " (new)";
  if (now == nullptr) return name + " (missing)";
  if (old->starts_with('#') || now->starts_with('#')) return name;
  const auto shown = [](const std::string& value) { return value.empty() ? "empty" : value; };
  return name + " (was " + shown(*old) + ", is " + shown(*now) + ")";
}

}  // namespace

std::string BuildRequest::text() const {
  return nlohmann::json(words).dump(0, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string BuildRequest::hash() const {
  return to_hex(xxh3_128(text()));
}

std::string changes_of_request(const std::string& old_text, const std::string& text, const std::string& path) {
  constexpr size_t kMostShown = 5;
  RequestWords old = parse_words(old_text, path), now = parse_words(text, path);
  std::ranges::sort(old);
  std::ranges::sort(now);
  std::vector<std::string> changes;
  for (size_t i = 0, j = 0; i < old.size() || j < now.size();) {
    const bool is_old = j == now.size() || (i < old.size() && old[i].first < now[j].first);
    const bool is_new = i == old.size() || (j < now.size() && now[j].first < old[i].first);
    const auto& name = is_old ? old[i].first : now[j].first;
    const std::string* const was = is_new ? nullptr : &old[i++].second;
    const std::string* const is = is_old ? nullptr : &now[j++].second;
    if (was == nullptr || is == nullptr || *was != *is) changes.push_back(difference(name, was, is));
  }
  if (changes.empty()) return "the order of the inputs";
  std::string shown;
  for (size_t i = 0; i < std::min(changes.size(), kMostShown); ++i) shown += (i > 0 ? ", " : "") + changes[i];
  if (changes.size() > kMostShown) shown += " and " + std::to_string(changes.size() - kMostShown) + " more";
  return shown;
}

}  // namespace shiftron
