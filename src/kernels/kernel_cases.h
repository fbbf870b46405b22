// Calls of every kernel with awkward shapes: no row, 1 row, primes, one KV head, more taps than tokens, documents of
// length 1, long rows. fast_test compares them with the reference implementation, specification_test with float64; a
// device's tests and its self-test use them too. Each function adds the calls of one family.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernel_call.h"

namespace shiftron::kernel_testing {

using Tensors = std::vector<Tensor>;

std::string label(const char* kernel, std::initializer_list<int64_t> numbers);  // "kernel_1_2"

// Builds a call; each argument gets its own values.
struct Builder {
  KernelCase call;
  explicit Builder(std::string name) { call.name = std::move(name); }
  Argument& input(const std::string& name, Shape shape, Kind kind = Kind::activation, double scale = 1,
                  double mean = 0) {
    return add({.name = name,
                .kind = kind,
                .shape = shape,
                .values = random_values(call.name + "/" + name, shape.count(), scale, mean)});
  }
  Argument& given(const std::string& name, Shape shape, Kind kind, std::vector<double> values) {
    return add({.name = name, .kind = kind, .shape = shape, .values = std::move(values)});
  }
  Argument& integers(const std::string& name, const std::vector<int64_t>& values) {
    return given(name, {static_cast<int64_t>(values.size())}, Kind::int32,
                 std::vector<double>(values.begin(), values.end()));
  }
  Argument& output(const std::string& name, Shape shape, double terms, Kind kind = Kind::activation) {
    return add({.name = name, .kind = kind, .role = Role::out, .shape = shape, .values = {}, .terms = terms});
  }
  Argument& sum(const std::string& name, Shape shape, double terms, Kind kind = Kind::accumulation) {
    Argument& argument = input(name, shape, kind);
    argument.role = Role::in_out;
    argument.terms = terms;
    argument.magnitude = std::sqrt(terms);  // of random terms of size 1
    return argument;
  }
  void scratch(Shape shape, Kind kind = Kind::accumulation) {
    add({.name = "scratch", .kind = kind, .role = Role::scratch, .shape = shape, .values = {}, .strided = false});
  }
  Argument& add(Argument argument) {
    call.arguments.push_back(std::move(argument));
    return call.arguments.back();
  }
};

// Scratch that is enough for a call on any backend.
template <typename ScratchOf>
Shape scratch_of_any(const ScratchOf& scratch_of) {
  Stream gpu;
  gpu.device = DeviceKind::cuda;
  return {std::max(scratch_of(Stream{}).count(), scratch_of(gpu).count())};
}

void add_matmul_cases(std::vector<KernelCase>& cases, int64_t rows, int64_t in, int64_t out);
void add_elementwise_cases(std::vector<KernelCase>& cases, int64_t rows, int64_t columns);
void add_embedding_cases(std::vector<KernelCase>& cases, int64_t rows, int64_t vocab, int64_t hidden);
void add_rms_norm_cases(std::vector<KernelCase>& cases, int64_t rows, int64_t hidden);
void add_swiglu_cases(std::vector<KernelCase>& cases, int64_t rows, int64_t ffn);

struct ShiftCase {
  const char* name;
  std::vector<int64_t> documents;
  int64_t heads, head_dim, taps;  // taps 0: no shift
  bool rope = true;
  bool carried = false;
};
void add_shift_rope_cases(std::vector<KernelCase>& cases, const ShiftCase& shift);
// Streams that are passed in one call.
struct ShiftStreamsCase {
  struct OneStream {
    int64_t heads, taps;
    bool rope = true;
  };
  const char* name;
  std::vector<int64_t> documents;
  int64_t head_dim;
  std::vector<OneStream> streams;
  bool carried = false;
};
void add_shift_streams_cases(std::vector<KernelCase>& cases, const ShiftStreamsCase& shift);

struct AttentionCase {
  const char* name;
  std::vector<int64_t> documents;  // within samples of sequence_length
  int64_t sequence_length, heads, kv_heads, head_dim;
  int64_t key_offset = 0;
  int64_t spare_keys = 0;  // of a cache that is not yet full
};
void add_attention_cases(std::vector<KernelCase>& cases, const AttentionCase& at);

}  // namespace shiftron::kernel_testing
