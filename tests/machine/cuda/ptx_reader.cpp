// PTX as text: statements, declarations, instructions.
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "cuda/ptx.h"

namespace shiftron::machine::ptx {
namespace {

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, by);) parts.push_back(part);
  return parts;
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\n\r"), last = text.find_last_not_of(" \t\n\r");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::string without_comments(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) i = text.find('\n', i);
    if (i == std::string::npos) break;
    if (text.compare(i, 2, "/*") == 0) {
      i = text.find("*/", i);
      CHECK(i != std::string::npos, "a comment without end");
      ++i;
      continue;
    }
    out += text[i];
  }
  return out;
}

// Parts that commas part, but for those within brackets of any kind.
std::vector<std::string> listed(const std::string& text) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  for (const char letter : text) {
    depth += letter == '{' || letter == '[' || letter == '(' ? 1 : letter == '}' || letter == ']' || letter == ')' ? -1 : 0;
    if (letter == ',' && depth == 0) {
      parts.push_back(trimmed(part));
      part.clear();
    } else {
      part += letter;
    }
  }
  if (!trimmed(part).empty()) parts.push_back(trimmed(part));
  return parts;
}

std::optional<Type> type_of(const std::string& word) {
  if (word == "pred") return Type{Kind::predicate, 1};
  if (word == "bf16") return Type{Kind::bfloat16, 2};
  if (word.size() < 2 || std::string_view("busf").find(word[0]) == std::string_view::npos) return std::nullopt;
  const std::string bits = word.substr(1);
  if (bits != "8" && bits != "16" && bits != "32" && bits != "64") return std::nullopt;
  const Kind kind = word[0] == 'b'   ? Kind::bits
                    : word[0] == 'u' ? Kind::unsigned_integer
                    : word[0] == 's' ? Kind::signed_integer
                                     : Kind::floating;
  return Type{kind, static_cast<uint8_t>(std::stoi(bits) / 8)};
}

template <typename Value>
std::optional<Value> named(const std::string& word, const std::vector<std::pair<const char*, Value>>& names) {
  for (const auto& [name, value] : names) {
    if (word == name) return value;
  }
  return std::nullopt;
}

std::optional<Special> special_of(const std::string& word) {
  return named<Special>(word, {{"%tid.x", Special::tid_x},       {"%tid.y", Special::tid_y},
                               {"%tid.z", Special::tid_z},       {"%ntid.x", Special::ntid_x},
                               {"%ntid.y", Special::ntid_y},     {"%ntid.z", Special::ntid_z},
                               {"%ctaid.x", Special::ctaid_x},   {"%ctaid.y", Special::ctaid_y},
                               {"%ctaid.z", Special::ctaid_z},   {"%nctaid.x", Special::nctaid_x},
                               {"%nctaid.y", Special::nctaid_y}, {"%nctaid.z", Special::nctaid_z},
                               {"%laneid", Special::laneid}});
}

