// PTX's arithmetic with that of the host.
#include "cuda/ptx_arithmetic.h"

#include <bit>
#include <cfenv>
#include <cmath>

#include "core/check.h"

namespace shiftron::machine::ptx {
namespace {

// A register's bits as a number, and back.
template <typename Real>
Real real_of(uint64_t bits) {
  if constexpr (sizeof(Real) == 8) {
    return std::bit_cast<double>(bits);
  } else {
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  }
}
uint64_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}
uint64_t bits_of(double value) {
  return std::bit_cast<uint64_t>(value);
}

int mode_of(Rounding rounding) {
  switch (rounding) {
    case Rounding::zero:
    case Rounding::zero_integer: return FE_TOWARDZERO;
    case Rounding::down:
    case Rounding::down_integer: return FE_DOWNWARD;
    case Rounding::up:
    case Rounding::up_integer: return FE_UPWARD;
    default: return FE_TONEAREST;
  }
}

// While it lives the host rounds so.
class RoundingScope {
 public:
  explicit RoundingScope(Rounding rounding) : changed_(mode_of(rounding) != FE_TONEAREST) {
    if (changed_) std::fesetround(mode_of(rounding));
  }
  ~RoundingScope() {
    if (changed_) std::fesetround(FE_TONEAREST);
  }

 private:
  bool changed_;
};

template <typename Real>
Real calculated(const Instruction& in, Real a, Real b, Real c) {
  // Neither before the mode is set nor in another one.
  volatile Real x = a, y = b, z = c;
  const RoundingScope scope(in.rounding);
  volatile Real result = 0;
  switch (in.op) {
    case Op::add: result = x + y; break;
    case Op::subtract: result = x - y; break;
    case Op::multiply: result = x * y; break;
    case Op::divide: result = x / y; break;
    case Op::multiply_add:
    case Op::fused: result = std::fma(x, y, z); break;
    case Op::square_root: result = std::sqrt(x); break;
    case Op::reciprocal: result = Real{1} / x; break;
    case Op::minimum: result = std::fmin(x, y); break;  // a NaN gives way
    case Op::maximum: result = std::fmax(x, y); break;
    case Op::exponential: result = static_cast<Real>(std::exp2(static_cast<double>(a))); break;
    default: throw_crash("no arithmetic: ", in.text);
  }
  return result;
}

template <typename Real>
uint64_t floating_of(const Instruction& in, uint64_t a, uint64_t b, uint64_t c) {
  constexpr uint64_t kSign = uint64_t{1} << (8 * sizeof(Real) - 1);
  if (in.op == Op::negate) return a ^ kSign;
  if (in.op == Op::absolute) return a & ~kSign;
  Real value = calculated<Real>(in, real_of<Real>(a), real_of<Real>(b), real_of<Real>(c));
  if (in.flush && std::fpclassify(value) == FP_SUBNORMAL) value = std::copysign(Real{0}, value);
  uint64_t bits = bits_of(value);
  // 9.7.3.14: the upper half of the number.
  if (in.op == Op::reciprocal && in.approximate && sizeof(Real) == 8) bits &= ~mask_of(4);
  return bits;
}

template <typename Real>
bool holds_of_reals(Comparison comparison, Real a, Real b) {
  const bool unordered = std::isnan(a) || std::isnan(b);
  switch (comparison) {
    case Comparison::eq: return a == b;
    case Comparison::ne: return !unordered && a != b;
    case Comparison::lt: return a < b;
    case Comparison::le: return a <= b;
    case Comparison::gt: return a > b;
    case Comparison::ge: return a >= b;
    case Comparison::equ: return unordered || a == b;
    case Comparison::neu: return unordered || a != b;
    case Comparison::ltu: return unordered || a < b;
    case Comparison::leu: return unordered || a <= b;
    case Comparison::gtu: return unordered || a > b;
    case Comparison::geu: return unordered || a >= b;
    case Comparison::num: return !unordered;
    case Comparison::nan: return unordered;
  }
  return false;
}

template <typename Integer>
bool holds_of_integers(Comparison comparison, Integer a, Integer b) {
  switch (comparison) {
    case Comparison::eq: return a == b;
    case Comparison::ne: return a != b;
    case Comparison::lt: return a < b;
    case Comparison::le: return a <= b;
    case Comparison::gt: return a > b;
    case Comparison::ge: return a >= b;
    default: throw_crash("a comparison of integers that may be unordered");
  }
}

// 9.7.9.21: to the nearest, an even one of two.
uint64_t bfloat16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7FFF;
  return (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
}

template <typename Real>
Real whole_number(Rounding rounding, Real value) {
  switch (rounding) {
    case Rounding::nearest_integer: return std::nearbyint(value);
    case Rounding::zero_integer: return std::trunc(value);
    case Rounding::down_integer: return std::floor(value);
    case Rounding::up_integer: return std::ceil(value);
    default: return value;
  }
}

uint64_t integer_of(const Instruction& in, double value) {
  CHECK(in.rounding >= Rounding::nearest_integer, "an integer of a fraction");
  value = whole_number(in.rounding, value);
  if (std::isnan(value)) return 0;
  const int bits = 8 * in.type.bytes;
  const double most = is_signed(in.type) ? std::ldexp(1.0, bits - 1) : std::ldexp(1.0, bits);
  const double least = is_signed(in.type) ? -most : 0.0;
  if (value >= most) return is_signed(in.type) ? mask_of(in.type.bytes) >> 1 : mask_of(in.type.bytes);
  if (value <= least) return is_signed(in.type) ? uint64_t{1} << (bits - 1) : 0;
  return is_signed(in.type) ? static_cast<uint64_t>(static_cast<int64_t>(value)) : static_cast<uint64_t>(value);
}

uint64_t of_double(Type type, double value) {
  return type.bytes == 8 ? bits_of(value) : bits_of(static_cast<float>(value));
}

}  // namespace

