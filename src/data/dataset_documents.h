// Documents of datasets, to be written to another one in their order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/hdf5_file.h"
#include "data/dataset.h"
#include "data/ordered_documents.h"

namespace shiftron {

// The documents of one dataset after the other. Every block that is read is checked. Memory: a few blocks, whatever the
// sizes of datasets and documents. For one thread.
class DatasetDocuments : public OrderedDocuments {
 public:
  // merge_datasets() says what the datasets must have in common. takes: whether the document of this number, counted
  // from 0 over all datasets, is wanted; null = all are.
  DatasetDocuments(std::vector<Dataset>& datasets, std::function<bool(int64_t number)> takes = {});
  ~DatasetDocuments() override;

  bool has_targets() const override;
  bool has_ends() const override { return true; }
  // Without the end tokens that fill the windows of packed data.
  std::optional<Document> next() override;
  int64_t read(const Document& document, int64_t first, int64_t count, const Piece& piece) override;

 private:
  class Borders;
  class Window;
  int64_t without_filling(size_t dataset, int64_t first, int64_t tokens);

  std::vector<Dataset>& datasets_;
  const std::function<bool(int64_t)> takes_;
  std::unique_ptr<Borders> borders_;
  std::unique_ptr<Window> ahead_, tokens_, targets_;  // of next(); of read()
  size_t dataset_ = 0;                                // of the next document
  int64_t number_ = 0;                                // of the next document, over all datasets
};

}  // namespace shiftron
