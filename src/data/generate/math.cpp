// A miniature of iGSM (Ye et al., "Physics of language models: part 2.1", 2024). docs/generated-data.md has the draws.
#include "data/generate/math.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/check.h"
#include "data/generate/draws.h"

namespace shiftron {
namespace {

enum Sign : int32_t { plus = 1, minus, times, equals, stop, question, colon, kFirstName };
constexpr std::array<const char*, kFirstName> kSigns = {"", "+", "-", "*", "=", ".", "?", ":"};

struct Operand {
  bool is_name = false;
  int32_t number = 0;  // of the name, or the number itself
};

// NAME = OPERAND, or NAME = OPERAND SIGN OPERAND.
struct Statement {
  int32_t name = 0;
  std::vector<Operand> operands;
  int32_t sign = 0;
  int32_t value = 0;
};

class Math : public DocumentGenerator {
 public:
  Math(uint64_t seed, const GeneratorSettings& settings)
      : seed_(seed),
        modulus_(settings.number("modulus")),
        names_(settings.number("names")),
        most_(settings.number("operations")),
        least_(settings.number("least-operations")),
        signs_(settings.text("multiplication") == "true" ? 3 : 2),
        masked_(settings.text("targets") == "answers") {
    if (least_ > most_) {
      throw_bad_input("--least-operations ", least_, " is more than --operations ", most_, "; give --least-operations ",
                      most_, " or less");
    }
    if (most_ > names_) {
      throw_bad_input("--operations ", most_, " is more than --names ", names_, "; give --names ", most_, " or more");
    }
  }

  int32_t vocabulary() const override { return first_number() + modulus_; }
  // A statement has 6 tokens, its line of the solution 8, the question 3, the end 1.
  int32_t longest_document() const override { return most_ * 14 + 4; }
  std::string token_name(int32_t id) const override {
    if (id < kFirstName) return kSigns[static_cast<size_t>(id)];
    if (id >= first_number()) return std::to_string(id - first_number());
    const int32_t name = id - kFirstName;
    return names_ <= 26 ? std::string(1, static_cast<char>('a' + name)) : "p" + std::to_string(name);
  }

  GeneratedDocument document(uint64_t number) const override {
    Draws draws(seed_, "data.generate.math", number);
    const int32_t count = least_ + below(draws, most_ - least_ + 1);
    const std::vector<int32_t> names = draws.choose(names_, count);
    std::vector<Statement> statements;  // each after those that it uses
    for (int32_t i = 0; i < count; ++i) statements.push_back(draw_statement(draws, names, i, statements));
    std::vector<int32_t> order(names.size());  // numbers of the statements, as the problem lists them
    std::iota(order.begin(), order.end(), 0);
    draws.shuffle(order, order.size());
    const auto asked = static_cast<size_t>(count / 2 + below(draws, count - count / 2));

    GeneratedDocument made;
    for (const int32_t i : order) write(statements[static_cast<size_t>(i)], made.ids);
    made.ids.insert(made.ids.end(), {question, id_of_name(names[asked]), colon});
    const size_t problem = made.ids.size();
    write_solution(statements, order, asked, made.ids);
    if (masked_) {
      made.targets.assign(problem - 1, kNotCounted);
      made.targets.insert(made.targets.end(), made.ids.begin() + static_cast<ptrdiff_t>(problem), made.ids.end());
      made.targets.push_back(kEndOfGenerated);
    }
    return made;
  }

 private:
  static int32_t below(Draws& draws, int32_t m) { return static_cast<int32_t>(draws.below(static_cast<uint32_t>(m))); }
  int32_t first_number() const { return kFirstName + names_; }
  int32_t id_of_name(int32_t name) const { return kFirstName + name; }
  int32_t id_of_number(int32_t number) const { return first_number() + number; }
  int32_t id_of(const Operand& operand) const {
    return operand.is_name ? id_of_name(operand.number) : id_of_number(operand.number);
  }

  static const Statement& defining(int32_t name, const std::vector<Statement>& statements) {
    return *std::ranges::find(statements, name, &Statement::name);
  }
  static int32_t value_of(const Operand& operand, const std::vector<Statement>& statements) {
    return operand.is_name ? defining(operand.number, statements).value : operand.number;
  }

