#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "kernels/cpu_loops.h"
#include "kernels/matrix_product.h"
#include "kernels/matrix_unit.h"
#include "kernels/tile_panels.h"
#include "kernels/tile_product.h"

namespace shiftron::fast {
namespace {

using Cut = MatrixProductCut;

constexpr int64_t kTileWords = Cut::kTile * Cut::kTile;
constexpr int64_t kTileRowBytes = 64;
constexpr int64_t kStepBytes = Cut::kStepWords * 4;
// For a first-level cache of 48 KiB: a panel of b takes 32 KiB, so that a streams past it. A strip of a may take all of
// it, which still costs less than writing results in many places.
constexpr int64_t kDepthSteps = 16, kStripSteps = 24;
constexpr int64_t kHeldBytes = int64_t{768} << 10;  // of either whole operand, in the second-level cache
constexpr int64_t kMostRows = 256, kFewerRows = 128;
constexpr int64_t kTaskRows = 512;
constexpr int64_t kFewestBlocks = 4;  // per task, at least, if tasks shrink to give each thread as many
constexpr int64_t kGroupPanels = 32;  // whose sums a thread holds (1 MiB) if rows are not packed whole

constexpr int64_t blocks_of(int64_t count) {
  return (count + Cut::kBlock - 1) / Cut::kBlock;
}

// Prefetches memory into the second-level cache, evenly over a number of calls: rows of `row_bytes` bytes, `stride`
// bytes apart.
class ReadAhead {
 public:
  ReadAhead(const void* first, int64_t rows, int64_t row_bytes, int64_t stride, int64_t calls)
      : at_(static_cast<const char*>(first)),
        row_lines_((row_bytes + kCacheLine - 1) / kCacheLine),
        left_of_row_(row_lines_),
        to_next_row_(stride - row_lines_ * kCacheLine),
        left_(rows * row_lines_),
        lines_of_call_((left_ + calls - 1) / calls) {}
  void next() {
    for (int64_t i = std::min(lines_of_call_, left_); i > 0; --i) {
      __builtin_prefetch(at_, 0, 2);
      at_ += kCacheLine;
      if (--left_of_row_ > 0) continue;
      left_of_row_ = row_lines_;
      at_ += to_next_row_;
    }
    left_ = std::max<int64_t>(0, left_ - lines_of_call_);
  }

