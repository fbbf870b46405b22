// Products on the CPU. float32: oneDNN's sgemm, and its matmul for narrow products. bfloat16: as chosen, oneDNN's
// matmul or our own tiles; as a last resort our own vectors of float32.
#include <oneapi/dnnl/dnnl.h>

#include <cstring>
#include <map>
#include <tuple>

#include "kernels/bodies.h"
#include "kernels/cpu_loops.h"
#include "kernels/matrix.h"
#include "kernels/matrix_product.h"
#include "kernels/onednn_matmul.h"
#include "kernels/tile_product.h"
#include "kernels/weight_gradient.h"
#include "kernels/widened_product.h"

namespace shiftron::fast {
namespace {

// A product of one shape by oneDNN's matmul.
struct LibraryProduct {
  int64_t m, n, k, a_stride, b_stride, c_stride;
  bool a_transposed, b_transposed, keep;
  DType dtype, c_dtype;
  int threads;
  int64_t scratch_bytes;  // 0: b is read in place
  auto operator<=>(const LibraryProduct&) const = default;
};

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::float32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc describe(int64_t rows, int64_t columns, int64_t stride, bool transposed, DType dtype) {
  using dnnl::memory;
  const memory::data_type type = type_of(dtype);
  return transposed ? memory::desc({rows, columns}, type, memory::dims{1, stride})
                    : memory::desc({rows, columns}, type, memory::dims{stride, 1});
}

// oneDNN objects of one thread; the library shares the code that it compiled between threads.
class Library {
 public:
  // Returns false if the processor has no such product.
  bool run(const LibraryProduct& shape, const void* a, const void* b, void* c, void* scratch) {
    if (refused_) return false;
    try {
      Made& made = find(shape);
      made.a.set_data_handle(const_cast<void*>(a));
      made.c.set_data_handle(c);
      if (made.packs) {
        made.plain_b.set_data_handle(const_cast<void*>(b));
        made.b.set_data_handle(scratch);
        made.pack.execute(stream_, made.plain_b, made.b);
      } else {
        made.b.set_data_handle(const_cast<void*>(b));
      }
      made.primitive.execute(stream_, made.arguments);
      stream_.wait();
      return true;
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented)
        throw_crash("oneDNN matmul in ", name_of(shape.dtype), ": ", error.what());
      refused_ = true;
      return false;
    }
  }

 private:
  struct Made {
    dnnl::matmul primitive;
    dnnl::memory a, b, c;
    std::unordered_map<int, dnnl::memory> arguments;
    bool packs = false;
    dnnl::reorder pack;
    dnnl::memory plain_b;
  };