  // Draws statement number i; `earlier` are those before it.
  Statement draw_statement(Draws& draws, const std::vector<int32_t>& names, int32_t i,
                           const std::vector<Statement>& earlier) const {
    constexpr std::array<int32_t, 6> kNamesUsed = {0, 1, 1, 2, 2, 2};
    Statement made{.name = names[static_cast<size_t>(i)], .operands = {}};
    const int32_t used = std::min(i, kNamesUsed[static_cast<size_t>(below(draws, 6))]);
    for (const int32_t other : draws.choose(i, used))
      made.operands.push_back({true, names[static_cast<size_t>(other)]});
    const size_t operands = used == 0 ? 1 : 2;
    if (made.operands.size() < operands) made.operands.push_back({false, below(draws, modulus_)});
    if (operands == 1) {
      made.value = made.operands[0].number;
      return made;
    }
    if (below(draws, 2) == 1) std::swap(made.operands[0], made.operands[1]);
    made.sign = plus + below(draws, signs_);
    const int64_t left = value_of(made.operands[0], earlier), right = value_of(made.operands[1], earlier);
    const int64_t value = made.sign == plus    ? left + right
                          : made.sign == minus ? left - right + modulus_
                                               : left * right;
    made.value = static_cast<int32_t>(value % modulus_);
    return made;
  }

  void write(const Statement& statement, std::vector<int32_t>& ids) const {
    ids.insert(ids.end(), {id_of_name(statement.name), equals, id_of(statement.operands[0])});
    if (statement.operands.size() == 2) ids.insert(ids.end(), {statement.sign, id_of(statement.operands[1])});
    ids.push_back(stop);
  }

  // Writes what the question needs, each time the first statement of the problem that can be computed.
  void write_solution(const std::vector<Statement>& statements, const std::vector<int32_t>& order, size_t asked,
                      std::vector<int32_t>& ids) const {
    std::vector<bool> needed(statements.size()), done(statements.size());
    const auto number_of = [&](const Operand& operand) {
      return static_cast<size_t>(&defining(operand.number, statements) - statements.data());
    };
    needed[asked] = true;
    for (size_t i = statements.size(); i-- > 0;) {
      if (!needed[i]) continue;
      for (const Operand& operand : statements[i].operands) {
        if (operand.is_name) needed[number_of(operand)] = true;
      }
    }
    const auto can_be_computed = [&](int32_t i) {
      const auto number = static_cast<size_t>(i);
      return needed[number] && !done[number] &&
             std::ranges::all_of(statements[number].operands,
                                 [&](const Operand& operand) { return !operand.is_name || done[number_of(operand)]; });
    };
    while (!done[asked]) {
      const auto next = static_cast<size_t>(*std::ranges::find_if(order, can_be_computed));
      write_line(statements[next], statements, ids);
      done[next] = true;
    }
  }

  void write_line(const Statement& statement, const std::vector<Statement>& statements,
                  std::vector<int32_t>& ids) const {
    ids.insert(ids.end(), {id_of_name(statement.name), equals});
    if (statement.operands.size() == 2) {
      ids.insert(ids.end(), {id_of_number(value_of(statement.operands[0], statements)), statement.sign,
                             id_of_number(value_of(statement.operands[1], statements)), equals});
    }
    ids.insert(ids.end(), {id_of_number(statement.value), stop});
  }

  const uint64_t seed_;
  const int32_t modulus_, names_, most_, least_, signs_;
  const bool masked_;
};

}  // namespace

GeneratorKind math_kind() {
  return {.name = "math",
          .summary = "statements, a question and its solution step by step (after the paper's Appendix I)",
          .options =
              {{.name = "modulus", .help = "numbers are below this", .otherwise = "5", .low = 2, .high = 1000},
               {.name = "names", .help = "names that a problem draws from", .otherwise = "12", .low = 1, .high = 1000},
               {.name = "operations", .help = "most statements per problem", .otherwise = "4", .low = 1, .high = 1000},
               {.name = "least-operations",
                .help = "fewest statements per problem",
                .otherwise = "2",
                .low = 1,
                .high = 1000},
               {.name = "multiplication",
                .help = "true: also products; false: only sums and differences",
                .otherwise = "false",
                .choices = {"false", "true"}},
               {.name = "targets",
                .help = "answers: only the solution counts; all: every next token",
                .otherwise = "answers",
                .choices = {"answers", "all"}}},
          .make = [](uint64_t seed, const GeneratorSettings& settings) -> std::unique_ptr<DocumentGenerator> {
            return std::make_unique<Math>(seed, settings);
          }};
}

}  // namespace shiftron
