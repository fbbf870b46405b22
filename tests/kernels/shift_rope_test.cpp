// KV shift and RoPE: hand-computed rows, the gradient of every form, carried rows, faults.
#include <numeric>

#include "kernels/kernel_testing.h"

namespace shiftron::kernel_testing {
namespace {

struct ShiftInputs {
  ShiftInputs(const std::vector<int64_t>& lengths, int64_t heads_, int64_t head_dim_, int64_t taps_, bool rope_)
      : documents(lengths),
        rows(documents.rows()),
        heads(heads_),
        head_dim(head_dim_),
        x(random_tensor("x", {rows, heads, head_dim})),
        taps(random_tensor("taps", {heads, std::max<int64_t>(taps_, 1)}, 0.5, 0.5)),
        table(zeros({2, rows + 1, head_dim / 2})),
        positions(integers(documents.position)),
        start(integers(documents.start)),
        y(DType::float64, {rows, heads, head_dim}) {
    rope_table(device.stream, 100, table);
    if (taps_ > 0) {
      how.taps = taps;
      how.shift_start = start;
    }
    if (rope_) {
      how.rope = table;
      how.positions = positions;
    }
  }
  DocumentRows documents;
  int64_t rows, heads, head_dim;
  Owned x, taps, table, positions, start, y;
  Device device;
  ShiftRope how;
};

// One head of one element: taps (previous 0.25, current 0.5), documents of 3 and 2 rows.
TEST(ShiftRope, HandComputed) {
  ShiftInputs in({3, 2}, 1, 1, 2, false);
  in.x.set({1, 2, 4, 8, 16});
  in.taps.set({0.25, 0.5});
  shift_rope_forward(in.device.stream, in.x, in.how, in.y);
  // Position 0 keeps 0.5 · 1 alone; so does row 3, the first of its document.
  EXPECT_EQ(in.y.values(), (std::vector<double>{0.5, 1 + 0.25, 2 + 0.5, 4, 8 + 2}));

  Owned d_x(DType::float64, {5, 1, 1});
  Owned d_taps(DType::float64, {1, 2}, {100, 200});
  Owned scratch(DType::float64, shift_rope_scratch({}, 5, 1, 1, 2));
  const Owned d_y(DType::float64, {5, 1, 1}, {1, 10, 100, 1000, 10000});
  shift_rope_backward(in.device.stream, d_y, in.x, in.how, d_x, d_taps, scratch);
  // d_x_t = 0.5 g_t + 0.25 g_{t+1}, the second only within the document.
  EXPECT_EQ(d_x.values(), (std::vector<double>{0.5 + 2.5, 5 + 25, 50, 500 + 2500, 5000}));
  // d_previous = 10·1 + 100·2 + 10000·8, d_current = Σ g x, both added to what was there.
  EXPECT_EQ(d_taps.values(), (std::vector<double>{100 + 10 + 200 + 80000, 200 + 1 + 20 + 400 + 8000 + 160000}));
}

TEST(ShiftRope, CountsTapsOldestFirst) {
  ShiftInputs in({4}, 1, 1, 4, false);
  in.x.set({1, 2, 4, 8});
  in.taps.set({1000, 100, 10, 1});
  shift_rope_forward(in.device.stream, in.x, in.how, in.y);
  EXPECT_EQ(in.y.values(), (std::vector<double>{1, 12, 124, 1248}));
}

// The rotation of the mixed row by the row's own position: halves (a, b) become (a cos − b sin, b cos + a sin).
TEST(ShiftRope, ShiftsBeforeItRotates) {
  ShiftInputs in({4, 3}, 2, 4, 2, true);
  shift_rope_forward(in.device.stream, in.x, in.how, in.y);
  const auto z = [&](int64_t t, int64_t head, int64_t d) {
    const int64_t at = (t * 2 + head) * 4 + d;
    const double previous = in.documents.position[static_cast<size_t>(t)] == 0 ? 0 : in.x[at - 8];
    return in.taps[head * 2] * previous + in.taps[head * 2 + 1] * in.x[at];
  };
  for (int64_t t = 0; t < 7; ++t) {
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t i = 0; i < 2; ++i) {
        const double angle =
            static_cast<double>(in.documents.position[static_cast<size_t>(t)]) * std::pow(100, -i / 2.0);
        const double a = z(t, head, i);
        const double b = z(t, head, i + 2);
        EXPECT_NEAR(in.y[(t * 2 + head) * 4 + i], a * std::cos(angle) - b * std::sin(angle), 1e-14);
        EXPECT_NEAR(in.y[(t * 2 + head) * 4 + i + 2], b * std::cos(angle) + a * std::sin(angle), 1e-14);
      }
    }
  }
}

