// An instruction as PTX writes it: "@%p1 ld.global.v2.f64 {%fd1, %fd2}, [%rd1+16]".
#include "cuda/ptx_instruction.h"

#include <utility>

#include "core/check.h"
#include "cuda/ptx_words.h"

namespace shiftron::machine::ptx {
namespace {

class InstructionReader {
 public:
  explicit InstructionReader(const std::function<Operand(const std::string&)>& operand) : operand_(operand) {}

  ReadInstruction read(std::string rest) {
    Instruction made;
    if (rest.starts_with('@')) {
      const size_t space = rest.find_first_of(" \t");
      made.guard = operand_(rest.substr(1, space - 1));
      rest = trimmed(rest.substr(space));
    }
    const size_t space = rest.find_first_of(" \t\n{");
    const std::vector<std::string> words = split(rest.substr(0, space), '.');
    const std::string arguments = space == std::string::npos ? "" : trimmed(rest.substr(space));
    take_operation(made, words, arguments);
    return {std::move(made), label_, callee_};
  }

 private:
  // "[%rd3+-8]", "[NAME+4]"
  Operand address_of(const std::string& word) {
    CHECK(word.starts_with('[') && word.ends_with(']'), "the address ", word);
    const std::string inner = word.substr(1, word.size() - 2);
    const size_t plus = inner.find('+');
    Operand operand = operand_(trimmed(inner.substr(0, plus)));
    CHECK(operand.what == Operand::What::slot || operand.what == Operand::What::symbol, "the address ", word);
    if (plus != std::string::npos) operand.number = *number_of(trimmed(inner.substr(plus + 1)));
    return operand;
  }

  std::vector<Operand> vector_of(const std::string& word) {
    if (!word.starts_with('{')) return {operand_(word)};
    std::vector<Operand> all;
    for (const std::string& part : listed(word.substr(1, word.size() - 2))) all.push_back(operand_(part));
    return all;
  }

  void take_operation(Instruction& made, const std::vector<std::string>& words, const std::string& arguments) {
    const std::string& op = words[0];
    if (op == "bra") {
      made.op = Op::branch;
      label_ = arguments;
      return;
    }
    if (op == "ret" || op == "exit") {
      made.op = Op::leave;
      return;
    }
    if (op == "call") {
      made.op = Op::call;
      const std::vector<std::string> parts = listed(arguments);
      CHECK(parts.size() == 3 && parts[0].starts_with('(') && parts[2].starts_with('('), "a call of another kind");
      made.results = {operand_(trimmed(parts[0].substr(1, parts[0].size() - 2)))};
      for (const std::string& part : listed(parts[2].substr(1, parts[2].size() - 2))) made.operands.push_back(operand_(part));
      callee_ = parts[1];
      return;
    }
    static const std::vector<std::pair<const char*, Op>> kOps = {
        {"mov", Op::move},          {"ld", Op::load},           {"st", Op::store},          {"cvta", Op::to_generic},
        {"add", Op::add},           {"addc", Op::add},          {"sub", Op::subtract},      {"subc", Op::subtract},
        {"mul", Op::multiply},      {"mad", Op::multiply_add},  {"madc", Op::multiply_add}, {"div", Op::divide},
        {"rem", Op::remainder},     {"min", Op::minimum},       {"max", Op::maximum},       {"abs", Op::absolute},
        {"neg", Op::negate},        {"and", Op::conjunction},   {"or", Op::disjunction},    {"xor", Op::exclusion},
        {"not", Op::complement},    {"shl", Op::shift_left},    {"shr", Op::shift_right},   {"shf", Op::funnel_shift},
        {"prmt", Op::permute},      {"brev", Op::reverse_bits}, {"clz", Op::leading_zeros}, {"bfind", Op::highest_bit},
        {"popc", Op::bits_set},     {"fma", Op::fused},         {"ex2", Op::exponential},   {"rcp", Op::reciprocal},
        {"sqrt", Op::square_root},  {"setp", Op::compare},      {"selp", Op::select},       {"cvt", Op::convert},
        {"bar", Op::barrier},       {"shfl", Op::shuffle},      {"vote", Op::vote},
        {"griddepcontrol", Op::earlier_kernels}};
    const auto found = named<Op>(op, kOps);
    CHECK(found, "the instruction ", op);
    made.op = *found;
    made.carry_in = op == "addc" || op == "subc" || op == "madc";
    std::vector<Type> types;
    size_t width = 1;
    for (size_t i = 1; i < words.size(); ++i) {
      if (const auto type = type_of(words[i])) {
        types.push_back(*type);
      } else {
        CHECK(take_word(made, words[i], width), "the word .", words[i]);
      }
    }
    if (!types.empty()) made.type = made.from = types[0];
    if (types.size() > 1) made.from = types[1];
    CHECK(types.size() <= 2, "three types");
    take_arguments(made, listed(arguments), width);
  }