  Made& find(const LibraryProduct& shape) {
    const auto found = made_.find(shape);
    if (found != made_.end()) return found->second;
    if (made_.size() >= 512) made_.clear();  // decoding has many shapes
    const auto a = describe(shape.m, shape.k, shape.a_stride, shape.a_transposed, shape.dtype);
    const auto b = describe(shape.k, shape.n, shape.b_stride, shape.b_transposed, shape.dtype);
    const auto c = describe(shape.m, shape.n, shape.c_stride, false, shape.c_dtype);
    dnnl::primitive_attr attributes;
    if (shape.keep) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const dnnl::memory::desc any({shape.k, shape.n}, type_of(shape.dtype), dnnl::memory::format_tag::any);
    const auto primitive_of = [&](const dnnl::memory::desc& b_read) {
      return describe_matmul(engine_, a, b_read, c, attributes);
    };
    dnnl::matmul::primitive_desc how = primitive_of(shape.scratch_bytes > 0 ? any : b);
    Made made;
    made.packs = how.weights_desc() != b;
    if (made.packs && static_cast<int64_t>(how.weights_desc().get_size()) > shape.scratch_bytes) {
      made.packs = false;
      how = primitive_of(b);
    }
    made.primitive = dnnl::matmul(how);
    if (made.packs) {
      made.pack = dnnl::reorder(dnnl::reorder::primitive_desc(engine_, b, engine_, how.weights_desc()));
      made.plain_b = dnnl::memory(b, engine_, nullptr);
    }
    made.a = dnnl::memory(a, engine_, nullptr);
    made.b = dnnl::memory(how.weights_desc(), engine_, nullptr);
    made.c = dnnl::memory(c, engine_, nullptr);
    made.arguments = {{DNNL_ARG_SRC, made.a}, {DNNL_ARG_WEIGHTS, made.b}, {DNNL_ARG_DST, made.c}};
    return made_.emplace(shape, std::move(made)).first->second;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<LibraryProduct, Made> made_;
  bool refused_ = false;
};

bool product_by_library(const LibraryProduct& shape, const void* a, const void* b, void* c, void* scratch) {
  thread_local Library bfloat16s, floats;
  return (shape.dtype == DType::float32 ? floats : bfloat16s).run(shape, a, b, c, scratch);
}

void require(bool made, int64_t m, int64_t n, int64_t k) {
  if (made) return;
  throw_bad_input("oneDNN cannot compute a product of ", m, "×", n, "×", k,
                  ": it must generate machine code at run time; allow that (systemd's MemoryDenyWriteExecute, "
                  "SELinux's execmem), or raise the memory limit (ulimit -v)");
}

}  // namespace

SHIFTRON_CLONES void narrow(const float* from, bfloat16* to, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = to_bfloat16(from[i]);
}

bool gradient_by_library(int64_t rows, int64_t in, int64_t out, int64_t stride) {
  constexpr int64_t kPage = 4096 / sizeof(float);
  return rows >= 1024 && is_narrow(in, out) && (stride % kPage == 0 || tile_body(ProductsBy::tiles) != nullptr);
}

bool product_float32(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, bool a_transposed,
                     const float* b, int64_t b_stride, bool b_transposed, bool keep, float* c, int64_t c_stride) {
  return dnnl_sgemm(a_transposed ? 'T' : 'N', b_transposed ? 'T' : 'N', m, n, k, 1.0f, a, a_stride, b, b_stride,
                    keep ? 1.0f : 0.0f, c, c_stride) == dnnl_success;
}

void multiply(ProductsBy by, const MatrixProduct& of, const Tensor& scratch) {
  const Matrix &a = of.a, &b = of.b;
  if (of.m == 0 || of.n == 0) return;
  if (of.k == 0) {  // which the library does not accept
    const auto size = static_cast<size_t>(size_of(of.c_dtype));
    for (int64_t row = 0; !of.keep && row < of.m; ++row) {
      std::memset(static_cast<char*>(of.c) + static_cast<size_t>(row * of.c_stride) * size, 0,
                  static_cast<size_t>(of.n) * size);
    }
    return;
  }
  if (multiply_few_rows(of)) return;
  const LibraryThreads guard(of.threads);
  const bool wide = a.dtype == DType::float32, packs = scratch.defined() && scratch.count() > 0;
  CHECK(a.dtype == b.dtype && (wide || a.dtype == DType::bfloat16), "operands must be float32 or bfloat16");
  CHECK(of.c_dtype == DType::float32 || !(wide || of.keep), "products of float32, and sums, must be float32");
  if (!wide && packs && multiply_by_matrix_unit(by, of, scratch)) return;
  const bool by_library =
      wide ? (a.transposed ? gradient_by_library(of.k, of.n, of.m, a.stride) : packs_weight(of.m, of.k, of.n))
           : by != ProductsBy::float32;
  if (by_library) {
    const LibraryProduct shape{of.m,
                               of.n,
                               of.k,
                               a.stride,
                               b.stride,
                               of.c_stride,
                               a.transposed,
                               b.transposed,
                               of.keep,
                               a.dtype,
                               of.c_dtype,
                               of.threads,
                               packs ? scratch.bytes() : 0};
    if (product_by_library(shape, a.data, b.data, of.c, packs ? scratch.raw() : nullptr)) return;
  }
  if (!wide) return multiply_widened(of);
  require(product_float32(of.m, of.n, of.k, static_cast<const float*>(a.data), a.stride, a.transposed,
                          static_cast<const float*>(b.data), b.stride, b.transposed, of.keep, static_cast<float*>(of.c),
                          of.c_stride),
          of.m, of.n, of.k);
}

namespace {

// An operand of a product, as stored or transposed.
struct Operand {
  const ConstTensor& of;
  bool transposed = false;
  Matrix matrix() const { return {of.raw(), of.dtype(), of.stride(0), transposed}; }
};

// c = a b + keep · c.
MatrixProduct product_of(const CpuOptions& cpu, const Operand& a, const Operand& b, bool keep, const Tensor& c) {
  return {cpu.threads, c.extent(0), c.extent(1), a.of.extent(a.transposed ? 0 : 1), a.matrix(), b.matrix(), keep,
          c.raw(),     c.dtype(),   c.stride(0)};
}

}  // namespace

void matmul_forward(const CpuOptions& cpu, ConstTensor x, ConstTensor w, Tensor y, Tensor scratch) {
  multiply(cpu.bfloat16.forward, product_of(cpu, {x}, {w, true}, false, y), scratch);
}

// Unlike the reference implementation, this also rounds the product, because the library writes its sums to y in y's
// type.
void matmul_forward_add(const CpuOptions& cpu, ConstTensor x, ConstTensor w, ConstTensor residual, Tensor y,
                        Tensor scratch) {
  matmul_forward(cpu, x, w, y, scratch);
  add(cpu, residual, y, y);
}

void matmul_backward_input(const CpuOptions& cpu, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor scratch) {
  multiply(cpu.bfloat16.to_input, product_of(cpu, {d_y}, {w}, false, d_x), scratch);
}

void matmul_backward_input_sum(const CpuOptions& cpu, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor scratch) {
  multiply(cpu.bfloat16.to_input, product_of(cpu, {d_y}, {w}, true, d_x), scratch);
}

void matmul_backward_weight(const CpuOptions& cpu, ConstTensor d_y, ConstTensor x, Tensor d_w, Tensor scratch) {
  const ProductsBy by = cpu.bfloat16.to_weight;
  const MatrixProduct product = product_of(cpu, {d_y, true}, {x}, true, d_w);
  if (scratch.defined() && scratch.count() > 0 && x.dtype() == DType::bfloat16) {
    if (multiply_by_matrix_unit(by, product, scratch)) return;
    if (by == ProductsBy::vectors && tile_body(by) != nullptr) {
      return weight_gradient_bfloat16(cpu.threads, d_y, x, d_w, scratch);
    }
  }
  // Without scratch: the library would repack x, which does not pay here.
  multiply(by, product);
}

}  // namespace shiftron::fast
