// ModelPieces: a model on one process, piece by piece (embedding, layers, head), so that a model of any depth needs the
// memory of only one layer, or of the head.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/stream.h"
#include "model/transformer.h"

namespace shiftron {

// Documents one after another. Each starts at position 0 and does not see the others.
struct PieceTexts {
  std::vector<int32_t> ids;
  std::vector<int64_t> lengths;  // of the documents; sum: the number of ids
};

class ModelPieces {
 public:
  // Parts of the error message when memory runs out: "BYTES bytes are needed PURPOSE; …, or INSTEAD".
  struct Words {
    std::string purpose, instead;
  };
  ModelPieces(const ModelConfig& model, NumberTypes types, const CpuOptions& cpu, PieceTexts texts, Words words);

  // Sets the parameters of a piece.
  using Fill = std::function<void(ParameterSet& set)>;
  // Computes piece −1 (the embedding), then 0, 1, … layers − 1, each from the rows of the previous one. `visit` is
  // called for the layer's attention. Throws Error(bad_input) if there is not enough memory.
  void forward(int64_t piece, const Fill& fill, const TransformerStage::AttentionVisitor& visit = {});
  // The residual stream after the last piece, [ids][hidden].
  const std::vector<double>& rows() const { return rows_; }
  // The head on the last layer's rows, one text at a time: logits [length of the text, vocab] A.
  void head(const Fill& fill, const std::function<void(size_t text, const Tensor& logits)>& visit) const;

  // Throws Error(bad_input) if there is not enough memory for one of the pieces.
  void require_memory() const;
  int64_t pieces() const { return model_.layers + 2; }

 private:
  class Piece;
  struct Plan {
    MemoryPlan arenas;
    int64_t bytes;  // total memory
  };
  StagePlace place_of(int64_t piece) const;
  PieceTexts texts_of(int64_t piece) const;  // that the piece processes at once
  Plan plan_of(int64_t piece) const;
  std::unique_ptr<Piece> make_piece(int64_t piece, Ledger& ledger, const Fill& fill) const;
  [[noreturn]] void refuse_memory(int64_t bytes) const;
  ModelConfig model_;
  NumberTypes types_;
  CpuOptions cpu_;
  PieceTexts texts_;
  Words words_;
  std::vector<double> rows_;
};

}  // namespace shiftron
