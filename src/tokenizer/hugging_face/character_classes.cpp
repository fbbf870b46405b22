// By ICU's tables.
#include "tokenizer/hugging_face/character_classes.h"

#include <unicode/uchar.h>

#include "tokenizer/hugging_face/code_points.h"
#include "tokenizer/hugging_face/recent_characters.h"

namespace shiftron {
namespace {

UChar32 icu_character(char32_t code_point) {
  return static_cast<UChar32>(code_point);
}

bool has_type(char32_t code_point, uint32_t mask) {
  return (U_GET_GC_MASK(icu_character(code_point)) & mask) != 0;
}

}  // namespace

bool is_white_space(char32_t code_point) {
  if (code_point < 0x80) return code_point == ' ' || (code_point >= 9 && code_point <= 13);
  return u_hasBinaryProperty(icu_character(code_point), UCHAR_WHITE_SPACE) != 0;
}

bool is_numeric(char32_t code_point) {
  const bool is_of_unicode_17 =
      (code_point >= 0x11DE0 && code_point <= 0x11DE9) || (code_point >= 0x16FF4 && code_point <= 0x16FF6);
  return has_type(code_point, U_GC_N_MASK) || is_of_unicode_17 || recent_category(code_point).starts_with("N");
}

bool is_punctuation(char32_t code_point) {
  if (code_point < 0x80) return u_ispunct(icu_character(code_point)) != 0 || has_type(code_point, U_GC_S_MASK);
  if (code_point == 0x166D || code_point == 0x111C9) return true;  // no longer
  if (!has_type(code_point, U_GC_P_MASK)) return false;
  UVersionInfo age;
  u_charAge(icu_character(code_point), age);
  return age[0] <= 8;
}

bool is_word_character(char32_t code_point) {
  const std::string_view recent = recent_category(code_point);
  if (recent.starts_with("L") || recent.starts_with("M") || recent == "Nd" || recent == "Nl" || recent == "Pc")
    return true;
  return has_type(code_point, U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK) ||
         u_hasBinaryProperty(icu_character(code_point), UCHAR_ALPHABETIC) != 0 ||
         u_hasBinaryProperty(icu_character(code_point), UCHAR_JOIN_CONTROL) != 0;
}

std::string lower_case(char32_t code_point) {
  struct Range {
    char32_t first, last;
    int32_t shift;
  };
  static constexpr Range kLaterThanIcu72[] = {{0x1C89, 0x1C89, 1},   {0xA7CB, 0xA7CB, -42343}, {0xA7CC, 0xA7CC, 1},
                                              {0xA7CE, 0xA7CE, 1},   {0xA7D2, 0xA7D2, 1},      {0xA7D4, 0xA7D4, 1},
                                              {0xA7DA, 0xA7DA, 1},   {0xA7DC, 0xA7DC, -42561}, {0x10D50, 0x10D65, 32},
                                              {0x16EA0, 0x16EB8, 27}};
  for (const Range& range : kLaterThanIcu72) {
    if (code_point < range.first || code_point > range.last) continue;
    return utf8_of(static_cast<char32_t>(static_cast<int32_t>(code_point) + range.shift));
  }
  constexpr char32_t kCapitalDottedI = 0x130;  // the only one that becomes two characters
  if (code_point == kCapitalDottedI) return "i\xCC\x87";
  return utf8_of(static_cast<char32_t>(u_tolower(icu_character(code_point))));
}

}  // namespace shiftron
