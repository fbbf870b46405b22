// Data without text: kinds of documents whose tokens follow a rule. Document n is a function of (seed, options, n).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/shard.h"

namespace shiftron {

constexpr int32_t kEndOfGenerated = 0;  // the end-of-document id of every kind

struct GeneratedDocument {
  std::vector<int32_t> ids;      // without the end-of-document id
  std::vector<int32_t> targets;  // what is to be predicted at each id, or kNotCounted; empty: the next token
};

// One option of a kind: a whole number, or one of `choices`.
struct GeneratorOption {
  std::string name;  // "pool"
  std::string help;
  std::string otherwise;  // its default value
  int64_t low = 0, high = 0;
  std::vector<std::string> choices = {};
};

class DocumentGenerator;
class GeneratorSettings;

struct GeneratorKind {
  std::string name;     // "induction"
  std::string summary;  // one line
  std::vector<GeneratorOption> options;
  // Throws Error(bad_input) if options contradict each other.
  std::unique_ptr<DocumentGenerator> (*make)(uint64_t seed, const GeneratorSettings& settings);
};

// The values of all options of a kind.
class GeneratorSettings {
 public:
  // `given`: option to value. Throws one Error(bad_input) that names every value out of range and every option that the
  // kind does not have.
  GeneratorSettings(const GeneratorKind& kind, std::map<std::string, std::string> given);
  int32_t number(const std::string& name) const;
  const std::string& text(const std::string& name) const { return values_.at(name); }

 private:
  std::map<std::string, std::string> values_;
};

// Stateless: every function may be called by several threads at once.
class DocumentGenerator {
 public:
  virtual ~DocumentGenerator() = default;
  virtual int32_t vocabulary() const = 0;        // ids are 0 … vocabulary() − 1
  virtual int32_t longest_document() const = 0;  // most ids of a document, including the end-of-document id
  virtual GeneratedDocument document(uint64_t number) const = 0;
  virtual std::string token_name(int32_t id) const = 0;  // for people; without blanks
};

}  // namespace shiftron