uint64_t floating(const Instruction& in, uint64_t a, uint64_t b, uint64_t c) {
  return in.type.bytes == 8 ? floating_of<double>(in, a, b, c) : floating_of<float>(in, a, b, c);
}

bool holds(const Instruction& in, uint64_t a, uint64_t b) {
  const int bytes = in.type.bytes;
  if (is_floating(in.type)) {
    return bytes == 8 ? holds_of_reals(in.comparison, real_of<double>(a), real_of<double>(b))
                      : holds_of_reals(in.comparison, real_of<float>(a), real_of<float>(b));
  }
  if (is_signed(in.type)) return holds_of_integers(in.comparison, signed_of(a, bytes), signed_of(b, bytes));
  return holds_of_integers(in.comparison, a & mask_of(bytes), b & mask_of(bytes));
}

uint64_t converted(const Instruction& in, uint64_t bits) {
  const Type from = in.from, to = in.type;
  if (from.kind == Kind::bfloat16) {
    CHECK(is_floating(to) && to.bytes == 4, "a conversion of bf16");
    return (bits & 0xFFFF) << 16;
  }
  if (to.kind == Kind::bfloat16) {
    CHECK(is_floating(from) && from.bytes == 4 && in.rounding == Rounding::nearest, "a conversion to bf16");
    return bfloat16_of(real_of<float>(bits));
  }
  if (!is_floating(from)) {
    const int64_t number = is_signed(from) ? signed_of(bits, from.bytes)
                                           : static_cast<int64_t>(bits & mask_of(from.bytes));
    CHECK(!in.saturate, "saturated integers");
    if (!is_floating(to)) return static_cast<uint64_t>(number) & mask_of(to.bytes);
    CHECK(in.rounding == Rounding::nearest, "a rounding of integers");
    const bool positive = !is_signed(from);  // the highest bit is no sign
    if (to.bytes == 8) {
      return bits_of(positive ? static_cast<double>(static_cast<uint64_t>(number)) : static_cast<double>(number));
    }
    return bits_of(positive ? static_cast<float>(static_cast<uint64_t>(number)) : static_cast<float>(number));
  }
  double value = from.bytes == 8 ? real_of<double>(bits) : static_cast<double>(real_of<float>(bits));
  if (!is_floating(to)) return integer_of(in, value) & mask_of(to.bytes);
  value = whole_number(in.rounding, value);
  if (in.saturate) value = std::isnan(value) ? 0.0 : std::fmin(std::fmax(value, 0.0), 1.0);
  return of_double(to, value);
}

uint64_t permuted(uint64_t a, uint64_t b, uint64_t selection) {
  const uint64_t all = (a & mask_of(4)) | b << 32;
  uint64_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint64_t choice = selection >> (4 * i) & 0xF;
    uint64_t byte = all >> (8 * (choice & 7)) & 0xFF;
    if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;
    result |= byte << (8 * i);
  }
  return result;
}

}  // namespace shiftron::machine::ptx
