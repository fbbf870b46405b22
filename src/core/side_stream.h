// SideStream: a second stream of a device, whose work does not have to wait for that of the first.
#pragma once

#include <memory>
#include <string>

#include "core/stream.h"

namespace shiftron {

// If `stream` has a queue, a stream with a sibling of it; otherwise `stream` itself, which does everything at once.
class SideStream {
 public:
  SideStream(Stream& stream, const std::string& name);  // keeps a reference to the stream
  Stream& get() { return queue_ != nullptr ? own_ : stream_; }

 private:
  Stream& stream_;
  std::unique_ptr<Queue> queue_;
  Stream own_;
};

}  // namespace shiftron
