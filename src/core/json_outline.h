// Checks the nesting of a JSON text without storing its values. The callback of the library's parse() could do the
// same, but after each object it searches the whole list that holds it: minutes for lists of hundreds of thousands.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace shiftron {

// For sax_parse(): calls `refuse`, which throws, if lists and objects are nested deeper than `most`. Stops silently if
// the text is not JSON, which parse() reports better.
class JsonOutline : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonOutline(int most, std::function<void()> refuse) : most_(most), refuse_(std::move(refuse)) {}
  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool key(string_t&) override { return true; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool enter() {
    if (++depth_ > most_) refuse_();
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }

  int most_;
  std::function<void()> refuse_;
  int depth_ = 0;
};

inline void refuse_deep_json(std::string_view text, int most, std::function<void()> refuse) {
  JsonOutline outline(most, std::move(refuse));
  nlohmann::json::sax_parse(text, &outline);
}

}  // namespace shiftron