  // What stands between an instruction's name and its type; false where it is unknown there.
  bool take_word(Instruction& made, const std::string& word, size_t& width) {
    const auto set = [](bool& flag) { return flag = true; };
    const bool memory = made.op == Op::load || made.op == Op::store;
    if (memory || made.op == Op::to_generic) {
      if (const auto space = named<Space>(word, {{"global", Space::global},
                                                 {"shared", Space::shared},
                                                 {"local", Space::local},
                                                 {"param", Space::parameter}})) {
        made.space = *space;
        return made.op != Op::to_generic || *space != Space::shared;
      }
      if (made.op == Op::to_generic) return word == "to";
      if (word == "v2" || word == "v4") {
        width = word == "v2" ? 2 : 4;
        return true;
      }
      return word == "nc" || word == "wb";  // hints to caches
    }
    const bool arithmetic = made.op == Op::add || made.op == Op::subtract || made.op == Op::multiply ||
                            made.op == Op::multiply_add || made.op == Op::multiply_high_add || made.op == Op::fused || made.op == Op::divide ||
                            made.op == Op::square_root || made.op == Op::reciprocal || made.op == Op::convert;
    if (arithmetic) {
      if (const auto rounding = named<Rounding>(word, {{"rn", Rounding::nearest},
                                                       {"rz", Rounding::zero},
                                                       {"rm", Rounding::down},
                                                       {"rp", Rounding::up},
                                                       {"rni", Rounding::nearest_integer},
                                                       {"rzi", Rounding::zero_integer},
                                                       {"rmi", Rounding::down_integer},
                                                       {"rpi", Rounding::up_integer}})) {
        made.rounding = *rounding;
        return true;
      }
      if (word == "cc") return set(made.carry_out);
    }
    if (made.op == Op::multiply || made.op == Op::multiply_add) {
      if (word == "lo") return true;
      if (word == "hi") {
        made.op = made.op == Op::multiply ? Op::multiply_high : Op::multiply_high_add;
        return true;
      }
      if (word == "wide" && made.op == Op::multiply) {
        made.op = Op::multiply_wide;
        return true;
      }
    }
    if (word == "hi" || word == "lo") return false;
    if (made.op == Op::convert && word == "sat") return set(made.saturate);
    if (made.op == Op::exponential || made.op == Op::reciprocal) {
      if (word == "approx") return set(made.approximate);
      if (word == "ftz") return set(made.flush);
    }
    if (made.op == Op::highest_bit && word == "shiftamt") return set(made.as_shift);
    if (made.op == Op::funnel_shift) return word == "l" || word == "wrap";
    if (made.op == Op::barrier && word == "warp") {
      made.op = Op::warp_barrier;
      return true;
    }
    if (made.op == Op::barrier || made.op == Op::warp_barrier) return word == "sync";
    if (made.op == Op::earlier_kernels) return word == "wait" || word == "launch_dependents";
    if (made.op == Op::compare) {
      const auto comparison = named<Comparison>(
          word, {{"eq", Comparison::eq},   {"ne", Comparison::ne},   {"lt", Comparison::lt},   {"le", Comparison::le},
                 {"gt", Comparison::gt},   {"ge", Comparison::ge},   {"equ", Comparison::equ}, {"neu", Comparison::neu},
                 {"ltu", Comparison::ltu}, {"leu", Comparison::leu}, {"gtu", Comparison::gtu}, {"geu", Comparison::geu},
                 {"num", Comparison::num}, {"nan", Comparison::nan}});
      if (!comparison) return false;
      made.comparison = *comparison;
      return true;
    }
    if (made.op == Op::shuffle || made.op == Op::vote) {
      if (word == "sync") return true;
      if (const auto mode = named<ShuffleMode>(word, {{"up", ShuffleMode::up},
                                                      {"down", ShuffleMode::down},
                                                      {"bfly", ShuffleMode::butterfly},
                                                      {"idx", ShuffleMode::index}})) {
        made.shuffle = *mode;
        return made.op == Op::shuffle;
      }
      if (const auto mode = named<VoteMode>(
              word, {{"all", VoteMode::all}, {"any", VoteMode::any}, {"ballot", VoteMode::ballot}})) {
        made.vote = *mode;
        return made.op == Op::vote;
      }
    }
    return false;
  }

