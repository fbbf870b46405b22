// SideStream: a second stream of a device, whose work need not stand behind that of the first.
#pragma once

#include <memory>
#include <string>

#include "core/stream.h"

namespace shiftron {

// Where `stream` has a queue, one with a sibling of it; else `stream` itself, which does everything at once.
class SideStream {
 public:
  SideStream(Stream& stream, const std::string& name);  // refers to the stream
  Stream& get() { return queue_ != nullptr ? own_ : stream_; }

 private:
  Stream& stream_;
  std::unique_ptr<Queue> queue_;
  Stream own_;
};

}  // namespace shiftron
