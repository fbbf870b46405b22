// What all communicators share: checks, counting, and reductions built from exchanges of bytes.
#include "parallel/communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <iostream>

#include "parallel/ordered_reduction.h"

namespace shiftron {
namespace {

// Above this an all_reduce goes in two steps, each of which moves a part per rank; below, one step moves everything.
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

void copy(const ConstTensor& from, const Tensor& to) {
  if (from.raw() != nullptr && from.raw() != to.raw()) {
    std::memmove(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
  }
}

}  // namespace

Work::~Work() {
  if (finish_ == nullptr || std::uncaught_exceptions() > 0) return;
  try {
    wait();
  } catch (const std::exception& error) {
    std::cerr << "communication that nobody waited for failed: " << error.what() << std::endl;
  }
}

Work& Work::operator=(Work&& other) {
  if (this != &other) {
    wait();
    finish_ = std::exchange(other.finish_, nullptr);
  }
  return *this;
}

void Work::wait() {
  if (finish_ != nullptr) std::exchange(finish_, nullptr)();
}

void Communicator::check(const Stream& stream, const ConstTensor& tensor, int peer, const char* operation) const {
  CHECK(stream.ledger != nullptr, name_, " ", operation, " needs a ledger");
  CHECK(tensor.defined(), name_, " ", operation, " of an undefined tensor");
  tensor.check_alive();
  CHECK(tensor.contiguous(), name_, " ", operation, " of a tensor that is not contiguous: ", tensor.shape().text());
  CHECK(tensor.device() == (moves_bytes() ? DeviceKind::cpu : DeviceKind::meta) ||
            (size_ == 1 && tensor.device() == DeviceKind::meta),
        name_, " ", operation, " of a tensor on ", name_of(tensor.device()));
  CHECK(peer >= 0 && peer < size_, name_, " ", operation, ": no rank ", peer, " in a group of ", size_);
}

bool Communicator::begin(Stream& stream, const char* operation, int64_t bytes_handed_over, int64_t bytes) const {
  if (size_ == 1) return false;
  stream.ledger->add_traffic(name_, operation, bytes_handed_over);
  return bytes > 0;
}

std::byte* Communicator::staging(Stream& stream, int64_t bytes) {
  if (bytes > staging_bytes_) {
    stream.ledger->add_memory("communication", bytes - staging_bytes_);
    staging_bytes_ = bytes;
    if (moves_bytes()) staging_.resize(static_cast<size_t>(bytes));
  }
  return staging_.data();
}

Work Communicator::all_reduce(Stream& stream, InOut in_out, Reduction reduction) {
  const Tensor tensor = in_out.tensor;
  check(stream, tensor, 0, "all_reduce");
  CHECK(tensor.dtype() != DType::uint8 || reduction == Reduction::max, name_, " all_reduce: uint8 has no sum");
  if (!begin(stream, "all_reduce", tensor.bytes(), tensor.bytes())) return {};
  const Timer timer(stream.ledger->times.communication);
  const int64_t element = size_of(tensor.dtype());
  std::byte* data = static_cast<std::byte*>(tensor.raw());
  int64_t remaining = tensor.count();
  const int64_t block = std::max<int64_t>(kBlockBytes / (element * size_), 1);  // of each rank
  // On meta whole blocks, which take the same staging, are not all gone through.
  if (!moves_bytes()) remaining -= std::max<int64_t>(remaining / (block * size_) - 2, 0) * block * size_;
  while (remaining * element > kSmallBytes && remaining >= size_) {
    const int64_t part = std::min(remaining / size_, block);
    std::byte* parts = staging(stream, part * element * size_);
    if (moves_bytes()) {
      std::byte* own = data + rank_ * part * element;
      exchange_all_to_all(data, part * element, parts, part * element);
      reduce_in_rank_order(tensor.dtype(), reduction, parts, size_, part, own);
      exchange_all_gather(own, data, part * element);
      data += part * element * size_;
    }
    remaining -= part * size_;
  }
  if (remaining > 0) {
    std::byte* parts = staging(stream, remaining * element * size_);
    if (moves_bytes()) {
      exchange_all_gather(data, parts, remaining * element);
      reduce_in_rank_order(tensor.dtype(), reduction, parts, size_, remaining, data);
    }
  }
  return {};
}

Work Communicator::all_gather(Stream& stream, ConstTensor piece, Tensor whole) {
  check(stream, piece, 0, "all_gather");
  check(stream, whole, 0, "all_gather");
  CHECK(piece.dtype() == whole.dtype() && piece.count() * size_ == whole.count(), name_, " all_gather: ", size_,
        " pieces of ", piece.shape().text(), " do not make ", whole.shape().text());
  if (size_ == 1) copy(piece, whole);
  if (!begin(stream, "all_gather", piece.bytes(), moves_bytes() ? piece.bytes() : 0)) return {};
  const Timer timer(stream.ledger->times.communication);
  exchange_all_gather(piece.raw(), whole.raw(), piece.bytes());
  return {};
}

Work Communicator::reduce_scatter(Stream& stream, ConstTensor whole, Tensor piece) {
  check(stream, whole, 0, "reduce_scatter");
  check(stream, piece, 0, "reduce_scatter");
  CHECK(piece.dtype() == whole.dtype() && piece.count() * size_ == whole.count(), name_, " reduce_scatter: ",
        whole.shape().text(), " is not ", size_, " pieces of ", piece.shape().text());
  CHECK(piece.dtype() != DType::uint8, name_, " reduce_scatter: uint8 has no sum");
  if (size_ == 1) copy(whole, piece);
  if (!begin(stream, "reduce_scatter", whole.bytes(), whole.bytes())) return {};
  const Timer timer(stream.ledger->times.communication);
  const int64_t element = size_of(piece.dtype());
  const int64_t block = std::max<int64_t>(kBlockBytes / (element * size_), 1);
  const std::byte* from = static_cast<const std::byte*>(whole.raw());
  std::byte* to = static_cast<std::byte*>(piece.raw());
  for (int64_t done = 0; done < piece.count(); done += block) {
    const int64_t part = std::min(block, piece.count() - done);
    std::byte* parts = staging(stream, part * element * size_);
    if (!moves_bytes()) break;  // the first block is the largest
    exchange_all_to_all(from + done * element, piece.bytes(), parts, part * element);
    reduce_in_rank_order(piece.dtype(), Reduction::sum, parts, size_, part, to + done * element);
  }
  return {};
}

Work Communicator::all_to_all(Stream& stream, ConstTensor send, Tensor receive) {
  check(stream, send, 0, "all_to_all");
  check(stream, receive, 0, "all_to_all");
  CHECK(send.dtype() == receive.dtype() && send.count() == receive.count() && send.count() % size_ == 0, name_,
        " all_to_all of ", send.shape().text(), " into ", receive.shape().text(), " among ", size_);
  if (size_ == 1) copy(send, receive);
  if (!begin(stream, "all_to_all", send.bytes(), moves_bytes() ? send.bytes() : 0)) return {};
  const Timer timer(stream.ledger->times.communication);
  exchange_all_to_all(send.raw(), send.bytes() / size_, receive.raw(), send.bytes() / size_);
  return {};
}

Work Communicator::broadcast(Stream& stream, InOut in_out, int root) {
  const Tensor tensor = in_out.tensor;
  check(stream, tensor, root, "broadcast");
  if (!begin(stream, "broadcast", rank_ == root ? tensor.bytes() : 0, moves_bytes() ? tensor.bytes() : 0)) return {};
  const Timer timer(stream.ledger->times.communication);
  exchange_broadcast(tensor.raw(), tensor.bytes(), root);
  return {};
}

Work Communicator::send(Stream& stream, ConstTensor tensor, int to) {
  check(stream, tensor, to, "send");
  CHECK(to != rank_, name_, " send: rank ", rank_, " sends to itself");
  if (!begin(stream, "send", tensor.bytes(), moves_bytes() ? tensor.bytes() : 0)) return {};
  const Timer timer(stream.ledger->times.communication);
  start_send(tensor.raw(), tensor.bytes(), to);
  return {};
}

Work Communicator::recv(Stream& stream, Tensor tensor, int from) {
  check(stream, tensor, from, "recv");
  CHECK(from != rank_, name_, " recv: rank ", rank_, " receives from itself");
  if (!begin(stream, "recv", 0, moves_bytes() ? tensor.bytes() : 0)) return {};
  return Work([finish = start_recv(tensor.raw(), tensor.bytes(), from), ledger = stream.ledger] {
    const Timer timer(ledger->times.wait);
    finish();
  });
}

void Communicator::barrier() {
  if (size_ > 1 && moves_bytes()) exchange_barrier();
}

std::string Communicator::broadcast_text(const std::string& text, int root) {
  CHECK(root >= 0 && root < size_, name_, " broadcast_text: no rank ", root, " in a group of ", size_);
  if (size_ == 1 || !moves_bytes()) return text;
  int64_t length = static_cast<int64_t>(text.size());
  exchange_broadcast(&length, sizeof length, root);
  std::string result = rank_ == root ? text : std::string(static_cast<size_t>(length), '\0');
  if (length > 0) exchange_broadcast(result.data(), length, root);
  return result;
}

std::vector<std::string> Communicator::gather_text(const std::string& text, int root) {
  CHECK(root >= 0 && root < size_, name_, " gather_text: no rank ", root, " in a group of ", size_);
  std::vector<std::string> texts;
  if (size_ == 1 || !moves_bytes()) {
    if (rank_ == root) texts.assign(static_cast<size_t>(size_), text);
    return texts;
  }
  const int64_t length = static_cast<int64_t>(text.size());
  std::vector<int64_t> lengths(static_cast<size_t>(size_));
  exchange_all_gather(&length, lengths.data(), sizeof length);
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (rank_ == root) texts.resize(static_cast<size_t>(size_));
  // Everyone receives everything, in blocks: messages to the root could overtake tensors under way to it.
  constexpr int64_t kTextBlock = 64 << 10;
  std::vector<char> piece(static_cast<size_t>(std::min(longest, kTextBlock)));
  std::vector<char> whole(piece.size() * static_cast<size_t>(size_));
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

int Communicator::place_in(const std::vector<int>& members) const {
  int place = -1;
  std::vector<char> seen(static_cast<size_t>(size_), 0);
  for (size_t i = 0; i < members.size(); ++i) {
    const int member = members[i];
    CHECK(member >= 0 && member < size_, name_, " split: no rank ", member, " in a group of ", size_);
    char& before = seen[static_cast<size_t>(member)];
    CHECK(before == 0, name_, " split: rank ", member, " stands twice among the members");
    before = 1;
    if (member == rank_) place = static_cast<int>(i);
  }
  CHECK(place >= 0, name_, " split: rank ", rank_, " is not among the members");
  return place;
}

}  // namespace shiftron
