// A box as text, for messages and for names of datasets.
#include "parallel/parameter.h"

namespace shiftron {

std::string Box::text() const {
  std::string text;
  for (int dim = 0; dim < offset.dims(); ++dim) text += (dim == 0 ? "" : ",") + std::to_string(offset[dim]);
  return text;
}

}  // namespace shiftron