 private:
  const char* at_;
  int64_t row_lines_, left_of_row_, to_next_row_, left_, lines_of_call_;
};

// A thread's state: the unit, configured for whole tiles, and its part of the scratch.
template <typename Unit>
struct Worker {
  Worker(const Cut& cut, uint32_t* memory) : left(memory), sums(reinterpret_cast<float*>(memory + cut.left_words())) {
    unit.configure(TileConfiguration::whole());
  }
  ~Worker() { unit.release(); }  // the library configures its own tiles on this thread
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Unit unit;
  uint32_t* left;
  float* sums;
  alignas(64) float block[Cut::kBlockSums];
  Result::Block
      unwritten;  // summed, not yet in c: written while the next block is summed, before those sums are stored
};

// Tile numbers: 0 to 3 are sums, row by row; 4 and 5 are of a, 6 and 7 of b.
template <typename Body>
void for_sums(const Body& body) {
  body.template operator()<0>(0);
  body.template operator()<1>(Cut::kTile);
  body.template operator()<2>(Cut::kTile * Cut::kBlock);
  body.template operator()<3>(Cut::kTile * Cut::kBlock + Cut::kTile);
}

// Loads a tile of an operand. A tile that need not stay in the first-level cache does not evict those that must.
template <int tile, bool cached, typename Unit>
void load_operand(Unit& unit, const uint32_t* from) {
  if constexpr (cached)
    unit.template load<tile>(from, kTileRowBytes);
  else
    unit.template load_once<tile>(from, kTileRowBytes);
}

enum class KeptOperand {
  left,
  right
};  // the operand that stays in the first-level cache while blocks of the other one pass

// sums [32, 32] = left · right + keep · sums over `steps` steps; between(step) is called in the middle of each step.
template <KeptOperand cached, typename Unit, typename Between>
void multiply(Unit& unit, const uint32_t* left, const uint32_t* right, int64_t steps, bool keep, float* sums,
              const Between& between) {
  constexpr int64_t kSumBytes = Cut::kBlock * static_cast<int64_t>(sizeof(float));
  for_sums(
      [&]<int sum>(int64_t at) { keep ? unit.template load<sum>(sums + at, kSumBytes) : unit.template zero<sum>(); });
  for (int64_t step = 0; step < steps; ++step, left += Cut::kStepWords, right += Cut::kStepWords) {
    load_operand<4, cached == KeptOperand::left>(unit, left);
    load_operand<6, cached == KeptOperand::right>(unit, right);
    unit.template multiply<0, 4, 6>();
    load_operand<7, cached == KeptOperand::right>(unit, right + kTileWords);
    unit.template multiply<1, 4, 7>();
    between(step);
    load_operand<5, cached == KeptOperand::left>(unit, left + kTileWords);
    unit.template multiply<2, 5, 6>();
    unit.template multiply<3, 5, 7>();
  }
  for_sums([&]<int sum>(int64_t at) { unit.template store<sum>(sums + at, kSumBytes); });
}

template <typename Unit>
class Product {
 public:
  Product(const MatrixProduct& product, const Tensor& room)
      : of_(product),
        cut_(product.threads, product.m, product.n, product.k),
        result_{product.c, product.c_dtype, product.c_stride, product.keep},
        // Aligned, because a tile row in two cache lines takes two loads.
        right_(at_cache_line(static_cast<uint32_t*>(room.raw()))) {
    CHECK(room.bytes() >= cut_.bytes(), "a product needs more scratch than ", room.bytes());
  }

  void run() const {
    pack_right_panels(of_.threads, of_.b, of_.k, of_.n, right_);
    uint32_t* memory = right_ + cut_.right_words();
    const int64_t words = cut_.left_words() + cut_.sums();
    parallel_dynamic(
        of_.threads, cut_.row_tasks * cut_.groups,
        [&](int thread) { return Worker<Unit>(cut_, memory + thread * words); },
        [&](int64_t task, Worker<Unit>& worker) {
          // All strips are multiplied by one group of panels, which stays in the second-level cache, before the next
          // group.
          cut_.order == Cut::Order::strips ? run_task(task % cut_.row_tasks, task / cut_.row_tasks, worker)
                                           : run_task(task / cut_.groups, task % cut_.groups, worker);
        });
  }

 private:
  const uint32_t* right(int64_t panel, int64_t depth) const {
    return right_ + (panel * cut_.steps + cut_.first_step(depth)) * Cut::kStepWords;
  }
  int64_t steps_of(int64_t depth) const { return cut_.first_step(depth + 1) - cut_.first_step(depth); }

  void run_task(int64_t row_task, int64_t group, Worker<Unit>& worker) const {
    const int64_t end = std::min(of_.m, cut_.first_row(row_task + 1));
    for (int64_t row = cut_.first_row(row_task); row < end; row += cut_.rows) {
      const int64_t rows = std::min(cut_.rows, end - row);
      switch (cut_.order) {
        case Cut::Order::strips:
          strip(row, rows, end, group, worker);
          break;
        case Cut::Order::whole_rows:
          whole_rows(row, rows, group, worker);
          break;
        case Cut::Order::parts_of_rows:
          parts_of_rows(row, rows, group, worker);
          break;
      }
    }
    result_.turn(worker.unwritten, {}, 0, Cut::kBlock);
    worker.unwritten = {};
  }