// 0 to 3 previous tokens, with and without rotation, whole and in documents.
TEST(ShiftRope, GradientMatchesDifferences) {
  for (const auto& lengths : std::vector<std::vector<int64_t>>{{6}, {3, 1, 2}, {1, 1}, {1}}) {
    for (const int64_t taps : {0, 1, 2, 3, 4}) {
      for (const bool rope : {false, true}) {
        SCOPED_TRACE(::testing::Message() << lengths.size() << " documents, " << taps << " taps, rope " << rope);
        ShiftInputs in(lengths, 2, 4, taps, rope);
        const Owned d_y = random_tensor("d_y", {in.rows, 2, 4});
        const auto loss = [&] {
          shift_rope_forward(in.device.stream, in.x, in.how, in.y);
          return weighted_sum(in.y, d_y);
        };
        Owned d_x(DType::float64, {in.rows, 2, 4});
        Owned d_taps = zeros(in.taps.tensor().shape());
        Owned scratch(DType::float64, shift_rope_scratch({}, in.rows, 2, 4, taps));
        shift_rope_backward(in.device.stream, d_y, in.x, in.how, d_x, taps > 0 ? d_taps.tensor() : Tensor(), scratch);
        expect_gradient("x", in.x, d_x.values(), loss);
        if (taps > 0) expect_gradient("taps", in.taps, d_taps.values(), loss);
      }
    }
  }
}

// Down to the raw parameters of every form.
TEST(ShiftRope, GradientOfEveryTapFormMatchesDifferences) {
  struct Form {
    TapForm form;
    int64_t raw, taps;
    std::vector<double> values;  // of 2 heads
  };
  for (const Form& form : {Form{TapForm::free, 3, 3, {0.2, -0.4, 1.5, 0.7, 0.1, -2}},
                           Form{TapForm::gate, 1, 2, {-0.8, 1.3}}, Form{TapForm::clamp, 2, 2, {-0.4, 0.3, 0.9, 1.7}}}) {
    ShiftInputs in({4, 2}, 2, 4, form.taps, true);
    const Owned raw(DType::float64, {2, form.raw}, form.values);
    const Owned d_y = random_tensor("d_y", {6, 2, 4});
    const auto loss = [&] {
      shift_taps_forward(in.device.stream, raw, form.form, in.taps);
      shift_rope_forward(in.device.stream, in.x, in.how, in.y);
      return weighted_sum(in.y, d_y);
    };
    loss();
    Owned d_x(DType::float64, {6, 2, 4});
    Owned d_taps = zeros({2, form.taps});
    Owned d_raw = zeros({2, form.raw});
    Owned scratch(DType::float64, shift_rope_scratch({}, 6, 2, 4, form.taps));
    shift_rope_backward(in.device.stream, d_y, in.x, in.how, d_x, d_taps, scratch);
    shift_taps_backward(in.device.stream, raw, form.form, d_taps, InOut(d_raw));
    expect_gradient("raw", raw, d_raw.values(), loss);
  }
}

TEST(ShiftTaps, FormsAndBorders) {
  Device device;
  const Owned raw(DType::float64, {1, 4}, {-0.5, 0, 1, 1.5});
  Owned taps(DType::float64, {1, 4});
  shift_taps_forward(device.stream, raw, TapForm::clamp, taps);
  EXPECT_EQ(taps.values(), (std::vector<double>{0, 0, 1, 1}));
  const Owned d_taps(DType::float64, {1, 4}, {1, 2, 3, 4});
  Owned d_raw(DType::float64, {1, 4}, {10, 10, 10, 10});
  shift_taps_backward(device.stream, raw, TapForm::clamp, d_taps, InOut(d_raw));
  EXPECT_EQ(d_raw.values(), (std::vector<double>{10, 12, 13, 10}));

  const Owned gate(DType::float64, {2, 1}, {0, std::log(3.0)});
  Owned both(DType::float64, {2, 2});
  shift_taps_forward(device.stream, gate, TapForm::gate, both);
  for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(both[i], (std::vector<double>{0.5, 0.5, 0.25, 0.75})[i], 1e-15);
}

