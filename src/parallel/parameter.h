// ParameterSpec: a logical tensor, stated once. ParameterSet: declare, allocate flat buffers, initialise.
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
#include "parallel/layout.h"

namespace shiftron {

// Which weight decay and learning-rate scale apply.
enum class DecayGroup { matrix, norm, shift };
// Where in the model a parameter belongs.
enum class Part { embedding, layer, final_norm, head };

// Value of element `index` (row-major in the logical tensor) at the start; `random` is the stream of (seed, name).
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
  int layer = -1;                // −1 outside of the layers
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
// True on exactly one rank of those that hold equal copies: it counts in the gradient norm and writes checkpoints.
bool is_owner(const ParameterSpec& spec, const ParallelLayout& layout, const Coordinates& at);
// How many tp ranks hold each box, where the spec is split.
int tensor_replicas(const ParameterSpec& spec, const ParallelLayout& layout);

struct NumberTypes {  // the three types of a run
  DType activation;    // activations and the weights that products read
  DType accumulation;  // masters, gradients, moments, reductions
};

// This rank's piece of a spec with its views of the flat buffers.
struct Parameter {
  ParameterSpec spec;
  Box box;
  int64_t offset = 0;         // elements, in the flat buffers of gradients and moments
  int64_t weight_offset = 0;  // elements, in the flat buffers of weights
  bool owner = false;
  Tensor gradient, first_moment, second_moment;  // A, contiguous, box.extent
  Tensor weight;  // what products read: the master itself, A; where `rest` is defined its upper half, bfloat16
  Tensor rest;    // the lower half of a float32 master, as split_master() lays it out
};

// What training keeps of a parameter.
enum class ParameterState { master, first_moment, second_moment };

class ParameterSet {
 public:
  ParameterSet(ParallelLayout layout, Coordinates at, NumberTypes types) : layout_(layout), at_(at), types_(types) {}

  // Declared pieces stay where they are in memory; `adjacent`: directly behind the one declared before, so that one
  // product can serve both. The pointer stays valid.
  Parameter* declare(ParameterSpec spec, bool adjacent = false);
  // Allocates masters, which are the weights; with `training` gradients and moments too. Ends declaring.
  void allocate(const Stream& stream, bool training);
  void initialise(uint64_t seed);  // masters; the same bits in every layout

  // Elements [first, first + count) of a state, in A and row-major in the parameter's box, between device and host, behind
  // all that the stream was given; nobody counts them. read: where they lie, if the host may look there, else in `room`.
  const void* read(const Parameter& parameter, ParameterState state, int64_t first, int64_t count,
                   std::vector<std::byte>& room) const;
  void write(const Parameter& parameter, ParameterState state, int64_t first, int64_t count, const void* from) const;
  // Where all of it lies, if the host may read and write there; else null.
  void* on_host(const Parameter& parameter, ParameterState state) const;

  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  Parameter* find(const std::string& name) const;  // null if this rank has none of it
  Tensor gradients() const { return gradients_; }  // the whole flat buffer, A
  Tensor replicated_gradients() const { return replicated_gradients_; }  // of parameters whole on every tp rank
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
  Buffer whole_, weight_, rest_, gradient_, first_, second_;  // whole_: masters that are not in two halves
  Tensor gradients_, replicated_gradients_;
};

}  // namespace shiftron