  // A block of rows in their whole depth, one panel of b after another; the task's next rows are prefetched meanwhile.
  void strip(int64_t row, int64_t rows, int64_t task_end, int64_t group, Worker<Unit>& worker) const {
    pack_left_blocks(of_.a, row, rows, 0, of_.k, worker.left, cut_.steps);
    const int64_t begin = cut_.first_panel(group), end = cut_.first_panel(group + 1);
    const int64_t next = of_.a.transposed ? 0 : std::min(cut_.rows, task_end - row - rows);
    ReadAhead next_rows(static_cast<const bfloat16*>(of_.a.data) + (row + rows) * of_.a.stride, next, 2 * of_.k,
                        2 * of_.a.stride, (end - begin) * cut_.steps);
    for (int64_t panel = begin; panel < end; ++panel) {
      run_blocks<KeptOperand::left>(row, rows, panel, 0, worker.left, cut_.steps, nullptr, worker,
                                    [&] { next_rows.next(); });
    }
  }

  // Rows of a in their whole depth, one panel of b after another.
  void whole_rows(int64_t row, int64_t rows, int64_t group, Worker<Unit>& worker) const {
    pack_left_blocks(of_.a, row, rows, 0, of_.k, worker.left, cut_.steps);
    const int64_t begin = cut_.first_panel(group), end = cut_.first_panel(group + 1), blocks = blocks_of(rows);
    for (int64_t panel = begin; panel < end; ++panel) {
      for (int64_t depth = 0; depth < cut_.depths; ++depth) {
        const bool last = depth + 1 == cut_.depths;
        const bool more = !last || panel + 1 < end;
        ReadAhead next_right(last ? right(panel + 1, 0) : right(panel, depth + 1), more ? 1 : 0,
                             steps_of(last ? 0 : depth + 1) * kStepBytes, 0, blocks * steps_of(depth));
        run_blocks<KeptOperand::right>(row, rows, panel, depth, worker.left + cut_.first_step(depth) * Cut::kStepWords,
                                       cut_.steps, worker.sums, worker, [&] { next_right.next(); });
      }
    }
  }

  // One depth of a's rows after another, for all panels of the group, whose sums are held meanwhile.
  void parts_of_rows(int64_t row, int64_t rows, int64_t group, Worker<Unit>& worker) const {
    const int64_t begin = cut_.first_panel(group), end = cut_.first_panel(group + 1), blocks = blocks_of(rows);
    for (int64_t depth = 0; depth < cut_.depths; ++depth) {
      const int64_t first = cut_.first_step(depth) * Cut::kBlock, steps = steps_of(depth);
      pack_left_blocks(of_.a, row, rows, first, std::min(of_.k - first, steps * Cut::kBlock), worker.left, steps);
      for (int64_t panel = begin; panel < end; ++panel) {
        ReadAhead next_right(right(panel + 1, depth), panel + 1 < end ? 1 : 0, steps * kStepBytes, 0, blocks * steps);
        run_blocks<KeptOperand::right>(row, rows, panel, depth, worker.left, steps,
                                       worker.sums + (panel - begin) * blocks_of(cut_.rows) * Cut::kBlockSums, worker,
                                       [&] { next_right.next(); });
      }
    }
  }

  // Adds one depth of a panel to the blocks of c in these rows. `left`: blocks are left_steps steps apart. `sums`: of
  // these blocks, or null if there is only one depth.
  template <KeptOperand cached, typename Ahead>
  void run_blocks(int64_t row, int64_t rows, int64_t panel, int64_t depth, const uint32_t* left, int64_t left_steps,
                  float* sums, Worker<Unit>& worker, const Ahead& read_ahead) const {
    const int64_t steps = steps_of(depth), column = panel * Cut::kBlock;
    const int64_t rows_of_step = (Cut::kBlock + steps - 1) / steps;
    const bool last = depth + 1 == cut_.depths;
    for (int64_t block = 0; block < blocks_of(rows); ++block) {
      const int64_t first = block * Cut::kBlock;
      float* own_sums = sums == nullptr ? worker.block : sums + block * Cut::kBlockSums;
      Result::Block own;
      if (last) own = result_.block(own_sums, row + first, std::min(Cut::kBlock, rows - first), column, of_.n);
      multiply<cached>(worker.unit, left + block * left_steps * Cut::kStepWords, right(panel, depth), steps, depth > 0,
                       own_sums, [&](int64_t step) {
                         result_.turn(worker.unwritten, own, step * rows_of_step, (step + 1) * rows_of_step);
                         read_ahead();
                       });
      worker.unwritten = own;
    }
  }

