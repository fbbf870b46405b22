// Wrong configurations, each with every message that it must give, and only those.
#include "config/validate.h"

#include <gmock/gmock.h>

#include "config/config_text.h"
#include "config/faults.h"
#include "config/settings.h"
#include "core/has_cuda.h"
#include "core/stream.h"
#include "expect_error.h"

namespace shiftron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Wrong {
  Pairs pairs;
  std::vector<std::string> faults;
  int ranks = 1;
};

TEST(Validate, AcceptsTheSmallConfiguration) {
  EXPECT_THAT(find_faults(small_config(), 1), IsEmpty());
  EXPECT_THAT(find_faults(small_config(), 16), IsEmpty());
  EXPECT_NO_THROW(validate(small_config(), 1));
}

TEST(Validate, NamesTheFaultOfEachWrongConfiguration) {
  const std::vector<Wrong> all = {
      // Unknown keys.
      {{{"model.hiden", "64"}}, {"unknown key model.hiden; did you mean model.hidden? (a.conf:1)"}},
      {{{"train.tp", "2"}}, {"unknown key train.tp; did you mean parallel.tp? (a.conf:1)"}},
      {{{"hidden", "64"}}, {"unknown key hidden; did you mean model.hidden? (a.conf:1)"}},
      {{{"cluster.interconnect", "fast"}}, {"unknown key cluster.interconnect (a.conf:1)"}},
      // Unreadable values.
      {{{"model.hidden", "abc"}}, {"model.hidden 'abc' is not a whole number (a.conf:1)"}},
      {{{"model.hidden", "64.5"}}, {"model.hidden '64.5' is not a whole number (a.conf:1)"}},
      {{{"model.hidden", ""}}, {"model.hidden '' is not a whole number (a.conf:1)"}},
      {{{"train.steps", "99999999999999999999"}},
       {"train.steps '99999999999999999999' is too large or too close to 0 for a floating-point number (a.conf:1)"}},
      {{{"parallel.tp", "two"}}, {"parallel.tp 'two' is not a whole number (a.conf:1)"}},
      {{{"optimizer.learning_rate", "1e-3x"}}, {"optimizer.learning_rate '1e-3x' is not a finite number (a.conf:1)"}},
      {{{"optimizer.clip", "nan"}}, {"optimizer.clip 'nan' is not a finite number (a.conf:1)"}},
      {{{"model.rope_base", "inf"}}, {"model.rope_base 'inf' is not a finite number (a.conf:1)"}},
      {{{"model.tie_embeddings", "maybe"}}, {"model.tie_embeddings 'maybe' is not one of true, false (a.conf:1)"}},
      {{{"train.precision", "fp16"}}, {"train.precision 'fp16' is not one of fp32, bf16, fp64 (a.conf:1)"}},
      {{{"shift.form", "Free"}}, {"shift.form 'Free' is not one of free, gate, clamp, project (a.conf:1)"}},
      {{{"optimizer.betas", "0.9"}}, {"optimizer.betas '0.9' is not two numbers as in 0.9,0.95 (a.conf:1)"}},
      {{{"checkpoint.resume", "last"}},
       {"checkpoint.resume 'last' is not one of auto, never, or a step number (a.conf:1)"}},
      {{{"parallel.stage_layers", "2,x"}},
       {"parallel.stage_layers '2,x' is not a list of whole numbers as in 7,7,7,7 (a.conf:1)"}},
      {{{"parallel.recompute", "all"}},
       {"parallel.recompute 'all' is not one of none, selective, full, nor a list of these for all stages as in "
        "full,selective,none,none (a.conf:1)"}},
      {{{"parallel.recompute", "full,,none"}},
       {"parallel.recompute 'full,,none' is not one of none, selective, full, nor a list of these for all stages as in "
        "full,selective,none,none (a.conf:1)"}},
      {{{"parallel.rank_order", "tp,pp,dp"}},
       {"parallel.rank_order 'tp,pp,dp' does not name each of tp, cp, dp, pp once, as in tp,pp,cp,dp (a.conf:1)"}},
      {{{"parallel.rank_order", "tp,pp,dp,tp"}},
       {"parallel.rank_order 'tp,pp,dp,tp' does not name each of tp, cp, dp, pp once, as in tp,pp,cp,dp (a.conf:1)"}},
      {{{"parallel.rank_order", "tp,pp,dp,ep"}},
       {"parallel.rank_order 'tp,pp,dp,ep' does not name each of tp, cp, dp, pp once, as in tp,pp,cp,dp (a.conf:1)"}},
      {{{"train.seed", "1"}, {"train.seed", "2"}}, {"train.seed is given twice, first at a.conf:1 (a.conf:2)"}},
      // Ranges.
      {{{"model.hidden", "0"}}, {"model.hidden 0 must be >= 1 (a.conf:1)"}},
      {{{"model.layers", "-4"}}, {"model.layers -4 must be >= 1 (a.conf:1)"}},
      {{{"model.kv_heads", "0"}}, {"model.kv_heads 0 must be >= 1 (a.conf:1)"}},
      {{{"model.layers", "100000"}}, {"model.layers 100000 must be <= 4096 (a.conf:1)"}},
      {{{"model.vocab", "3000000000"}}, {"model.vocab 3000000000 must be <= 2147483647 (a.conf:1)"}},
      {{{"output.directory", "caf\xE9/run"}}, {"output.directory caf\\xE9/run must be UTF-8; rename it (a.conf:1)"}},
      {{{"data.train", "caf\xE9/train"}}, {"data.train caf\\xE9/train path must be UTF-8; rename it (a.conf:1)"}},
      {{{"data.validation", "\xFF"}}, {"data.validation \\xFF path must be UTF-8; rename it (a.conf:1)"}},
      {{{"model.rope_base", "0"}}, {"model.rope_base 0 must be > 0 (a.conf:1)"}},
      {{{"model.norm_epsilon", "-1e-5"}}, {"model.norm_epsilon -1e-05 must be >= 1e-37 (a.conf:1)"}},
      {{{"shift.key", "4"}}, {"shift.key 4 must be <= 3 (a.conf:1)"}},
      {{{"train.micro_batch", "0"}}, {"train.micro_batch 0 must be >= 1 (a.conf:1)"}},
      {{{"train.seed", "-1"}}, {"train.seed -1 must be >= 0 (a.conf:1)"}},
      {{{"train.stop_at", "-1"}}, {"train.stop_at -1 must be >= 0 (a.conf:1)"}},
      {{{"optimizer.learning_rate", "0"}}, {"optimizer.learning_rate 0 must be >= 1e-37 (a.conf:1)"}},
      {{{"optimizer.betas", "0.9,1"}}, {"optimizer.betas 0.9,1 must be < 1 (a.conf:1)"}},
      {{{"optimizer.betas", "-0.1,0.9"}}, {"optimizer.betas -0.1,0.9 must be >= 0 (a.conf:1)"}},
      {{{"optimizer.final_fraction", "1.5"}}, {"optimizer.final_fraction 1.5 must be <= 1 (a.conf:1)"}},
      {{{"optimizer.clip", "-1"}}, {"optimizer.clip -1 must be >= 0 (a.conf:1)"}},
      {{{"parallel.tp", "0"}}, {"parallel.tp 0 must be >= 1 (a.conf:1)"}},
      {{{"parallel.zero", "2"}}, {"parallel.zero 2 must be <= 1 (a.conf:1)"}},
      {{{"parallel.stage_layers", "4,0"}}, {"parallel.stage_layers 4,0 entries must be >= 1 (a.conf:1)"}},
      {{{"data.train", "corpus:0"}},
       {"data.train 'corpus:0' has a weight that is not a positive number (form: path:weight) (a.conf:1)"}},
      {{{"data.train", "corpus:0.5x"}},
       {"data.train 'corpus:0.5x' has a weight that is not a positive number (form: path:weight) (a.conf:1)"}},
      {{{"data.train", "a:1"}, {"data.train", "b"}, {"data.train", "c:2"}},
       {"data.train: 2 of 3 sources have a weight; give a weight to all or to none (a.conf:3)"}},
      {{{"data.train", "cor#pus"}}, {"data.train cor#pus path must not contain '#' or a line break (a.conf:1)"}},
      {{{"data.train", ":2"}}, {"data.train :2 path must not begin or end with blanks (a.conf:1)"}},
      {{{"checkpoint.keep", "0"}}, {"checkpoint.keep 0 must be >= 1 (a.conf:1)"}},
      {{{"checkpoint.resume", "-5"}}, {"checkpoint.resume -5 must be >= 0 (a.conf:1)"}},
      {{{"fault.setup_deadline", "0"}}, {"fault.setup_deadline 0 must be > 0 (a.conf:1)"}},
      {{{"fault.non_finite_in_row", "0"}}, {"fault.non_finite_in_row 0 must be >= 1 (a.conf:1)"}},
      {{{"output.directory", " run"}}, {"output.directory  run must not begin or end with blanks (a.conf:1)"}},
      {{{"output.directory", "\"q run\""}}, {"output.directory \"q run\" must be written without quotes (a.conf:1)"}},
      {{{"data.train", "'corpus'"}}, {"data.train 'corpus' path must be written without quotes (a.conf:1)"}},
      {{{"output.directory", "a\"b"}}, {}},
      {{{"output.directory", "\""}}, {}},
      {{{"evaluation.fewshot", "-1"}}, {"evaluation.fewshot -1 must be >= 0 (a.conf:1)"}},
      {{{"evaluation.limit", "-1"}}, {"evaluation.limit -1 must be >= 0 (a.conf:1)"}},
      {{{"evaluation.max_gen_toks", "0"}}, {"evaluation.max_gen_toks 0 must be >= 1 (a.conf:1)"}},
      {{{"evaluation.bos", "2"}}, {"evaluation.bos '2' is not one of tokenizer, 0, 1 (a.conf:1)"}},
      {{{"output.log_every", "0"}}, {"output.log_every 0 must be >= 1 (a.conf:1)"}},
      {{{"device.threads", "-1"}}, {"device.threads -1 must be >= 0 (a.conf:1)"}},
      // Required where another key asks for it.
      {{{"evaluation.every", "10"}},
       {"data.validation is required: dataset directory for evaluation; repeatable, each is also reported separately"}},
      {{{"evaluation.tasks", "hellaswag"}, {"evaluation.every", "10"}},
       {"evaluation.data is required: folder with the benchmarks' data files"}},
      {{{"output.directory", ""}}, {"output.directory is required: the run's directory (a.conf:1)"}},
      {{{"data.train", ""}}, {"data.train is required: dataset directory and its weight in the blend; repeatable"}},
      // Keys against each other.
      {{{"evaluation.tasks", "hellaswag"}, {"evaluation.data", "d"}},
       {"tasks need evaluation.every, the number of steps between evaluations (evaluation.tasks: a.conf:1)"}},
      {{{"model.heads", "20"}, {"model.head_dim", "8"}, {"parallel.tp", "8"}},
       {"heads 20 not divisible by tp 8 (model.heads: a.conf:1, parallel.tp: a.conf:3)"},
       8},
      {{{"model.heads", "6"}, {"model.head_dim", "8"}},
       {"heads 6 not divisible by kv_heads 4 (model.heads: a.conf:1)"}},
      {{{"model.kv_heads", "6"}, {"model.heads", "12"}, {"model.head_dim", "8"}, {"parallel.tp", "4"}},
       {"kv_heads 6 and tp 4: one must divide the other (model.kv_heads: a.conf:1, parallel.tp: a.conf:4)"},
       4},
      {{{"model.hidden", "100"}}, {"hidden 100 not divisible by heads 8: set model.head_dim (model.hidden: a.conf:1)"}},
      {{{"model.head_dim", "7"}}, {"head_dim 7 not divisible by 2, as rotary positions need (a.conf:1)"}},
      {{{"model.hidden", "72"}}, {"head_dim 9 not divisible by 2, as rotary positions need"}},
      {{{"model.ffn", "130"}, {"parallel.tp", "4"}},
       {"ffn 130 not divisible by tp 4 (model.ffn: a.conf:1, parallel.tp: a.conf:2)"},
       4},
      {{{"model.vocab", "3"}, {"parallel.tp", "4"}},
       {"vocab 3 below tp 4 (model.vocab: a.conf:1, parallel.tp: a.conf:2)"},
       4},
      {{{"parallel.pp", "8"}}, {"layers 4 below pp 8 (parallel.pp: a.conf:1)"}, 8},
      {{{"parallel.pp", "2"}, {"parallel.stage_layers", "2,1,1"}},
       {"stage_layers has 3 entries, but pp is 2 (parallel.stage_layers: a.conf:2, parallel.pp: a.conf:1)"},
       2},
      {{{"parallel.pp", "2"}, {"parallel.recompute", "full,none,none"}},
       {"recompute has 3 entries, but pp is 2; give one, or one per stage (parallel.recompute: a.conf:2, parallel.pp: "
        "a.conf:1)"},
       2},
      {{{"parallel.pp", "3"}, {"parallel.recompute", "full,none"}},
       {"recompute has 2 entries, but pp is 3; give one, or one per stage (parallel.recompute: a.conf:2, parallel.pp: "
        "a.conf:1)"},
       3},
      {{{"parallel.pp", "2"}, {"parallel.stage_layers", "2,3"}},
       {"stage_layers sum to 5, but layers is 4 (parallel.stage_layers: a.conf:2)"},
       2},
      {{{"parallel.tp", "2"}}, {"ranks 3 not divisible by tp 2 * cp 1 * pp 1 = 2 (parallel.tp: a.conf:1)"}, 3},
      {{{"train.sequence_length", "33"}, {"parallel.tp", "2"}},
       {"rows micro_batch 1 * sequence_length 33 = 33 not divisible by tp 2 (train.sequence_length: a.conf:1, "
        "parallel.tp: a.conf:2)"},
       2},
      {{{"train.micro_batch", "3"}},
       {"global_batch 16 not divisible by micro_batch 3 * dp 1 = 3 (train.micro_batch: a.conf:1)"}},
      {{{"train.micro_batch", "4"}, {"parallel.tp", "2"}},
       {"global_batch 16 not divisible by micro_batch 4 * dp 3 = 12 (train.micro_batch: a.conf:1)"},
       6},
      {{{"optimizer.warmup", "60"}, {"optimizer.decay_steps", "41"}, {"optimizer.schedule", "linear"}},
       {"warmup 60 + decay_steps 41 exceed steps 100 (optimizer.warmup: a.conf:1, optimizer.decay_steps: a.conf:2)"}},
      {{{"optimizer.warmup", "81"}, {"optimizer.schedule", "wsd"}},
       {"warmup 81 + decay_steps 20 exceed steps 100 (optimizer.warmup: a.conf:1)"}},
      {{{"optimizer.warmup", "101"}, {"optimizer.schedule", "cosine"}},
       {"warmup 101 + decay_steps 0 exceed steps 100 (optimizer.warmup: a.conf:1)"}},
      {{{"train.stop_at", "101"}}, {"stop_at 101 exceeds steps 100 (train.stop_at: a.conf:1)"}},
      {{{"checkpoint.resume", "101"}}, {"resume 101 exceeds steps 100 (checkpoint.resume: a.conf:1)"}},
      {{{"checkpoint.every", "20"}, {"checkpoint.keep_every", "30"}},
       {"keep_every 30 not divisible by every 20 (checkpoint.keep_every: a.conf:2, checkpoint.every: a.conf:1)"}},
      {{{"shift.form", "gate"}, {"shift.key", "2"}},
       {"form gate allows one previous token, but shift.key is 2 (shift.form: a.conf:1, shift.key: a.conf:2)"}},
      {{{"shift.form", "clamp"}, {"shift.query", "3"}, {"shift.value", "2"}},
       {"form clamp allows one previous token, but shift.query is 3 (shift.form: a.conf:1, shift.query: a.conf:2)",
        "form clamp allows one previous token, but shift.value is 2 (shift.form: a.conf:1, shift.value: "
        "a.conf:3)"}},
      {{{"shift.form", "project"}, {"shift.key", "2"}},
       {"form project allows one previous token, but shift.key is 2 (shift.form: a.conf:1, shift.key: a.conf:2)"}},
      {{{"shift.form", "gate"}, {"shift.init", "identity"}},
       {"form gate cannot start as the identity: its logit would be infinite (shift.form: a.conf:1, shift.init: "
        "a.conf:2)"}},
      // What could not be counted.
      {{{"model.hidden", "2000000000"}, {"model.vocab", "2000000000"}, {"model.head_dim", "8"}},
       {"the model has 8e+18 parameters; the maximum is 1e+16; lower model.* (model.hidden: a.conf:1, model.head_dim: "
        "a.conf:3, model.vocab: a.conf:2)",
        "1.2288e+22 operations per rank and step; the maximum is 1e+18; lower train.global_batch, "
        "train.sequence_length or model.*, or use more ranks"}},
      {{{"train.sequence_length", "2000000000"},
        {"train.micro_batch", "2"},
        {"model.hidden", "8"},
        {"model.heads", "1"},
        {"model.kv_heads", "1"}},
       {"rows micro_batch 2 * sequence_length 2000000000 = 4000000000; the maximum is 2147483647 (train.micro_batch: "
        "a.conf:2, train.sequence_length: a.conf:1)",
        "1.2288e+22 operations per rank and step; the maximum is 1e+18; lower train.global_batch, "
        "train.sequence_length or model.*, or use more ranks (train.sequence_length: a.conf:1)"}},
      // A stage is all of its pieces: 16 of 32 layers, not one of them.
      {{{"parallel.pp", "2"},
        {"parallel.pipeline", "interleaved"},
        {"parallel.chunks", "16"},
        {"parallel.stage_layers", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"},
        {"model.layers", "32"},
        {"model.hidden", "65536"},
        {"train.global_batch", "1000"},
        {"train.sequence_length", "4096"}},
       {"5.18244e+18 operations per rank and step; the maximum is 1e+18; lower train.global_batch, "
        "train.sequence_length or model.*, or use more ranks (train.global_batch: a.conf:7, train.sequence_length: "
        "a.conf:8)"},
       2},
      {{{"train.global_batch", "2000000000"}},
       {"global_batch 2000000000 / (micro_batch 1 * dp 1) = 2000000000 microbatches per rank and step; the maximum is "
        "1048576 (train.global_batch: a.conf:1)"}},
      {{{"parallel.tp", "2"}},
       {"ranks 2000000; the maximum is 1000000 (parallel.tp: a.conf:1)",
        "global_batch 16 not divisible by micro_batch 1 * dp 1000000 = 1000000"},
       2000000},
      // Schedules.
      {{{"parallel.chunks", "2"}},
       {"pipeline 1f1b has 1 chunk, not 2: set parallel.pipeline=interleaved (parallel.chunks: a.conf:1)"}},
      {{{"parallel.pipeline", "interleaved"}},
       {"pipeline interleaved needs parallel.chunks of 2 or more, not 1 (parallel.pipeline: a.conf:1)"}},
      {{{"parallel.pipeline", "zb-v"}, {"parallel.chunks", "3"}},
       {"pipeline zb-v has 2 chunks, not 3 (parallel.pipeline: a.conf:1, parallel.chunks: a.conf:2)"}},
      {{{"parallel.pipeline", "interleaved"}, {"parallel.chunks", "1000"}},
       {"layers 4 below pp 1 * chunks 1000 (parallel.chunks: a.conf:2)"}},
      // Not built yet.
      {{{"train.deterministic", "layouts"}},
       {"train.deterministic layouts is not implemented; this version has off, repeat (a.conf:1)"}},
      {{{"parallel.cp", "2"}}, {"parallel.cp 2 is not implemented; this version has 1 (a.conf:1)"}, 2},
      {{{"checkpoint.asynchronous", "true"}},
       {"checkpoint.asynchronous true is not implemented; this version has false (a.conf:1)"}},
  };
  for (const Wrong& wrong : all) {
    std::string name;
    for (const auto& [key, text] : wrong.pairs) name += key + "=" + text + " ";
    SCOPED_TRACE(name);
    EXPECT_THAT(find_faults(small_config_with(wrong.pairs), wrong.ranks), ::testing::ElementsAreArray(wrong.faults));
  }
}

TEST(Validate, AGpuNeedsABuildWithCuda) {
  const Pairs gpu = {{"device.kind", "cuda"}},
              double_precision = {{"device.kind", "cuda"}, {"train.precision", "fp64"}},
              widest = {{"device.kind", "cuda"}, {"model.head_dim", "256"}},
              too_wide = {{"device.kind", "cuda"}, {"model.head_dim", "258"}};
  EXPECT_THAT(find_faults(small_config_with(gpu), 1, Use::dry_run), IsEmpty());
  EXPECT_THAT(find_faults(small_config_with(double_precision), 1, Use::dry_run),
              ElementsAre(HasSubstr("precision fp64 is not available on device cuda")));
  EXPECT_THAT(find_faults(small_config_with(widest), 1, Use::dry_run), IsEmpty());
  EXPECT_THAT(find_faults(small_config_with(too_wide), 1, Use::dry_run),
              ElementsAre("head_dim 258 is not available on device cuda, whose attention has heads of up to 256 "
                          "(device.kind: a.conf:1, model.head_dim: a.conf:2)"));
  if (!kHasCuda) {
    EXPECT_THAT(find_faults(small_config_with(gpu), 1),
                ElementsAre("device.kind cuda is not implemented; this version has cpu (a.conf:1)"));
    return;
  }
  for (const int ranks : {1, 2}) EXPECT_THAT(find_faults(small_config_with(gpu), ranks), IsEmpty());
  EXPECT_THAT(find_faults(small_config_with(double_precision), 1),
              ElementsAre(HasSubstr("precision fp64 is not available on device cuda")));
}

TEST(Validate, AcceptsTheBordersOfItsRanges) {
  const std::vector<Pairs> all = {
      {{"train.stop_at", "100"}},
      {{"checkpoint.resume", "100"}},
      {{"optimizer.warmup", "80"}, {"optimizer.schedule", "wsd"}},
      {{"optimizer.warmup", "1000"}},  // a constant rate: the run ends within its warm-up
      {{"optimizer.warmup", "60"}, {"optimizer.decay_steps", "40"}, {"optimizer.schedule", "cosine"}},
      {{"shift.query", "3"}, {"shift.key", "0"}, {"shift.value", "2"}},
      {{"shift.form", "gate"}, {"shift.key", "0"}},
      {{"parallel.stage_layers", "4"}},
      {{"checkpoint.every", "20"}, {"checkpoint.keep_every", "40"}},
      {{"optimizer.betas", "0,0"}, {"optimizer.clip", "0"}},
      {{"evaluation.tasks", "hellaswag"},
       {"evaluation.data", "d"},
       {"evaluation.every", "1"}},  // and no data.validation
      {{"evaluation.limit", "0"}, {"evaluation.fewshot", "0"}},
      {{"parallel.pipeline", "gpipe"}, {"train.precision", "fp64"}, {"model.tie_embeddings", "yes"}},
  };
  for (const Pairs& pairs : all)
    EXPECT_THAT(find_faults(small_config_with(pairs), 1), IsEmpty()) << pairs.front().first;
  EXPECT_THAT(
      find_faults(small_config_with({{"parallel.tp", "8"}, {"parallel.pp", "2"}, {"parallel.stage_layers", "1,3"}}),
                  16),
      IsEmpty());
}

TEST(Validate, ListsRequiredKeysByUse) {
  const auto required = [](Use use) {
    std::string keys;
    for (const std::string& fault : find_faults({}, 1, use)) keys += fault.substr(0, fault.find(" is required")) + " ";
    return keys;
  };
  EXPECT_EQ(required(Use::train),
            "model.layers model.hidden model.heads model.ffn model.vocab train.steps train.global_batch "
            "train.sequence_length optimizer.learning_rate data.train output.directory ");
  EXPECT_EQ(required(Use::dry_run),
            "model.layers model.hidden model.heads model.ffn model.vocab train.steps train.global_batch "
            "train.sequence_length optimizer.learning_rate ");
  EXPECT_EQ(required(Use::dump), "train.global_batch train.sequence_length data.train ");
  EXPECT_EQ(required(Use::evaluate),
            "model.layers model.hidden model.heads model.ffn model.vocab train.sequence_length ");
}

TEST(Validate, EvaluationNeedsNoBatch) {
  const RunConfig config = small_config_with({{"train.micro_batch", "16"}});
  EXPECT_THAT(find_faults(config, 4, Use::evaluate), IsEmpty());
  EXPECT_THAT(find_faults(config, 4, Use::train), ElementsAre(HasSubstr("global_batch 16 not divisible")));
}

TEST(Validate, ThrowsOneErrorWithAllFaults) {
  const RunConfig config = small_config_with({{"modle.hidden", "64"},
                                              {"train.steps", "x"},
                                              {"model.heads", "20"},
                                              {"model.ffn", "-1"},
                                              {"parallel.tp", "8"},
                                              {"parallel.cp", "2"},
                                              {"model.head_dim", "8"}});
  try {
    validate(config, 12);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_STREQ(error.what(),
                 "6 faults in the configuration:\n"
                 "  unknown key modle.hidden; did you mean model.hidden? (a.conf:1)\n"
                 "  train.steps 'x' is not a whole number (a.conf:2)\n"
                 "  model.ffn -1 must be >= 1 (a.conf:4)\n"
                 "  parallel.cp 2 is not implemented; this version has 1 (a.conf:6)\n"
                 "  heads 20 not divisible by tp 8 (model.heads: a.conf:3, parallel.tp: a.conf:5)\n"
                 "  ranks 12 not divisible by tp 8 * cp 2 * pp 1 = 16 (parallel.tp: a.conf:5, parallel.cp: a.conf:6)");
  }
}

TEST(RefuseFaults, ListsThemAndTheAdvice) {
  EXPECT_NO_THROW(refuse_faults({}, "the command line", "usage: x"));
  EXPECT_ERROR(refuse_faults({"one"}, "the command line"), ExitCode::bad_input, "1 fault in the command line:\n  one");
  EXPECT_ERROR(refuse_faults({"one", "two"}, "the command line", "usage: x"), ExitCode::bad_input,
               "2 faults in the command line:\n  one\n  two\nusage: x");
}

TEST(Validate, SurvivesExtremeValues) {
  Pairs extreme;
  for (const char* key : {"model.layers", "model.hidden", "model.heads", "model.kv_heads", "model.head_dim",
                          "model.ffn", "model.vocab", "train.steps", "train.global_batch", "train.micro_batch",
                          "train.sequence_length", "optimizer.warmup", "optimizer.decay_steps", "checkpoint.every"}) {
    extreme.emplace_back(key, "2147483647");
  }
  for (const char* key : {"parallel.tp", "parallel.cp", "parallel.pp"}) extreme.emplace_back(key, "65536");
  for (const int ranks : {-1, 0, 1, 7}) EXPECT_FALSE(find_faults(small_config_with(extreme), ranks).empty());
  EXPECT_EQ(minimum_ranks(small_config_with(extreme).parallel), 2147483647);
  for (auto& [key, text] : extreme) text = "-9223372036854775808";
  EXPECT_FALSE(find_faults(small_config_with(extreme), 1).empty());
}

}  // namespace
}  // namespace shiftron
