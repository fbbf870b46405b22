// ParameterSpec: a logical tensor, stated once. ParameterSet: declare, allocate flat buffers in buckets, initialise.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/memory.h"
#include "core/philox.h"
#include "core/stream.h"
#include "parallel/communicator.h"
#include "parallel/layout.h"

namespace shiftron {

// Which weight decay and learning-rate scale apply.
enum class DecayGroup { matrix, norm, shift };
// Where in the model a parameter belongs.
enum class Part { embedding, layer, final_norm, head };

// Initial value of element `index` (row-major in the logical tensor); `random` is the stream of (seed, name).
using Initializer = std::function<double(const Philox& random, int64_t index)>;
Initializer init_normal(double standard_deviation);
Initializer init_constant(double value);

inline constexpr int kReplicated = -1;

struct ParameterSpec {
  std::string name;              // "layers.7.attention.query.weight": the same under every layout
  Shape shape;                   // whole tensor, before any split
  int split_dim = kReplicated;   // divided over tp by split_range; kReplicated: whole on every tp rank
  Initializer initial;
  DecayGroup group = DecayGroup::matrix;
  bool tied = false;             // also held by the last stage, which uses it as head
  bool keep_precise = false;     // read in the accumulation type, never as bfloat16
  Part part = Part::layer;
  int layer = -1;                // −1 outside the layers
};

// Hyperrectangle of a logical tensor.
struct Box {
  Shape offset;
  Shape extent;
  bool operator==(const Box&) const = default;
  std::string text() const;  // "0,128,0"
};

// The boxes of a spec that a rank holds; today always one.
std::vector<Box> boxes_of(const ParameterSpec& spec, const ParallelLayout& layout, const Coordinates& at);
// True on exactly one of the ranks with the same data-parallel index that hold equal copies: that rank counts it in the
// gradient norm and writes it to checkpoints.
bool is_owner(const ParameterSpec& spec, const ParallelLayout& layout, const Coordinates& at);
// How many tp ranks hold each box: all, if the spec is not split.
int tensor_replicas(const ParameterSpec& spec, const ParallelLayout& layout);

struct NumberTypes {  // the types of a run
  DType activation;    // activations and the weights that products read
  DType accumulation;  // masters, gradients, moments, reductions
};

// This rank's piece of a spec with its views of the flat buffers.
struct Parameter {
  ParameterSpec spec;
  Box box;
  int64_t offset = 0;         // elements, in the flat buffer of gradients
  int64_t weight_offset = 0;  // elements, in the flat buffer of its weights
  bool owner = false;
  Range part;       // elements of the box that are in this rank's part of their bucket
  Range kept;       // those that this rank updates, with moments and lower halves here: all, or `part`
  Tensor gradient;  // A, contiguous, box.extent
  Tensor weight;    // what products read: the master, A; or its upper half, bfloat16, if `rest` is defined
  Tensor rest;      // [kept] the lower half of a float32 master, see split_master()
  Tensor first_moment, second_moment;  // [kept] A
};

// Which ranks, apart from data-parallel copies, hold the same piece of a parameter, each with a part of its gradient.
enum class Holders { none, tensor_parallel, kv_replica, tied };
Holders holders_of(const ParameterSpec& spec, const ParallelLayout& layout);

// Parameters that are exchanged together over the data-parallel ranks: one range of the flat buffers, with an equal
// part for each of these ranks. All have the same holders, except adjacent ones.
struct Bucket {
  int64_t begin = 0, size = 0;         // elements in the flat buffer of gradients; with padding
  Range part;                          // this rank's, counted from begin
  std::vector<Parameter*> parameters;  // in memory order
  Tensor gradients, weights;           // [size]
};

// How a set is divided among its data-parallel copies.
struct Division {
  bool divided = false;         // ZeRO-1 (Rajbhandari et al. 2020): a rank keeps only its part of moments, lower halves
  int64_t bucket_elements = 0;  // a bucket with so many takes no more parameters; 0: no limit
};

// What training keeps of a parameter.
enum class ParameterState { master, first_moment, second_moment };

class ParameterSet {
 public:
  ParameterSet(ParallelLayout layout, Coordinates at, NumberTypes types) : layout_(layout), at_(at), types_(types) {}

  // Declared pieces keep their place in memory; `adjacent`: directly after the one declared before, so that one product
  // can serve both. The pointer stays valid.
  Parameter* declare(ParameterSpec spec, bool adjacent = false);
  // Allocates masters, which are the weights, and for `training` gradients and moments. Nothing is declared after it.
  void allocate(const Stream& stream, bool training, const Division& division = {});
  // Initialises masters, with the same bits in every layout. `done` gets how many elements of this rank are ready, and
  // how many there are.
  void initialise(uint64_t seed, const std::function<void(int64_t, int64_t)>& done = {});

  // Copies elements [first, first + count) of a state, in A and row-major in the parameter's box, between device and
  // host, after the stream's work so far; not counted in the ledger. Only kept elements of moments, and, for read(), of
  // masters in two halves. read() returns where the elements are if the host may read them there, else the copy in
  // `room`.
  const void* read(const Parameter& parameter, ParameterState state, int64_t first, int64_t count,
                   std::vector<std::byte>& room) const;
  void write(const Parameter& parameter, ParameterState state, int64_t first, int64_t count, const void* from) const;
  // Whether the parameter is in host memory. If so, waits until the stream's work so far is done.
  bool await_host(const Parameter& parameter) const;
  // Like write(), after await_host() and with no work given to the stream since. Several threads may call it, each for
  // other elements.
  void write_on_host(const Parameter& parameter, ParameterState state, int64_t first, int64_t count,
                     const void* from) const;
  // Where element `first` is, followed by the others, if the host may read and write there; otherwise null.
  void* on_host(const Parameter& parameter, ParameterState state, int64_t first) const;

  // Weights of other ranks' parts may still be on their way: orders the stream after the arrival of the needed ones.
  void await_weights(Stream& stream, const std::function<bool(const ParameterSpec& spec)>& needed) const;
  void await_weights(Stream& stream) const;  // all
  void expect_weights(const Bucket& bucket, Work arrival) { arriving_.emplace_back(&bucket, std::move(arrival)); }

  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  Parameter* find(const std::string& name) const;  // null if this rank has none of it
  const std::vector<Bucket>& buckets() const { return buckets_; }  // in the order in which backward completes them
  bool training() const { return training_; }
  bool divided() const { return division_.divided; }
  Tensor gradients() const { return gradients_; }  // the whole flat buffer, A
  const ParallelLayout& layout() const { return layout_; }
  const Coordinates& at() const { return at_; }
  NumberTypes types() const { return types_; }

  // One weight for a product over adjacent parameters: [Σ rows, columns]; `of` names the buffer.
  Tensor joined(const std::vector<Parameter*>& parameters, Tensor Parameter::*of, int64_t columns) const;

 private:
  ParallelLayout layout_;
  Coordinates at_;
  NumberTypes types_;
  Stream stream_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::unordered_map<std::string, Parameter*> by_name_;
  std::vector<bool> adjacent_;
  void fill_buckets();
  Division division_;
  bool training_ = false;
  std::vector<Bucket> buckets_;
  mutable std::vector<std::pair<const Bucket*, Work>> arriving_;
  Buffer transfer_;  // pinned, for copies between a GPU and the host
  Buffer whole_, weight_, rest_, gradient_, first_, second_;  // whole_: masters that are not in two halves
  Tensor gradients_;
};

}  // namespace shiftron
