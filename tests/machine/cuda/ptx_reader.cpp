// PTX as text: statements, declarations, instructions.
#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "core/check.h"
#include "cuda/ptx_instruction.h"
#include "cuda/ptx_words.h"

namespace shiftron::machine::ptx {
namespace {

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
      if (letter == '(' || letter == '[' || letter == '{') ++depth;
      if (letter == ')' || letter == ']' || letter == '}') --depth;
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
    if (place != nullptr) {  // from a scope that ended: calls use the same names
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
    if (at_ >= text_.size() || text_[at_] != '{') return;  // a forward declaration
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
    } else if (word.starts_with('%') || registers_.count(word) > 0) {  // nvcc's own have a %, headers' in an inner scope none
      CHECK(is_register(word), "the register ", word);
      operand.what = Operand::What::slot;
      operand.slot = slots_.try_emplace(word, static_cast<int>(slots_.size())).first->second;
    } else if (const auto number = number_of(word)) {
      operand.what = Operand::What::number;
      operand.number = *number;
    } else {
      operand.what = Operand::What::symbol;
      operand.symbol = symbol_of(word);
      std::vector<const Symbol*>& shared = function_->shared;
      const bool known = std::ranges::find(shared, operand.symbol) != shared.end();
      if (operand.symbol->space == Space::shared && !known) shared.push_back(operand.symbol);
    }
    return operand;
  }

  const Symbol* symbol_of(const std::string& word) {
    if (const auto own = function_->symbols.find(word); own != function_->symbols.end()) return own->second.get();
    const auto found = module_.symbols.find(word);
    CHECK(found != module_.symbols.end(), "the name ", word);
    return found->second.get();
  }

  void take_instruction() {
    ReadInstruction read = instruction_of(statement_, [this](const std::string& word) { return operand_of(word); });
    const size_t number = function_->code.size();
    read.made.text = "#" + std::to_string(number) + " " + statement_;
    if (!read.label.empty()) jumps_.emplace_back(number, read.label);
    if (!read.callee.empty()) calls_.push_back({{function_, number}, read.callee});
    function_->code.push_back(std::move(read.made));
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
