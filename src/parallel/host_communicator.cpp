// What all communicators of the host share: checks, counting, queues, and reductions built from exchanges of bytes.
#include "parallel/host_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>

#include "core/event.h"
#include "core/log.h"
#include "core/operands.h"
#include "core/sanitizer.h"
#include "parallel/end_of_stream.h"
#include "parallel/ordered_reduction.h"

namespace shiftron {
namespace {

// Above this size an all_reduce takes two steps, each of which moves a part per rank; below, one step moves everything.
constexpr int64_t kSmallBytes = 8 << 10;
// Large reductions go in blocks of this size, which bounds the staging and keeps it in the caches.
constexpr int64_t kBlockBytes = 4 << 20;

class Timer {
 public:
  explicit Timer(double& seconds) : seconds_(seconds) {}
  ~Timer() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void copy_bytes(const ConstTensor& from, const Tensor& to) {
  if (from.raw() != nullptr && from.raw() != to.raw()) {
    std::memmove(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
  }
}

// In a group of one.
Work copy_alone(Stream& stream, const ConstTensor& from, const Tensor& to) {
  const auto body = [from, to] {
    state_read(from);
    state_write(to);
    copy_bytes(from, to);
  };
  do_in(stream, body);
  return end_of(stream);
}

// A posted receive; waiting for it finishes it.
class PostedReceive : public Pending {
 public:
  PostedReceive(std::function<void()> finish, Ledger* ledger) : finish_(std::move(finish)), ledger_(ledger) {}
  void wait(Stream&) override { wait_on_host(); }
  void wait_on_host() override {
    if (finish_ == nullptr) return;
    const Timer timer(ledger_->times.wait);
    std::exchange(finish_, nullptr)();
  }

 private:
  std::function<void()> finish_;
  Ledger* ledger_;
};

}  // namespace

Work::~Work() {
  if (operation_ == nullptr || std::uncaught_exceptions() > 0) return;
  try {
    wait(*stream_);
  } catch (const std::exception& error) {
    print_to_stderr(std::string("communication failed, and nothing had waited for it: ") + error.what());
  }
}

Work& Work::operator=(Work&& other) {
  if (this != &other) {
    if (operation_ != nullptr) wait(*stream_);
    stream_ = other.stream_;
    operation_ = std::exchange(other.operation_, nullptr);
  }
  return *this;
}

void Work::wait(Stream& stream) {
  if (operation_ != nullptr) std::exchange(operation_, nullptr)->wait(stream);
}

void Work::wait_on_host() {
  if (operation_ != nullptr) std::exchange(operation_, nullptr)->wait_on_host();
}

CommunicatorCalls HostCommunicator::calls() const {
  return CommunicatorCalls(*this, moves_bytes() ? DeviceKind::cpu : DeviceKind::meta);
}

void HostCommunicator::count_staging(Stream& stream, int64_t bytes) {
  if (bytes <= staging_bytes_) return;
  stream.ledger->add_memory("communication", bytes - staging_bytes_);
  staging_bytes_ = bytes;
}

std::byte* HostCommunicator::staging(int64_t bytes) {
  if (bytes > static_cast<int64_t>(staging_.size())) staging_.resize(static_cast<size_t>(bytes));
  return staging_.data();
}

template <typename Body>
Work HostCommunicator::start(Stream& stream, ConstTensor read, Tensor written, Body body) {
  if (stream.queue == nullptr) {
    const Timer timer(stream.ledger->times.communication);
    body();
    return {};
  }
  if (queue_ == nullptr) queue_ = stream.queue->sibling(name() + ", rank " + std::to_string(rank()));
  Stream own{.ledger = stream.ledger, .queue = queue_.get()};
  Event operands;
  operands.record(stream);
  operands.wait(own);
  do_in(own, [read, written, body] {
    state_read(read);
    state_write(written);
    const sanitizer::Hidden hidden;  // ranks that meet do not order their queues
    body();
  });
  const auto operation = std::make_shared<EndOfStream>(own);
  read.pin(operation);
  written.pin(operation);
  return Work(stream, operation);
}

Work HostCommunicator::all_reduce(Stream& stream, InOut in_out, Reduction reduction) {
  const Tensor tensor = in_out.tensor;
  const bool moves = calls().all_reduce(stream, tensor, reduction);
  if (size() == 1 || tensor.bytes() == 0) return end_of(stream);
  const int64_t element = size_of(tensor.dtype());
  const int64_t block = std::max<int64_t>(kBlockBytes / (element * size()), 1);  // of each rank
  // Calls in_two(part) for blocks that go in two steps, and in_one(rest) for what is left.
  const auto split = [this, element, block](int64_t remaining, const auto& in_two, const auto& in_one) {
    while (remaining * element > kSmallBytes && remaining >= size()) {
      const int64_t part = std::min(remaining / size(), block);
      in_two(part);
      remaining -= part * size();
    }
    if (remaining > 0) in_one(remaining);
  };
  int64_t counted = tensor.count();  // whole blocks need the same staging, so most are skipped
  counted -= std::max<int64_t>(counted / (block * size()) - 2, 0) * block * size();
  split(
      counted, [&](int64_t part) { count_staging(stream, part * element * size()); },
      [&](int64_t rest) { count_staging(stream, rest * element * size()); });
  if (!moves) return {};
  return start(stream, {}, tensor, [this, tensor, reduction, element, split] {
    std::byte* data = static_cast<std::byte*>(tensor.raw());
    split(
        tensor.count(),
        [&](int64_t part) {
          std::byte* parts = staging(part * element * size());
          std::byte* own = data + rank() * part * element;
          exchange_all_to_all(data, part * element, parts, part * element);
          reduce_in_rank_order(tensor.dtype(), reduction, parts, size(), part, own);
          exchange_all_gather(own, data, part * element);
          data += part * element * size();
        },
        [&](int64_t rest) {
          std::byte* parts = staging(rest * element * size());
          exchange_all_gather(data, parts, rest * element);
          reduce_in_rank_order(tensor.dtype(), reduction, parts, size(), rest, data);
        });
  });
}

Work HostCommunicator::all_gather(Stream& stream, ConstTensor piece, Tensor whole) {
  const bool moves = calls().all_gather(stream, piece, whole);
  if (size() == 1) return copy_alone(stream, piece, whole);
  if (!moves) return {};
  return start(stream, piece, whole,
               [this, piece, whole] { exchange_all_gather(piece.raw(), whole.raw(), piece.bytes()); });
}

Work HostCommunicator::reduce_scatter(Stream& stream, ConstTensor whole, Tensor piece) {
  const bool moves = calls().reduce_scatter(stream, whole, piece);
  if (size() == 1) return copy_alone(stream, whole, piece);
  if (whole.bytes() == 0) return {};
  const int64_t element = size_of(piece.dtype());
  const int64_t block = std::max<int64_t>(kBlockBytes / (element * size()), 1);
  count_staging(stream, std::min(block, piece.count()) * element * size());
  if (!moves) return {};
  return start(stream, whole, piece, [this, whole, piece, element, block] {
    const std::byte* from = static_cast<const std::byte*>(whole.raw());
    std::byte* to = static_cast<std::byte*>(piece.raw());
    for (int64_t done = 0; done < piece.count(); done += block) {
      const int64_t part = std::min(block, piece.count() - done);
      std::byte* parts = staging(part * element * size());
      exchange_all_to_all(from + done * element, piece.bytes(), parts, part * element);
      reduce_in_rank_order(piece.dtype(), Reduction::sum, parts, size(), part, to + done * element);
    }
  });
}

Work HostCommunicator::all_to_all(Stream& stream, ConstTensor send, Tensor receive) {
  const bool moves = calls().all_to_all(stream, send, receive);
  if (size() == 1) return copy_alone(stream, send, receive);
  if (!moves) return {};
  return start(stream, send, receive, [this, send, receive] {
    exchange_all_to_all(send.raw(), send.bytes() / size(), receive.raw(), send.bytes() / size());
  });
}

Work HostCommunicator::broadcast(Stream& stream, InOut in_out, int root) {
  const Tensor tensor = in_out.tensor;
  if (!calls().broadcast(stream, tensor, root)) return end_of(stream);
  return start(stream, {}, tensor, [this, tensor, root] { exchange_broadcast(tensor.raw(), tensor.bytes(), root); });
}

Work HostCommunicator::send(Stream& stream, ConstTensor tensor, int to, int most_ahead) {
  if (!calls().send(stream, tensor, to)) return {};
  return start(stream, tensor, {}, [this, tensor, to, most_ahead] {
    if (most_ahead > 0) wait_for_receivers(to, most_ahead - 1);
    start_send(tensor.raw(), tensor.bytes(), to);
  });
}

Work HostCommunicator::recv(Stream& stream, Tensor tensor, int from) {
  if (!calls().recv(stream, tensor, from)) return {};
  if (stream.queue != nullptr) {
    return start(stream, {}, tensor, [this, tensor, from] { start_recv(tensor.raw(), tensor.bytes(), from)(); });
  }
  const auto operation = std::make_shared<PostedReceive>(start_recv(tensor.raw(), tensor.bytes(), from), stream.ledger);
  tensor.pin(operation);
  return Work(stream, operation);
}

void HostCommunicator::barrier() {
  if (size() > 1 && moves_bytes()) exchange_barrier();
}

std::string HostCommunicator::broadcast_text(const std::string& text, int root) {
  CHECK(root >= 0 && root < size(), name(), " broadcast_text: no rank ", root, " in a group of ", size());
  if (size() == 1 || !moves_bytes()) return text;
  int64_t length = static_cast<int64_t>(text.size());
  exchange_broadcast(&length, sizeof length, root);
  std::string result = rank() == root ? text : std::string(static_cast<size_t>(length), '\0');
  if (length > 0) exchange_broadcast(result.data(), length, root);
  return result;
}

std::vector<std::string> HostCommunicator::gather_text(const std::string& text, int root) {
  CHECK(root >= 0 && root < size(), name(), " gather_text: no rank ", root, " in a group of ", size());
  std::vector<std::string> texts;
  if (size() == 1 || !moves_bytes()) {
    if (rank() == root) texts.assign(static_cast<size_t>(size()), text);
    return texts;
  }
  const int64_t length = static_cast<int64_t>(text.size());
  std::vector<int64_t> lengths(static_cast<size_t>(size()));
  exchange_all_gather(&length, lengths.data(), sizeof length);
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (rank() == root) texts.resize(static_cast<size_t>(size()));
  // Every rank receives everything, in blocks: messages to the root could overtake tensors on their way to it.
  constexpr int64_t kTextBlock = 64 << 10;
  std::vector<char> piece(static_cast<size_t>(std::min(longest, kTextBlock)));
  std::vector<char> whole(piece.size() * static_cast<size_t>(size()));
  for (int64_t done = 0; done < longest; done += kTextBlock) {
    const int64_t mine = std::clamp<int64_t>(length - done, 0, kTextBlock);
    std::copy_n(text.data() + std::min(done, length), mine, piece.data());
    exchange_all_gather(piece.data(), whole.data(), static_cast<int64_t>(piece.size()));
    for (int rank = 0; rank < static_cast<int>(texts.size()); ++rank) {
      const auto source = static_cast<size_t>(rank);
      const int64_t theirs = std::clamp<int64_t>(lengths[source] - done, 0, kTextBlock);
      texts[source].append(whole.data() + source * piece.size(), static_cast<size_t>(theirs));
    }
  }
  return texts;
}

int HostCommunicator::place_in(const std::vector<int>& members) const {
  int place = -1;
  std::vector<char> seen(static_cast<size_t>(size()), 0);
  for (size_t i = 0; i < members.size(); ++i) {
    const int member = members[i];
    CHECK(member >= 0 && member < size(), name(), " split: no rank ", member, " in a group of ", size());
    char& before = seen[static_cast<size_t>(member)];
    CHECK(before == 0, name(), " split: rank ", member, " appears twice among the members");
    before = 1;
    if (member == rank()) place = static_cast<int>(i);
  }
  CHECK(place >= 0, name(), " split: rank ", rank(), " is not among the members");
  return place;
}

}  // namespace shiftron