// A sequence in two pieces, the second with the last raw rows of the first, is the sequence as a whole.
TEST(ShiftRope, CarriedRowsContinueASequence) {
  for (const int64_t taps : {2, 3, 4}) {
    for (const int64_t split : {taps - 1, int64_t{5}}) {
      ShiftInputs in({9}, 2, 4, taps, true);
      shift_rope_forward(in.device.stream, in.x, in.how, in.y);
      const int64_t rest = 9 - split;
      ShiftRope how = in.how;
      how.positions = in.positions.tensor().rows(split, rest);
      const Owned start = integers(std::vector<int64_t>(static_cast<size_t>(rest), -(taps - 1)));
      how.shift_start = start;
      how.carried = in.x.tensor().rows(split - (taps - 1), taps - 1);
      Owned y(DType::float64, {rest, 2, 4});
      shift_rope_forward(in.device.stream, in.x.tensor().rows(split, rest), how, y);
      for (int64_t i = 0; i < y.tensor().count(); ++i) EXPECT_EQ(y[i], in.y[split * 8 + i]);
    }
  }
}

// A layer's streams with their results, in any type.
struct Layer {
  struct OneStream {
    Owned x, d_y, taps, y, d_x, d_taps;
    bool rope;
  };
  Layer(DType dtype, const std::vector<int64_t>& lengths, const std::vector<ShiftStreamsCase::OneStream>& of)
      : documents(lengths),
        rows(documents.rows()),
        positions(integers(documents.position)),
        start(integers(documents.start)),
        table(accumulation_type(dtype), {2, rows + 1, kHeadDim / 2}) {
    rope_table(device.stream, 100, table);
    for (const auto& [heads, taps, rope] : of) {
      const Shape shape{rows, heads, kHeadDim}, of_taps{heads, taps};
      const auto random = [&](const char* name, DType type, const Shape& filled) {
        return Owned(type, filled, random_values(name + std::to_string(streams.size()), filled.count()));
      };
      const DType wide = accumulation_type(dtype);
      OneStream stream{random("x", dtype, shape),
                       random("d_y", dtype, shape),
                       {},
                       Owned(dtype, shape),
                       Owned(dtype, shape),
                       {},
                       rope};
      if (taps > 0) stream.taps = random("taps", wide, of_taps);
      if (taps > 0) stream.d_taps = random("d_taps", wide, of_taps);
      streams.push_back(std::move(stream));
    }
  }
  ShiftRope how(const OneStream& stream) const {
    ShiftRope how{.taps = stream.taps, .rope = {}, .positions = positions, .shift_start = start, .carried = {}};
    if (stream.rope) how.rope = table;
    return how;
  }
  ShiftForward forward(const OneStream& stream) const { return {stream.x, how(stream), stream.y}; }
  ShiftBackward backward(const OneStream& stream) const {
    return {stream.d_y, stream.x, how(stream), stream.d_x, stream.d_taps};
  }
  // Of all streams at once, or of each by itself: y, d_x, d_taps.
  std::vector<std::vector<double>> results(Bodies bodies, bool together) {
    device.stream.cpu.bodies = bodies;
    std::vector<ShiftForward> forwards;
    std::vector<ShiftBackward> backwards;
    for (const OneStream& stream : streams) {
      forwards.push_back(forward(stream));
      backwards.push_back(backward(stream));
    }
    const Owned scratch(table.tensor().dtype(), shift_rope_scratch(device.stream, backwards));
    if (together) {
      shift_rope_forward(device.stream, forwards);
      shift_rope_backward(device.stream, backwards, scratch);
    } else {
      for (const ShiftForward& one : forwards) shift_rope_forward(device.stream, one.x, one.how, one.y);
      for (const ShiftBackward& one : backwards) {
        shift_rope_backward(device.stream, one.d_y, one.x, one.how, one.d_x, one.d_taps, scratch);
      }
    }
    std::vector<std::vector<double>> values;
    for (const OneStream& stream : streams) {
      for (const Owned* result : {&stream.y, &stream.d_x}) values.push_back(result->values());
      if (stream.taps.tensor().defined()) values.push_back(stream.d_taps.values());
    }
    return values;
  }
  static constexpr int64_t kHeadDim = 6;
  Device device;
  DocumentRows documents;
  int64_t rows;
  Owned positions, start, table;
  std::vector<OneStream> streams;
};

