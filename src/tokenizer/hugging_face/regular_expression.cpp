// Calls of PCRE2, with its just-in-time compiler where it has one.
#include "tokenizer/hugging_face/regular_expression.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>

#include "core/check.h"
#include "core/foreign_text.h"
#include "tokenizer/hugging_face/code_points.h"
#include "tokenizer/hugging_face/pattern_translation.h"
#include "tokenizer/hugging_face/recent_characters.h"

namespace shiftron {
namespace {

constexpr size_t kLargestStack = size_t{64} << 20;  // of compiled code, bytes
constexpr size_t kFirstStack = size_t{1} << 20;

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

// Named, because a class with a name has members of these types.
struct FreePcre2 {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
template <typename Type>
using OwnedPcre2 = std::unique_ptr<Type, FreePcre2>;

struct RegularExpression::Compiled {
  struct Code {
    OwnedPcre2<pcre2_code> code;
    bool is_fast = false;
  };
  std::string pattern;
  std::string place;
  Code plain;
  Code knowing;  // has_recent_characters(); without code: the plain one does
};

namespace {

RegularExpression::Compiled::Code compile(const std::string& own, const std::string& pattern, const JsonPart& where) {
  const OwnedPcre2<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  RegularExpression::Compiled::Code compiled;
  compiled.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(own.data()), own.size(),
                                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, context.get()));
  if (!compiled.code) {
    where.refuse("the regular expression ", printable(pattern), " is not supported: ", message_of(error), " at ",
                 printable(own.substr(0, at)));
  }
  compiled.is_fast = pcre2_jit_compile(compiled.code.get(), PCRE2_JIT_COMPLETE) == 0;
  return compiled;
}

}  // namespace

RegularExpression::RegularExpression(const std::string& pattern, const JsonPart& where) {
  auto compiled = std::make_unique<Compiled>();
  compiled->pattern = pattern;
  compiled->place = where.place();
  const std::string plain = translate_pattern(pattern, where, false), knowing = translate_pattern(pattern, where, true);
  compiled->plain = compile(plain, pattern, where);
  if (knowing != plain) compiled->knowing = compile(knowing, pattern, where);
  compiled_ = std::move(compiled);
}

RegularExpression::~RegularExpression() = default;
RegularExpression::RegularExpression(RegularExpression&&) noexcept = default;

void RegularExpression::for_each_match(std::string_view text, const std::function<void(size_t, size_t)>& take) const {
  const bool needs_knowing = compiled_->knowing.code != nullptr && has_recent_characters(text);
  const Compiled::Code& chosen = needs_knowing ? compiled_->knowing : compiled_->plain;
  const pcre2_code* const code = chosen.code.get();
  const OwnedPcre2<pcre2_match_data> data(pcre2_match_data_create(1, nullptr));
  if (!data) throw std::bad_alloc();
  OwnedPcre2<pcre2_match_context> context;  // with a larger stack, once it is needed
  OwnedPcre2<pcre2_jit_stack> stack;
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto match = [&](size_t from) {
    if (chosen.is_fast) return pcre2_jit_match(code, subject, text.size(), from, 0, data.get(), context.get());
    return pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(), context.get());
  };
  const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(data.get());
  size_t last_end = SIZE_MAX;
  for (size_t from = 0; from <= text.size();) {
    int result = match(from);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && !stack) {
      context.reset(pcre2_match_context_create(nullptr));
      stack.reset(pcre2_jit_stack_create(kFirstStack, kLargestStack, nullptr));
      if (!context || !stack) throw std::bad_alloc();
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      result = match(from);
    }
    if (result == PCRE2_ERROR_NOMATCH) return;
    if (result < 0) {
      throw_bad_input(compiled_->place, ": the regular expression ", printable(compiled_->pattern),
                      " cannot be matched with a text of ", text.size(), " bytes: ", message_of(result));
    }
    if (found[0] == found[1] && found[1] == last_end) {
      from += from < text.size() ? first_code_point(text.substr(from)).bytes : 1;
      continue;
    }
    take(found[0], found[1]);
    from = last_end = found[1];
  }
}

}  // namespace shiftron
