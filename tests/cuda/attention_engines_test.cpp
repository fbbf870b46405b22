// Which engine of cuDNN serves attention: offered, timed, kept, adopted; and the deterministic form.
#include <gmock/gmock.h>

#include "cuda/device_testing.h"
#include "cuda/dnn.h"
#include "kernels/all_cases.h"

namespace shiftron::kernel_testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// With scratch for either form on CUDA, of one sample or some.
KernelCase with_enough_scratch(KernelCase call) {
  const ConstTensor q(nullptr, DType::float32, call.arguments[0].shape, DeviceKind::meta);
  const ConstTensor k(nullptr, DType::float32, call.arguments[1].shape, DeviceKind::meta);
  Shape& scratch = call.arguments.back().shape;
  for (const bool deterministic : {false, true}) {
    Device device(DeviceKind::meta);
    device.stream.planned = DeviceKind::cuda;
    device.stream.deterministic = deterministic;
    for (const int64_t samples : {1, 2, 3, 4}) {
      const AttentionShape shape{.sequence_length = q.extent(0) / samples, .documents = false};
      for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const ConstTensor of_type(nullptr, dtype, q.shape(), DeviceKind::meta);
        scratch[0] = std::max(scratch[0], attention_scratch(device.stream, of_type, k, shape)[0]);
      }
    }
  }
  return call;
}

std::vector<KernelCase> cases_with_enough_scratch() {
  std::vector<KernelCase> cases;
  for (const KernelCase& call : all_cases()) {
    if (call.name.starts_with("attention")) cases.push_back(with_enough_scratch(call));
  }
  return cases;
}

void expect_matches(CudaDevice& device, const KernelCase& call) {
  expect_outcome_matches_specification(call, DType::bfloat16, 16, evaluate_on(device, call, DType::bfloat16, 16));
}

class AttentionEngines : public ::testing::TestWithParam<KernelCase> {};

// Timing changes nothing but what is chosen; what was chosen is used again.
TEST_P(AttentionEngines, MatchSpecificationWhileTheyAreTimed) {
  CudaDevice device;
  device.attention().time_candidates(true);
  for (int call = 0; call < 2; ++call) {
    expect_matches(device, GetParam());
    EXPECT_LE(device.attention().choices().of.size(), 1u);
    for (const auto& [problem, choice] : device.attention().choices().of) EXPECT_GT(choice.seconds, 0);
  }
  EXPECT_TRUE(device.attention().refusals().empty());
}

TEST_P(AttentionEngines, MatchSpecificationWhereTheyAreDeterministic) {
  CudaDevice device;
  device.stream.deterministic = true;
  expect_matches(device, GetParam());
  EXPECT_TRUE(device.attention().refusals().empty());
  for (const auto& [problem, choice] : device.attention().choices().of) EXPECT_EQ(choice.engine, 2);
}

INSTANTIATE_TEST_SUITE_P(All, AttentionEngines, ::testing::ValuesIn(cases_with_enough_scratch()),
                         [](const auto& parameter) { return parameter.param.name; });

constexpr const char* kForward = "attention_forward_grouped";
constexpr const char* kBackward = "attention_backward_grouped";

AttentionChoices chosen_by(bool timed, const std::string& name) {
  CudaDevice device;
  device.attention().time_candidates(timed);
  evaluate_on(device, case_of(cases_with_enough_scratch(), name), DType::bfloat16, 0);
  return device.attention().choices();
}

TEST(AttentionChoices, OfTheFirstEngineAreNotTimed) {
  const AttentionChoices chosen = chosen_by(false, kForward);
  ASSERT_EQ(chosen.of.size(), 1u);
  EXPECT_EQ(chosen.of.begin()->second.engine, 1);
  EXPECT_EQ(chosen.of.begin()->second.seconds, 0);
}

// Each of the three that are offered runs seven times or more, one of them once more.
TEST(AttentionChoices, AreMadeOnceByTiming) {
  CudaDevice device;
  device.attention().time_candidates(true);
  const int64_t before = machine::executed_plans();
  evaluate_on(device, case_of(cases_with_enough_scratch(), kBackward), DType::bfloat16, 0);
  const int64_t behind = machine::executed_plans();
  EXPECT_GE(behind, before + 3 * 7 + 1);
  evaluate_on(device, case_of(cases_with_enough_scratch(), kBackward), DType::bfloat16, 0);
  EXPECT_EQ(machine::executed_plans(), behind + 1);
}

TEST(AttentionChoices, AreTheFastest) {
  constexpr int64_t kDelay = 30;  // milliseconds; the small case takes far less
  for (const int64_t slow : {1, 2}) {
    machine::delay_engine(slow, kDelay);
    const AttentionChoice choice = chosen_by(true, kForward).of.begin()->second;
    EXPECT_NE(choice.engine, slow);
    EXPECT_LT(choice.seconds, 1e-3 * kDelay);
  }
  machine::delay_engine(0, 0);
}