  const MatrixProduct& of_;
  Cut cut_;
  Result result_;
  uint32_t* right_;
};

bool in_words(const Matrix& matrix, int64_t depth) {
  return depth % 2 == 0 && matrix.stride % 2 == 0 && reinterpret_cast<uintptr_t>(matrix.data) % sizeof(uint32_t) == 0;
}

}  // namespace

MatrixProductCut::MatrixProductCut(int all_threads, int64_t m, int64_t n, int64_t k)
    : row_blocks(blocks_of(m)), panels(blocks_of(n)), steps(blocks_of(k)), threads(std::max(1, all_threads)) {
  const auto fits = [&](int64_t of_rows) { return of_rows * steps * kBlock * 2 <= kHeldBytes; };
  order = steps <= kStripSteps ? Order::strips : fits(kFewerRows) ? Order::whole_rows : Order::parts_of_rows;
  int64_t tasks = 2 * threads;  // at least, as long as there are as many blocks
  int64_t most_rows = kTaskRows, most_panels = std::max<int64_t>(1, panels);  // per task
  depths = (steps + kDepthSteps - 1) / kDepthSteps;
  switch (order) {
    case Order::strips:
      rows = kBlock;
      depths = 1;
      most_panels = kHeldBytes / (std::max<int64_t>(1, steps) * kStepBytes);
      break;
    case Order::whole_rows:
      rows = fits(kMostRows) ? kMostRows : kFewerRows;
      break;
    case Order::parts_of_rows:
      rows = most_rows = kMostRows;
      tasks = threads;
      most_panels = kGroupPanels;
      break;
  }
  task_rows = rows * std::clamp<int64_t>(m / (rows * tasks), 1, most_rows / rows);
  row_tasks = (m + task_rows - 1) / task_rows;
  const int64_t least = std::max<int64_t>(1, (panels + most_panels - 1) / most_panels);
  groups = std::clamp((tasks + row_tasks - 1) / row_tasks, least, std::max(least, panels));
  if (order == Order::parts_of_rows) {
    const int64_t per_round = threads / std::gcd(groups, threads);
    const int64_t even = (row_tasks + per_round - 1) / per_round * per_round;
    if (even * kFewestBlocks <= row_blocks) row_tasks = even;
  }
}

int64_t MatrixProductCut::left_words() const {
  return blocks_of(rows) * (order == Order::parts_of_rows ? std::min(steps, kDepthSteps) : steps) * kStepWords;
}

int64_t MatrixProductCut::sums() const {
  if (depths == 1) return 0;
  const int64_t group_panels = order == Order::whole_rows ? 1 : (panels + groups - 1) / groups;
  return group_panels * blocks_of(rows) * kBlockSums;
}

int64_t MatrixProductCut::bytes() const {
  return (right_words() + threads * (left_words() + sums())) * static_cast<int64_t>(sizeof(uint32_t)) + kCacheLine;
}

bool multiply_by_matrix_unit(ProductsBy by, const MatrixProduct& product, const Tensor& room) {
  if ((by != ProductsBy::tiles && by != ProductsBy::tile_loops) || tile_body(by) == nullptr) return false;
  if (product.b.transposed && !in_words(product.b, product.k)) return false;
  if (by == ProductsBy::tile_loops) {
    Product<MatrixUnitLoops>(product, room).run();
  } else {
#if defined(__x86_64__)
    Product<MatrixUnit>(product, room).run();
#endif
  }
  return true;
}

}  // namespace shiftron::fast