// To the bit; against differences and other formulas each stream is held above.
TEST(ShiftRope, StreamsGoTogetherAsTheyGoAlone) {
  using Streams = std::vector<ShiftStreamsCase::OneStream>;
  for (const Streams& streams :
       {Streams{{6, 0}, {2, 2}, {2, 2, false}}, Streams{{2, 4}, {1, 3}, {3, 2, false}}, Streams{{4, 0}, {2, 1}},
        Streams{{2, 3, false}, {3, 0, false}, {1, 4}}, Streams{{2, 2, false}}}) {
    for (const auto& lengths : std::vector<std::vector<int64_t>>{{}, {1}, {1, 1, 1}, {40, 1, 33}}) {
      for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
        for (const Bodies bodies : {Bodies::specification, Bodies::fast}) {
          Layer together(dtype, lengths, streams), alone(dtype, lengths, streams);
          EXPECT_EQ(together.results(bodies, true), alone.results(bodies, false))
              << streams.size() << " streams, " << together.rows << " rows, " << name_of(dtype);
        }
      }
    }
  }
}

// On a CPU the streams go one by one, on a GPU all at once.
TEST(ShiftRope, ScratchServesAllStreams) {
  const Layer layer(DType::float32, {70}, {{4, 0}, {2, 2}, {3, 3, false}});
  std::vector<ShiftBackward> streams;
  for (const auto& stream : layer.streams) streams.push_back(layer.backward(stream));
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    Stream stream;
    stream.planned = device;
    stream.device = DeviceKind::meta;
    const int64_t key = shift_rope_scratch(stream, 70, 2, Layer::kHeadDim, 2).count();
    const int64_t value = shift_rope_scratch(stream, 70, 3, Layer::kHeadDim, 3).count();
    const int64_t both = device == DeviceKind::cpu ? std::max(key, value) : key + value;
    EXPECT_EQ(shift_rope_scratch(stream, streams).count(), both) << name_of(device);
    EXPECT_EQ(shift_rope_scratch(stream, {streams[0]}).count(), 0);
  }
}

TEST(ShiftRope, FaultsOfStreamsNameTheValues) {
  const Layer layer(DType::float64, {3, 1}, {{2, 0}, {2, 2}, {2, 2, false}}), other(DType::float64, {1, 3}, {{2, 2}});
  const Layer single(DType::float32, {3, 1}, {{1, 0, false}});
  Ledger ledger;
  Stream stream{.ledger = &ledger};
  const Owned scratch(DType::float64, {1000});
  const auto expect_fault_of = [&](const std::string& text, auto... streams) {
    if constexpr ((std::is_same_v<decltype(streams), ShiftBackward> && ...)) {
      expect_fault("shift_rope_backward: " + text, [&] { shift_rope_backward(stream, {streams...}, scratch); });
    } else {
      expect_fault("shift_rope_forward: " + text, [&] { shift_rope_forward(stream, {streams...}); });
    }
  };
  const ShiftForward query = layer.forward(layer.streams[0]), key = layer.forward(layer.streams[1]);
  const ShiftForward value = layer.forward(layer.streams[2]);
  expect_fault("shift_rope_forward: 0 streams, not 1 to 3",
               [&] { shift_rope_forward(stream, std::vector<ShiftForward>()); });
  expect_fault_of("4 streams, not 1 to 3", query, key, value, query);
  expect_fault_of("streams hold float64 and float32", value, single.forward(single.streams[0]));
  const auto with = [&](auto change) {
    ShiftForward changed = key;
    change(changed.how);
    return changed;
  };
  const auto other_rope = with([&](ShiftRope& how) { how.rope = other.table; });
  const auto other_positions = with([&](ShiftRope& how) { how.positions = other.positions; });
  const auto other_start = with([&](ShiftRope& how) { how.shift_start = other.start; });
  expect_fault_of("all streams must share rope", query, other_rope);
  expect_fault_of("all streams must share positions", query, other_positions);
  expect_fault_of("all streams must share shift_start", value, other_start);
  // Blocks of a stream may run while those of another do.
  expect_fault_of("y overlaps x", ShiftForward{query.x, query.how, layer.streams[1].x}, key);
  const ShiftBackward of_query = layer.backward(layer.streams[0]), of_key = layer.backward(layer.streams[1]);
  const auto into = [&](const Owned& d_x) { return ShiftBackward{of_query.d_y, of_query.x, of_query.how, d_x, {}}; };
  expect_fault_of("d_x overlaps d_y", into(layer.streams[1].d_y), of_key);
  expect_fault_of("d_x overlaps x", of_key, into(layer.streams[1].x));
  shift_rope_backward(stream, {into(layer.streams[0].d_y), of_key}, scratch);  // in place, without taps
}