// 4.5: -3, 0x5410U, 0f3F800000, 0dBFF0000000000000.
std::optional<int64_t> number_of(const std::string& word) {
  const bool negative = word.starts_with('-');
  std::string digits = word.substr(negative ? 1 : 0);
  if (digits.empty() || std::isdigit(static_cast<unsigned char>(digits[0])) == 0) return std::nullopt;
  if (digits.ends_with('U')) digits.pop_back();
  int base = 10;
  size_t from = 0;
  for (const char* prefix : {"0x", "0f", "0F", "0d", "0D"}) {
    if (digits.starts_with(prefix)) base = 16, from = 2;
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data() + from, digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return static_cast<int64_t>(negative ? 0 - value : value);
}

class Reader {
 public:
  Reader(const std::string& text, std::string name) : text_(without_comments(text)), name_(std::move(name)) {}

  Module read() {
    while (next()) {
      try {
        take();
      } catch (const std::exception& exception) {
        throw_crash(name_, ": ", statement_.substr(0, 200), ": ", exception.what());
      }
    }
    for (const auto& [instruction, callee] : calls_) {
      const auto found = module_.functions.find(callee);
      CHECK(found != module_.functions.end() && !found->second->code.empty(), name_, ": no function ", callee);
      instruction.first->code[instruction.second].callee = found->second.get();
    }
    return std::move(module_);
  }

 private:
  // The next statement, without its end; "{" and "}" of scopes are statements.
  bool next() {
    statement_.clear();
    for (int depth = 0; at_ < text_.size(); ++at_) {
      const char letter = text_[at_];
      const bool blank = trimmed(statement_).empty();
      if (blank && (letter == '{' || letter == '}')) {
        statement_ = letter;
        ++at_;
        return true;
      }
      const bool header = statement_.find(".entry") != std::string::npos || statement_.find(".func") != std::string::npos;
      if (letter == '{' && header) break;  // its body begins
      if (letter == ';' || (letter == ':' && depth == 0 && trimmed(statement_).starts_with('$'))) {
        if (letter == ':') statement_ += ':';
        ++at_;
        statement_ = trimmed(statement_);
        return true;
      }
      if (blank && letter == '\n') continue;
      // Directives that end with their line.
      if (letter == '\n') {
        const std::string line = trimmed(statement_);
        if (line.starts_with(".version") || line.starts_with(".target") || line.starts_with(".address_size")) {
          statement_ = line;
          return true;
        }
      }
      depth += letter == '(' || letter == '[' || letter == '{' ? 1 : letter == ')' || letter == ']' || letter == '}' ? -1 : 0;
      statement_ += letter;
    }
    statement_ = trimmed(statement_);
    return !statement_.empty();
  }

  void take() {
    if (statement_ == "{") {
      ++depth_;
      return;
    }
    if (statement_ == "}") {
      if (--depth_ == 0) end_function();
      return;
    }
    if (statement_[0] == '.') return declare();
    CHECK(function_ != nullptr, "an instruction outside of a function");
    if (statement_.ends_with(':')) {
      labels_[statement_.substr(0, statement_.size() - 1)] = static_cast<int>(function_->code.size());
      return;
    }
    take_instruction();
  }

  void declare() {
    for (const char* other : {".version", ".target", ".address_size", ".pragma", ".loc ", ".loc\t", ".file"}) {
      if (statement_.starts_with(other)) return;
    }
    if (statement_.find(".entry") != std::string::npos || statement_.find(".func") != std::string::npos) {
      return begin_function();
    }
    if (statement_.starts_with(".reg")) return take_registers();
    const bool inside = function_ != nullptr;
    take_symbol(statement_, inside ? function_->symbols : module_.symbols, inside);
  }

  // ".reg .b32 %r<99>", ".reg .b64 %SP"
  void take_registers() {
    std::istringstream words(statement_);
    std::string word;
    words >> word >> word;
    CHECK(word[0] == '.' && type_of(word.substr(1)), "registers of type ", word);
    std::string names;
    std::getline(words, names);
    for (const std::string& name : listed(names)) registers_.insert(name.substr(0, name.find('<')));
  }
  bool is_register(const std::string& word) const {
    if (registers_.count(word) > 0) return true;
    const size_t last = word.find_last_not_of("0123456789");
    return registers_.count(word.substr(0, last + 1)) > 0;
  }

  // ".shared .align 4 .b8 NAME[128]", ".param .u64 NAME", ".global .align 8 .b8 NAME[3] = {1, 2, 3}"
  Symbol* take_symbol(const std::string& declaration, std::map<std::string, std::unique_ptr<Symbol>>& into, bool inside) {
    auto symbol = std::make_unique<Symbol>();
    const size_t equals = declaration.find('=');
    std::istringstream words(declaration.substr(0, equals));
    size_t align = 0, element = 0;
    bool has_space = false;
    for (std::string word; words >> word;) {
      if (word == ".extern" || word == ".visible" || word == ".weak" || word == ".ptr") continue;
      if (word == ".align") {
        words >> align;
      } else if (const auto space = named<Space>(word, {{".shared", Space::shared},
                                                        {".param", Space::parameter},
                                                        {".local", Space::local},
                                                        {".const", Space::global},
                                                        {".global", Space::global}})) {
        symbol->space = *space;
        has_space = true;
      } else if (word[0] == '.') {
        const auto type = type_of(word.substr(1));
        CHECK(type, "the word ", word);
        element = type->bytes;
      } else {
        const size_t bracket = word.find('[');
        symbol->name = word.substr(0, bracket);
        size_t count = 1;
        if (bracket != std::string::npos) {
          const std::string inner = word.substr(bracket + 1, word.find(']') - bracket - 1);
          count = inner.empty() ? 0 : static_cast<size_t>(std::stoull(inner));
        }
        symbol->bytes = count * element;
      }
    }
    CHECK(has_space && element > 0 && !symbol->name.empty(), "a declaration of another kind");
    CHECK(symbol->bytes > 0 || symbol->space == Space::shared, "no bytes");
    if (equals != std::string::npos) {
      CHECK(element == 1 && symbol->space == Space::global, "initial values of other than bytes");
      const size_t first = declaration.find('{', equals);
      for (const std::string& value : listed(declaration.substr(first + 1, declaration.rfind('}') - first - 1))) {
        symbol->data.push_back(static_cast<uint8_t>(*number_of(value)));
      }
    }
    if (symbol->space == Space::global) symbol->data.resize(symbol->bytes);
    if (inside && (symbol->space == Space::local || symbol->space == Space::parameter)) {
      size_t& bytes = symbol->space == Space::local ? function_->local_bytes : function_->parameter_bytes;
      symbol->offset = (bytes + 15) / 16 * 16;
      bytes = symbol->offset + symbol->bytes;
    }
    // Shared memory has addresses of 32 bits: here each array has its own part of them.
    if (symbol->space == Space::shared) symbol->offset = static_cast<size_t>(++shared_) << 20;
    Symbol* const made = symbol.get();
    auto& place = into[symbol->name];
    if (place != nullptr) {  // of a scope that ended: calls name theirs alike
      CHECK(place->space == Space::parameter && symbol->space == Space::parameter, symbol->name, " is declared twice");
      retired_.push_back(std::move(place));
    }
    place = std::move(symbol);
    return made;
  }

  // ".func (.param .b64 RETURNED) NAME(.param .b64 A, .param .b64 B)", ".entry NAME(…) .maxntid 256, 1, 1"
  void begin_function() {
    const bool entry = statement_.find(".entry") != std::string::npos;
    std::string rest = statement_.substr(statement_.find(entry ? ".entry" : ".func") + (entry ? 6 : 5));
    std::string returned;
    rest = trimmed(rest);
    if (!entry && rest.starts_with('(')) {
      returned = rest.substr(1, rest.find(')') - 1);
      rest = trimmed(rest.substr(rest.find(')') + 1));
    }
    const size_t open = rest.find('(');
    const std::string name = trimmed(rest.substr(0, open));
    auto& place = module_.functions[name];
    if (place == nullptr) place = std::make_unique<Function>();
    if (at_ >= text_.size() || text_[at_] != '{') return;  // told of in advance
    CHECK(place->code.empty(), "a second body");
    function_ = place.get();
    function_->name = name;
    function_->entry = entry;
    registers_.clear();
    slots_.clear();
    labels_.clear();
    jumps_.clear();
    depth_ = 0;
    if (!returned.empty()) function_->returned = take_symbol(returned, function_->symbols, true);
    const size_t close = rest.find(')', open);
    for (const std::string& parameter : listed(rest.substr(open + 1, close - open - 1))) {
      function_->parameters.push_back(take_symbol(parameter, function_->symbols, true));
    }
  }

  void end_function() {
    for (const auto& [instruction, label] : jumps_) {
      CHECK(labels_.count(label) == 1, "no label ", label);
      function_->code[instruction].target = labels_[label];
    }
    function_->slots = static_cast<int>(slots_.size());
    for (auto& symbol : retired_) function_->symbols["(retired) " + std::to_string(function_->symbols.size())] = std::move(symbol);
    retired_.clear();
    function_ = nullptr;
  }

  Operand operand_of(std::string word) {
    Operand operand;
    if (word.starts_with('!')) {
      operand.negated = true;
      word = trimmed(word.substr(1));
    }
    if (word == "_") {
      operand.what = Operand::What::sink;
    } else if (const auto special = special_of(word)) {
      operand.what = Operand::What::special;
      operand.special = *special;
    } else if (word.starts_with('%')) {
      CHECK(is_register(word), "the register ", word);
      operand.what = Operand::What::slot;
      operand.slot = slots_.try_emplace(word, static_cast<int>(slots_.size())).first->second;
    } else if (const auto number = number_of(word)) {
      operand.what = Operand::What::number;
      operand.number = *number;
    } else {
      operand.what = Operand::What::symbol;
      operand.symbol = symbol_of(word);
    }
    return operand;
  }

  const Symbol* symbol_of(const std::string& word) {
    if (const auto own = function_->symbols.find(word); own != function_->symbols.end()) return own->second.get();
    const auto found = module_.symbols.find(word);
    CHECK(found != module_.symbols.end(), "the name ", word);
    return found->second.get();
  }

  // "[%rd3+-8]", "[NAME+4]"
  Operand address_of(const std::string& word) {
    CHECK(word.starts_with('[') && word.ends_with(']'), "the address ", word);
    const std::string inner = word.substr(1, word.size() - 2);
    const size_t plus = inner.find('+');
    Operand operand = operand_of(trimmed(inner.substr(0, plus)));
    CHECK(operand.what == Operand::What::slot || operand.what == Operand::What::symbol, "the address ", word);
    if (plus != std::string::npos) operand.number = *number_of(trimmed(inner.substr(plus + 1)));
    return operand;
  }

  std::vector<Operand> vector_of(const std::string& word) {
    if (!word.starts_with('{')) return {operand_of(word)};
    std::vector<Operand> all;
    for (const std::string& part : listed(word.substr(1, word.size() - 2))) all.push_back(operand_of(part));
    return all;
  }

  void take_instruction() {
    Instruction made;
    std::string rest = statement_;
    made.text = "#" + std::to_string(function_->code.size()) + " " + rest;
    if (rest.starts_with('@')) {
      const size_t space = rest.find_first_of(" \t");
      made.guard = operand_of(rest.substr(1, space - 1));
      rest = trimmed(rest.substr(space));
    }
    const size_t space = rest.find_first_of(" \t\n{");
    const std::vector<std::string> words = split(rest.substr(0, space), '.');
    const std::string arguments = space == std::string::npos ? "" : trimmed(rest.substr(space));
    take_operation(made, words, arguments);
    function_->code.push_back(std::move(made));
  }

  void take_operation(Instruction& made, const std::vector<std::string>& words, const std::string& arguments) {
    const std::string& op = words[0];
    const auto index = function_->code.size();
    if (op == "bra") {
      made.op = Op::branch;
      jumps_.emplace_back(index, arguments);
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
      made.results = {operand_of(trimmed(parts[0].substr(1, parts[0].size() - 2)))};
      for (const std::string& part : listed(parts[2].substr(1, parts[2].size() - 2))) made.operands.push_back(operand_of(part));
      calls_.push_back({{function_, index}, parts[1]});
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
        {"bar", Op::barrier},       {"shfl", Op::shuffle},      {"vote", Op::vote}};
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
    if (made.op == Op::barrier) return word == "sync";
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
    return made.op == Op::branch && word == "uni";
  }

  void take_arguments(Instruction& made, const std::vector<std::string>& words, size_t width) {
    if (made.op == Op::barrier) {
      CHECK(words.size() == 1 && words[0] == "0", "a barrier of some threads");
      return;
    }
    if (made.op == Op::store) {
      CHECK(words.size() == 2, words.size(), " operands");
      made.operands = {address_of(words[0])};
      for (const Operand& value : vector_of(words[1])) made.operands.push_back(value);
      CHECK(made.operands.size() == width + 1, "not ", width, " values");
      return;
    }
    CHECK(!words.empty(), "no operand");
    if (made.op == Op::shuffle || made.op == Op::compare) {  // "%r1|%p1": a second result
      for (const std::string& part : split(words[0], '|')) made.results.push_back(operand_of(trimmed(part)));
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
    for (size_t i = 1; i < words.size(); ++i) made.operands.push_back(operand_of(words[i]));
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

  const std::string text_, name_;
  std::string statement_;
  size_t at_ = 0;
  int depth_ = 0, shared_ = 0;
  Module module_;
  Function* function_ = nullptr;
  std::set<std::string> registers_;  // and what their names begin with
  std::map<std::string, int> slots_, labels_;
  std::vector<std::pair<size_t, std::string>> jumps_;
  std::vector<std::pair<std::pair<Function*, size_t>, std::string>> calls_;
  std::vector<std::unique_ptr<Symbol>> retired_;
};

}  // namespace

Module read(const std::string& text, const std::string& name) {
  return Reader(text, name).read();
}

}  // namespace shiftron::machine::ptx
