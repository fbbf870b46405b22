// A unigram model: of all ways to cut a word into pieces, the one whose scores have the largest sum.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/hugging_face/token_model.h"

namespace shiftron {

// Characters without a piece are bytes, or the unknown token; adjacent ones are one.
class UnigramModel : public TokenModel {
 public:
  UnigramModel(const JsonPart& part, const TokenModelOptions& options);
  std::unique_ptr<Scratch> make_scratch() const override;
  void encode(std::string_view word, std::vector<int32_t>& ids, Scratch& scratch) const override;
  bool can_cut_before(std::string_view) const override { return false; }  // sums are rounded from the text's beginning

 private:
  struct Work;
  // A node of the tree of all pieces; its children are adjacent, in the order of their bytes.
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;
    uint8_t byte = 0;    // that leads to it
    int32_t piece = -1;  // that ends here
  };
  void build_tree(std::vector<std::pair<std::string, int32_t>> pieces);
  const Node* child_of(const Node& node, char byte) const;
  void add_unknown(std::string_view text, std::vector<int32_t>& ids) const;

  std::vector<Node> nodes_;
  std::vector<double> scores_;
  double lowest_ = 0;
  int32_t unknown_ = -1;
  bool falls_back_;
};

}  // namespace shiftron
