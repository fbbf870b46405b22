// Rows that documents share: a forward without backward scores several continuations of one context, whose rows are
// computed once outside of attention.
#pragma once

#include "kernels/kernels.h"
#include "parallel/run.h"

namespace shiftron {

// How attention sees the rows of the microbatch, or their copies if documents share rows.
inline AttentionShape attention_shape(const Run& run) {
  const bool shared = run.documents.copied_from.defined();
  return {.sequence_length = shared ? run.attending_rows() : run.sequence_length, .documents = run.documents.cut};
}

// Calls attend(raw, attended), whose rows are the attending rows. raw: what they are made of, and attended: the result,
// [rows, n] each of the microbatch. Rows that documents share are copied into each of them first.
template <typename Attend>
void attend_by_document(Run& run, const Tensor& raw, const Tensor& attended, const Attend& attend) {
  const Documents& documents = run.documents;
  if (!documents.copied_from.defined()) return attend(raw, attended);
  CHECK(!run.training, "documents cannot share rows in a training step");
  ArenaScope scope(run.scratch);
  const int64_t rows = run.attending_rows();
  const Tensor copied_raw = run.scratch.allocate(raw.dtype(), {rows, raw.extent(1)});
  const Tensor copied_attended = run.scratch.allocate(attended.dtype(), {rows, attended.extent(1)});
  embedding_forward(run.stream, documents.copied_from, raw, 0, copied_raw);
  attend(copied_raw, copied_attended);
  embedding_forward(run.stream, documents.kept_from, copied_attended, 0, attended);
}

}  // namespace shiftron
