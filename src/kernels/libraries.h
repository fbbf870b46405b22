// State of a backend's libraries for one stream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/memory.h"
#include "kernels/attention_choices.h"
#include "kernels/product_choices.h"

namespace shiftron {

struct LibraryChoices {
  ProductChoices products;
  AttentionChoices attention;
};

// Handles, plans and a workspace of one stream's libraries, and the algorithm chosen for each shape.
class KeptLibraries {
 public:
  virtual ~KeptLibraries() = default;
  virtual void time_candidates(bool timed) = 0;
  virtual LibraryChoices choices() const = 0;
  virtual void adopt(const LibraryChoices& choices) = 0;
  virtual std::vector<std::string> refusals() const = 0;
  virtual std::vector<std::string> untimed() const = 0;
};

// On a GPU the ledger counts their workspace under "workspace"; on a CPU there are none. The stream's context points to
// them, so they must outlive the stream's last operation.
class Libraries {
 public:
  explicit Libraries(Stream& stream);

  // While true, the first call of a shape without a choice times the library's candidates and waits for them. While
  // false (the default), such a shape takes the library's first candidate.
  void time_candidates(bool timed);
  // The choices so far, as JSON; "" on a CPU.
  std::string choices() const;
  // From now on shapes use these choices, including shapes that already had one; whatever that needs is built here.
  // Throws ForeignChoices if they are for another device or version, round twice, or are not valid text (the message
  // then begins with `source`). On a CPU this does nothing.
  void adopt(const std::string& choices, const std::string& source);
  // What the libraries do not support, so that our own slower kernels do it, and why.
  std::vector<std::string> refusals() const;
  // What should have been timed but was not, and why.
  std::vector<std::string> untimed() const;

 private:
  Buffer workspace_;
  std::unique_ptr<KeptLibraries> kept_;
};

// Joins texts of choices(): for each shape, the choice of the first text that has one, among texts with the first
// text's device and versions; "" if the first text is "".
std::string joined_choices(const std::vector<std::string>& texts);

namespace cuda {  // only in builds that have it (kHasCuda)
std::unique_ptr<KeptLibraries> keep_libraries(CudaContext& context, Tensor workspace);
}

}  // namespace shiftron