TEST(RopeTable, HoldsCosineAndSineOfPositionTimesFrequency) {
  Device device;
  Owned table(DType::float32, {2, 300, 4});
  rope_table(device.stream, 10000, table);
  for (const int64_t position : {0, 1, 17, 299}) {
    for (int64_t i = 0; i < 4; ++i) {
      const double angle = static_cast<double>(position) * std::pow(10000.0, -2.0 * static_cast<double>(i) / 8);
      EXPECT_NEAR(table[position * 4 + i], std::cos(angle), 0x1p-24);
      EXPECT_NEAR(table[(300 + position) * 4 + i], std::sin(angle), 0x1p-24);
    }
  }
}

TEST(ShiftRope, FaultsNameTheValues) {
  ShiftInputs in({3}, 2, 4, 2, true);
  Stream& stream = in.device.stream;
  Owned y(DType::float64, {3, 2, 6});
  expect_fault("shift_rope_forward: y is [3, 2, 6], not [3, 2, 4]",
               [&] { shift_rope_forward(stream, in.x, in.how, y); });
  ShiftRope how = in.how;
  const Owned three = random_tensor("t", {3, 2});
  how.taps = three;
  expect_fault("taps is [3, 2], not [2, 2]", [&] { shift_rope_forward(stream, in.x, how, in.y); });
  how = in.how;
  const std::vector<int32_t> far = {0, 1, 4};
  expect_fault("position 4 of row 2 is outside the table of 4", [&] { check_row_positions(far.data(), 3, 4); });
  const Owned carried = random_tensor("c", {2, 2, 4});
  how.carried = carried;
  expect_fault("carried is [2, 2, 4], not [1, 2, 4]", [&] { shift_rope_forward(stream, in.x, how, in.y); });
  const Owned odd = random_tensor("x", {3, 2, 5});
  expect_fault("head_dim 5 is odd", [&] { shift_rope_forward(stream, odd, in.how, in.y); });
  Owned scratch;
  expect_fault("d_taps must be given",
               [&] { shift_rope_backward(stream, in.y, in.x, in.how, in.y, Tensor(), scratch); });
  const Owned wide = random_tensor("r", {2, 3});
  expect_fault("the gate has 2 taps, not 3", [&] { shift_taps_forward(stream, wide, TapForm::gate, wide); });
  expect_fault("shift_rope_forward: y overlaps x", [&] { shift_rope_forward(stream, in.x, in.how, in.x.tensor()); });
  const Owned d_taps = random_tensor("d", {2, 2});
  expect_fault("shift_rope_backward: d_x overlaps d_y",
               [&] { shift_rope_backward(stream, in.y, in.x, in.how, in.y, d_taps, scratch); });
  const Owned more = random_tensor("m", {4, 2, 4});
  expect_fault("d_x overlaps x", [&] {
    shift_rope_backward(stream, in.y, more.tensor().rows(0, 3), in.how, more.tensor().rows(1, 3), d_taps, scratch);
  });
  const Owned single(DType::float32, {3, 2, 4});
  expect_fault("y holds float32, not float64", [&] { shift_rope_forward(stream, in.x, in.how, single); });
}

}  // namespace
}  // namespace shiftron::kernel_testing