// So does what fails where it is executed, until nothing is left.
TEST(AttentionChoices, AreMadeAmongWhatCanBeExecuted) {
  const KernelCase call = case_of(cases_with_enough_scratch(), kBackward);
  machine::fail_engine(1, CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
  {
    CudaDevice device;
    device.attention().time_candidates(true);
    expect_matches(device, call);
    EXPECT_EQ(device.attention().choices().of.begin()->second.engine, 2);
    EXPECT_THAT(device.attention().untimed(),
                ElementsAre(StartsWith("engine 1 fails: cudnnBackendExecute for attention backward")));
  }
  machine::fail_engine(machine::kEveryEngine, CUDNN_STATUS_EXECUTION_FAILED);
  {
    CudaDevice device;
    device.attention().time_candidates(true);
    EXPECT_THROW(evaluate_on(device, call, DType::bfloat16, 0), Error);
  }
  machine::fail_engine(0, CUDNN_STATUS_SUCCESS);
}

TEST(AttentionChoices, AreNotMadeByALibraryThatIsTooOld) {
  machine::pretend_dnn_version(91802);
  try {
    const CudaDevice device;
    ADD_FAILURE() << "nothing was said";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_NE(std::string(error.what()).find("cuDNN 9.18.2 is loaded, but 9.19 or later is needed"), std::string::npos)
        << error.what();
  }
  machine::pretend_dnn_version(0);
}

// What is refused leaves the choice to the others.
TEST(AttentionChoices, AreMadeAmongWhatCanBePlanned) {
  machine::refuse_next_plans(1, CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
  EXPECT_EQ(chosen_by(false, kForward).of.begin()->second.engine, 2);
  machine::refuse_next_plans(2, CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
  const AttentionChoice last = chosen_by(true, kBackward).of.begin()->second;
  EXPECT_EQ(last.engine, 2);
  EXPECT_TRUE(last.knobs.empty());
}

// A choice that is not what would be taken here is taken where it is adopted.
TEST(AttentionChoices, AreAdopted) {
  AttentionChoices chosen = chosen_by(false, kBackward);
  ASSERT_EQ(chosen.of.size(), 1u);
  AttentionChoice& choice = chosen.of.begin()->second;
  ASSERT_EQ(choice.knobs.size(), 1u);
  choice.engine = 2;
  ++choice.knobs.begin()->second;
  choice.workspace = 8192;
  CudaDevice device;
  device.attention().time_candidates(true);
  evaluate_on(device, case_of(cases_with_enough_scratch(), kBackward), DType::bfloat16, 0);  // and plans are dropped
  device.attention().adopt(attention_choices_from(to_json(chosen), "a file"));
  const int64_t before = machine::executed_plans();
  const KernelCase call = case_of(cases_with_enough_scratch(), kBackward);
  expect_outcome_matches_specification(call, DType::bfloat16, 0, evaluate_on(device, call, DType::bfloat16, 0));
  EXPECT_EQ(machine::executed_plans(), before + 1);
  EXPECT_EQ(device.attention().choices(), chosen);
}

TEST(AttentionChoices, OfAnotherDeviceOrVersionAreRefused) {
  CudaDevice device;
  AttentionChoices other = device.attention().choices();
  other.device = "another device";
  expect_fault("attention was chosen on another device", [&] { device.attention().adopt(other); });
  other = device.attention().choices();
  other.library += 1;
  expect_fault("attention was chosen on a device with cuDNN ", [&] { device.attention().adopt(other); });
}

// They are no reason to fall back to other kernels: another rank would not.
TEST(AttentionChoices, OfNoMeaningAreRefused) {
  for (const auto& break_choice : std::initializer_list<void (*)(AttentionChoice&)>{
           [](AttentionChoice& choice) { choice.engine = 5; },
           [](AttentionChoice& choice) { choice.knobs.begin()->second += 7; },
           [](AttentionChoice& choice) { choice.knobs[99] = 0; }}) {
    AttentionChoices chosen = chosen_by(false, kForward);
    break_choice(chosen.of.begin()->second);
    CudaDevice device;
    device.attention().adopt(chosen);
    expect_fault("cudnnBackendFinalize for attention forward",
                 [&] { evaluate_on(device, case_of(cases_with_enough_scratch(), kForward), DType::bfloat16, 0); });
  }
}

AttentionProblem small_problem() {
  AttentionProblem problem{.samples = 1, .length = 4, .heads = 1, .kv_heads = 1, .head_dim = 8};
  problem.q = problem.k = problem.v = problem.out = {8, 8};
  problem.statistics = 4;
  return problem;
}

// An engine that needs more memory than there is is reported when it is to be timed.
TEST(AttentionChoices, AreMadeAmongWhatHasRoom) {
  constexpr int64_t kRoomOfTheFirst = 6000;  // bytes
  for (const bool timed : {true, false}) {
    CudaDevice device;
    device.attention().time_candidates(timed);
    ASSERT_TRUE(device.attention().serves(small_problem(), kRoomOfTheFirst));
    if (!timed) {
      EXPECT_THAT(device.attention().untimed(), IsEmpty());
      continue;
    }
    const auto told = StartsWith(
        "engine 2 needs a workspace of 8192 bytes, but only 6000 are free for attention forward: 1 samples of 4 rows");
    EXPECT_THAT(device.attention().untimed(), ElementsAre(told, told));
  }
}

// Engines ask for 4,096 and 8,192 bytes.
TEST(AttentionChoices, FitIntoTheScratch) {
  CudaAttention attention("a device");
  EXPECT_TRUE(attention.serves(small_problem(), 4096));
  EXPECT_TRUE(attention.refusals().empty());
  AttentionProblem problem = small_problem();
  problem.samples = 2;
  EXPECT_FALSE(attention.serves(problem, 4095));
  problem.deterministic = true;
  EXPECT_FALSE(attention.serves(problem, 8191));
  problem.samples = 3;
  EXPECT_TRUE(attention.serves(problem, 8192));
  ASSERT_EQ(attention.refusals().size(), 2u);
  EXPECT_NE(attention.refusals()[0].find("engine 1 needs a workspace of 4096 bytes, but only 4095 are free"),
            std::string::npos)
      << attention.refusals()[0];
}

// A backward keeps delta and d_q in float32, 256 bytes each, in front of what engines ask for.
TEST(AttentionChoices, FitBehindWhatThePlanKeeps) {
  CudaAttention attention("a device");
  AttentionProblem problem = small_problem();
  problem.pass = AttentionPass::backward;
  problem.d_out = problem.d_q = problem.d_k = problem.d_v = problem.q;
  problem.documents = false;
  EXPECT_FALSE(attention.serves(problem, 512 + 4095));
  problem.samples = 2;
  EXPECT_TRUE(attention.serves(problem, 512 + 4096));
}

// With more problems than fit, the least recently used one is planned again, and a dropped plan has finished: otherwise
// the emulator reports a fault.
TEST(AttentionChoices, AreKeptWhereAPlanIsDropped) {
  CudaDevice device;
  CudaAttention& attention = device.attention();
  void* memory = nullptr;
  expect_done(cudaMalloc(&memory, 1 << 20));
  const DeviceOwner<void> owner(memory);
  const auto place = [&](int64_t i) { return static_cast<char*>(memory) + 4096 * i; };
  const Tensor scratch(place(64), DType::float32, {16384}, DeviceKind::cuda);
  const auto run = [&](int64_t samples) {
    AttentionProblem problem = small_problem();
    problem.samples = samples;
    problem.documents = false;
    ASSERT_TRUE(attention.serves(problem, scratch.bytes()));
    attention.run(device.handle(), problem,
                  {{cuda::kQuery, place(0)},
                   {cuda::kKey, place(1)},
                   {cuda::kValue, place(2)},
                   {cuda::kOut, place(3)},
                   {cuda::kStatistics, place(4)}},
                  scratch);
  };
  const int64_t before = machine::living_graph_objects();
  run(1);
  const int64_t of_one = machine::living_graph_objects() - before;
  run(2);
  for (int64_t length = 5; length < 5 + 256; ++length) {
    AttentionProblem problem = small_problem();
    problem.length = length;
    problem.documents = false;
    ASSERT_TRUE(attention.serves(problem, 1 << 20));
  }
  EXPECT_EQ(machine::living_graph_objects(), before + 256 * of_one);
  run(1);
  device.wait();
  EXPECT_EQ(attention.choices().of.size(), 2u);
}

// ---- the deterministic form -----------------------------------------------------------------------------------------

// Whether calls give the same bits: two in a random order of sums may by chance, eight do not.
bool repeats(bool deterministic, const std::string& name) {
  CudaDevice device;
  device.stream.deterministic = deterministic;
  const KernelCase call = case_of(cases_with_enough_scratch(), name);
  const Outcome first = evaluate_on(device, call, DType::bfloat16, 0);
  bool same = true;
  for (int call_number = 2; same && call_number <= 8; ++call_number) {
    const Outcome again = evaluate_on(device, call, DType::bfloat16, 0);
    for (size_t i = 0; i < first.values.size(); ++i) {
      if (is_result(call.arguments[i]) && first.values[i] != again.values[i]) same = false;
    }
  }
  EXPECT_EQ(device.attention().choices().of.size(), 1u);
  return same;
}

TEST(AttentionDeterminism, IsAskedFor) {
  for (const char* name : {kForward, kBackward}) {
    EXPECT_TRUE(repeats(true, name)) << name;
    EXPECT_FALSE(repeats(false, name)) << name;
  }
}

TEST(AttentionDeterminism, GoesInPiecesOfWholeSamplesOrOfHeads) {
  const auto cut = [](int64_t samples, int64_t length, int64_t group, int64_t kv_heads) {
    AttentionProblem problem{.pass = AttentionPass::backward, .samples = samples, .length = length};
    problem.heads = group * kv_heads;
    problem.kv_heads = kv_heads;
    problem.deterministic = true;
    const AttentionProblem piece = cuda::attention_piece(problem);
    EXPECT_EQ(piece.heads, group * piece.kv_heads);
    return std::pair(piece.samples, piece.kv_heads);
  };
  EXPECT_EQ(cut(8, 2048, 1, 16), std::pair(int64_t{4}, int64_t{16}));  // 8 MiB a head: 512 MiB
  EXPECT_EQ(cut(8, 2048, 1, 20), std::pair(int64_t{2}, int64_t{20}));  // 3 do not divide 8
  EXPECT_EQ(cut(8, 4096, 5, 4), std::pair(int64_t{1}, int64_t{2}));    // 160 MiB a KV head
  EXPECT_EQ(cut(1, 12288, 12, 4), std::pair(int64_t{1}, int64_t{1}));  // more than is meant, and no less is possible
  EXPECT_EQ(cut(3, 100, 1, 1), std::pair(int64_t{3}, int64_t{1}));
}

// Four samples of 8 rows, 4 query heads on 2 KV heads.
std::vector<KernelCase> cases_of(const std::vector<int64_t>& documents) {
  std::vector<KernelCase> cases;
  add_attention_cases(cases, {"of_samples", documents, 8, 4, 2, 16});
  std::transform(cases.begin(), cases.end(), cases.begin(), with_enough_scratch);
  return cases;
}

TEST(AttentionDeterminism, PiecesMakeTheWhole) {
  const int64_t of_head = 2 * 2 * 128 * 128;  // bytes of scores of a KV head, in tiles
  for (const auto& [most, pieces] :
       std::initializer_list<std::pair<int64_t, int64_t>>{{16 * of_head, 1}, {4 * of_head, 2}, {of_head, 8}, {0, 8}}) {
    CudaDevice device;
    CudaAttention attention("a device", most);
    device.context().attention = &attention;
    device.stream.deterministic = true;
    const KernelCase call = cases_of({3, 5, 1, 7, 8, 2, 6}).at(1);
    const int64_t before = machine::executed_plans();
    expect_matches(device, call);
    EXPECT_EQ(machine::executed_plans(), before + pieces);
    EXPECT_EQ(attention.choices().of.size(), 1u);
  }
}

// Pieces whose memory does not lie as plans want it: samples of 7 rows.
TEST(AttentionDeterminism, IsLeftToOtherKernelsWherePiecesAreNotAligned) {
  CudaDevice device;
  CudaAttention attention("a device", 0);
  device.context().attention = &attention;
  device.stream.deterministic = true;
  std::vector<KernelCase> cases;
  add_attention_cases(cases, {"of_samples", {7, 7}, 7, 4, 2, 16});
  expect_matches(device, with_enough_scratch(cases.at(1)));
  ASSERT_EQ(attention.refusals().size(), 1u);
  EXPECT_NE(attention.refusals()[0].find("unaligned pieces"), std::string::npos);
}

// Without documents no start is read: those that are given here are wrong.
TEST(AttentionDocuments, AreNotAskedForWhereThereAreNone) {
  const AttentionShape shape{.sequence_length = 8, .documents = false};
  std::vector<KernelCase> whole = cases_of({8, 8, 8, 8}), cut = cases_of({3, 5, 1, 7, 8, 2, 6});
  whole[0].run = [shape](Stream& s, const Tensors& a) {
    attention_forward(s, a[0], a[1], a[2], a[3], shape, a[4], a[5], a[6]);
  };
  whole[1].run = [shape](Stream& s, const Tensors& a) {
    attention_backward(s, a[4], a[0], a[1], a[2], a[5], a[6], a[3], shape, a[7], a[8], a[9], a[10]);
  };
  for (size_t pass = 0; pass < 2; ++pass) {
    CudaDevice device;
    KernelCase wrong = whole[pass];
    wrong.arguments[3].values = cut[pass].arguments[3].values;
    const Outcome found = evaluate_on(device, wrong, DType::bfloat16, 0);
    const auto& chosen = device.attention().choices().of;
    ASSERT_EQ(chosen.size(), 1u);
    EXPECT_FALSE(chosen.begin()->first.documents);
    expect_outcome_matches_specification(whole[pass], DType::bfloat16, 0, found);
  }
}

}  // namespace
}  // namespace shiftron::kernel_testing