  void take_arguments(Instruction& made, const std::vector<std::string>& words, size_t width) {
    if (made.op == Op::barrier) {
      CHECK(words.size() == 1 && words[0] == "0", "a barrier of some threads");
      return;
    }
    if (made.op == Op::warp_barrier) {
      CHECK(words.size() == 1 && words[0] == "-1", "a barrier of some lanes");
      return;
    }
    if (made.op == Op::store) {
      CHECK(words.size() == 2, words.size(), " operands");
      made.operands = {address_of(words[0])};
      for (const Operand& value : vector_of(words[1])) made.operands.push_back(value);
      CHECK(made.operands.size() == width + 1, "not ", width, " values");
      return;
    }
    if (made.op == Op::earlier_kernels) return;
    CHECK(!words.empty(), "no operand");
    if (made.op == Op::shuffle || made.op == Op::compare) {  // "%r1|%p1": a second result
      for (const std::string& part : split(words[0], '|')) made.results.push_back(operand_(trimmed(part)));
    } else {
      made.results = vector_of(words[0]);
    }
    for (const Operand& result : made.results) {
      CHECK((result.what == Operand::What::slot || result.what == Operand::What::sink) && !result.negated, "the result");
    }
    if (made.op == Op::load) {
      CHECK(words.size() == 2 && made.results.size() == width, "operands of a load");
      made.operands = {address_of(words[1])};
      return;
    }
    if (made.op == Op::move) {
      CHECK(words.size() == 2, words.size(), " operands");
      made.operands = vector_of(words[1]);
      if (made.operands.size() > 1 || made.results.size() > 1) {
        made.op = Op::pack;
        CHECK(made.operands.size() * made.results.size() == 2, "numbers in numbers");
      }
      return;
    }
    for (size_t i = 1; i < words.size(); ++i) made.operands.push_back(operand_(words[i]));
    CHECK(made.operands.size() == operands_of(made.op), made.operands.size(), " operands");
  }

  static size_t operands_of(Op op) {
    switch (op) {
      case Op::to_generic:
      case Op::absolute:
      case Op::negate:
      case Op::complement:
      case Op::reverse_bits:
      case Op::leading_zeros:
      case Op::highest_bit:
      case Op::bits_set:
      case Op::exponential:
      case Op::reciprocal:
      case Op::square_root:
      case Op::convert: return 1;
      case Op::multiply_add:
      case Op::multiply_high_add:
      case Op::funnel_shift:
      case Op::permute:
      case Op::fused:
      case Op::select: return 3;
      case Op::shuffle: return 4;
      default: return 2;
    }
  }

  const std::function<Operand(const std::string&)>& operand_;
  std::string label_, callee_;
};

}  // namespace

ReadInstruction instruction_of(const std::string& statement, const std::function<Operand(const std::string&)>& operand) {
  return InstructionReader(operand).read(statement);
}

}  // namespace shiftron::machine::ptx
