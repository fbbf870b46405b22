// What a backend's libraries keep for one stream.
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

// Handles, plans and a workspace of one stream's libraries, and the algorithm that each shape got.
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
// them, until behind the stream's last operation they go.
class Libraries {
 public:
  explicit Libraries(Stream& stream);

  // While true the first call of a shape without a choice times the library's candidates and waits for them. Else (as
  // it begins) such a shape takes the library's first candidate.
  void time_candidates(bool timed);
  // What shapes got so far, as JSON; "" on a CPU.
  std::string choices() const;
  // From now on shapes take these, those made before too, and what they need for it is made here. ForeignChoices where
  // they are of another device or version, round twice, or no such text, which begins with `source` then; CPU: nothing.
  void adopt(const std::string& choices, const std::string& source);
  // What the libraries do not serve, so that slower kernels of our own do it, and why.
  std::vector<std::string> refusals() const;
  // What was not timed though it was to be, and why.
  std::vector<std::string> untimed() const;

 private:
  Buffer workspace_;
  std::unique_ptr<KeptLibraries> kept_;
};

// Of texts of choices(), for each shape that of the first which has one, among those of the first text's device and
// versions; "" where that is "".
std::string joined_choices(const std::vector<std::string>& texts);

namespace cuda {  // only in builds that have it (kHasCuda)
std::unique_ptr<KeptLibraries> keep_libraries(CudaContext& context, Tensor workspace);
}

}  // namespace shiftron
