// What a library was chosen to do for each shape on one device; can be stored and loaded.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "kernels/foreign_choices.h"

namespace shiftron {

// Choices are valid only for one version of the library on one device.
template <typename Shape, typename Choice>
struct Choices {
  std::string device;
  int64_t library = 0;  // version
  std::map<Shape, Choice> of;
  bool operator==(const Choices&) const = default;

  // Takes the choices of `other`, which override its own. Throws ForeignChoices if they are for another device or
  // version; `what` and `library_name` appear in the message.
  void adopt(const Choices& other, const char* what, const char* library_name) {
    if (other.device != device || other.library != library) {
      throw ForeignChoices(detail::concatenate(what, " chosen on ", other.device, " with ", library_name, " ",
                                               other.library, ", but this is ", device, " with ", library));
    }
    for (const auto& [shape, choice] : other.of) of.insert_or_assign(shape, choice);
  }
  // Takes the choices of `other` for shapes that have none; nothing if they are for another device or version.
  void complete(const Choices& other) {
    if (other.device == device && other.library == library) of.insert(other.of.begin(), other.of.end());
  }
};

}  // namespace shiftron
