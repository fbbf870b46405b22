// The table of built-in tasks: prompts, splits and metrics are those of lm-evaluation-harness 0.4.13 unless a task is
// marked as `own`.
#include <algorithm>

#include "evaluate/tasks/subjects.h"
#include "evaluate/tasks/task_definition.h"

namespace shiftron {
namespace {

const Metric kSameMath{"exact_match", ItemScore::same_math};
const Metric kSameMinerva{"exact_match_str", ItemScore::same_minerva};

Metric exact_match(const AnswerFilter& filter, const AnswerComparison& comparison) {
  Metric metric = kExactMatch;
  metric.filter = filter;
  metric.comparison = comparison;
  return metric;
}

const std::vector<std::string> kLetters = {"A", "B", "C", "D"};

// SHA-256 of the whole prompt with the four examples of minerva_math 3.1 and the question below.
constexpr const char* kMinervaShots = "febdd658ab6ccdcc089e3ac56cff4f30dd2b747fb557ed5e39d9d0454b7c77df";
constexpr const char* kMinervaQuestion = R"({"problem": "What is $1+1$?"})";

std::string spaced(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

TaskDefinition lambada(const std::string& variant, const std::string& help) {
  return {.name = "lambada_" + variant,
          .help = help,
          .kind = TaskKind::log_likelihood,
          .dataset = "lambada_" + variant,
          .shot_split = variant == "standard" ? "validation" : "",
          .context = "{text|words_but_last}",
          .target = " {text|last_word}",
          .metrics = {kPerplexity, kGreedyAccuracy}};
}

TaskDefinition winogrande() {
  return {.name = "winogrande",
          .help = "which of two persons a sentence refers to, XL training set",
          .dataset = "winogrande",
          .split = "validation",
          .shot_split = "train",
          .contexts = {"{sentence|before_blank}{option1}", "{sentence|before_blank}{option2}"},
          .gold = "{answer}",
          .labels = {"1", "2"},
          .target = "{sentence|after_blank|strip}",
          .draw = ShotDraw::apart,
          .metrics = {kAccuracy}};
}

TaskDefinition hellaswag() {
  return {.name = "hellaswag",
          .help = "how a text continues, one of four endings",
          .dataset = "hellaswag",
          .split = "validation",
          .shot_split = "train",
          .preparation = Preparation::hellaswag,
          .context = "{query}",
          .choices_from = "choices",
          .gold = "{gold}",
          .draw = ShotDraw::apart,
          .metrics = {kAccuracy, kAccuracyPerLength}};
}

TaskDefinition arc(const std::string& name, const std::string& part) {
  return {.name = name,
          .help = "science questions, scored by the answer's text",
          .dataset = "arc",
          .part = part,
          .shot_split = "train",
          .context = "Question: {question}\nAnswer:",
          .choices_from = "choices.text",
          .gold = "{answerKey}",
          .labels_from = "choices.label",
          .metrics = {kAccuracy, kAccuracyPerLength}};
}

// ARC in the style of MMLU: the choices are shown, and a letter is scored.
TaskDefinition arc_letters(const std::string& name, const std::string& part) {
  TaskDefinition task = arc(name, part);
  task.own = true;
  task.help = "science questions with their choices shown, scored by the letter";
  task.description = "The following are multiple choice questions (with answers) about science.\n\n";
  task.context = "{question|strip}\n{choices.text|lettered}\nAnswer:";
  task.choices_from = "choices.text|letters";
  task.metrics = {kAccuracy};
  return task;
}

TaskDefinition mmlu(const std::string& subject) {
  return {
      .name = "mmlu_" + subject,
      .alias = subject,
      .help = "MMLU: " + spaced(subject),
      .dataset = "mmlu",
      .part = subject,
      .shot_split = "dev",
      .description = "The following are multiple choice questions (with answers) about " + spaced(subject) + ".\n\n",
      .context = "{question|strip}\nA. {choices.0}\nB. {choices.1}\nC. {choices.2}\nD. {choices.3}\nAnswer:",
      .choices = kLetters,
      .gold = "{answer}",
      .draw = ShotDraw::first,
      .metrics = {kAccuracy}};
}

TaskDefinition mmlu_continuation(const std::string& subject) {
  TaskDefinition task = mmlu(subject);
  task.name += "_continuation";
  task.alias = "";
  task.help = "MMLU, scored by the answer's text: " + spaced(subject);
  task.description = "The following are questions (with answers) about " + spaced(subject) + ".\n\n";
  task.context = "Question: {question|strip}\nAnswer:";
  task.choices.clear();
  task.choices_from = "choices";
  task.metrics = {kAccuracy, kAccuracyPerLength};
  return task;
}

TaskDefinition cmmlu(const ChineseSubject& subject) {
  return {.name = "cmmlu_" + subject.name,
          .help = "CMMLU: " + spaced(subject.name),
          .dataset = "cmmlu",
          .part = subject.name,
          .shot_split = "dev",
          .description = "以下是关于" + subject.chinese + "的单项选择题，请直接给出正确答案的选项。\n\n",
          .context = "{Question|strip}\nA. {A}\nB. {B}\nC. {C}\nD. {D}\n答案：",
          .choices = kLetters,
          .gold = "{Answer}",
          .labels = kLetters,
          .draw = ShotDraw::first,
          .metrics = {kAccuracy, kAccuracyPerLength}};
}

TaskDefinition hendrycks_math(const std::string& name, const std::string& part) {
  return {.name = name,
          .help = "MATH: " + spaced(part),
          .kind = TaskKind::generate,
          .dataset = "math",
          .part = part,
          .shot_split = "train",
          .preparation = Preparation::boxed_answer,
          .context = "Problem: {problem}\nAnswer:",
          .target = "{answer}",
          .generation = {.until = {"Problem:"}},
          .metrics = {kSameMath}};
}

TaskDefinition minerva_math(const std::string& name, const std::string& part) {
  TaskDefinition task = hendrycks_math(name, part);
  task.version = 3.1;
  task.help += ", four fixed examples; answers compared as texts";
  task.shot_split = "shots";
  task.preparation = Preparation::minerva_answer;
  task.context = "Problem:\n{problem}\n\nSolution:";
  task.shot_target = "{solution}";
  task.draw = ShotDraw::first;
  task.default_shots = 4;
  task.shots_digest = kMinervaShots;
  task.shots_question = kMinervaQuestion;
  task.metrics = {kSameMinerva};
  return task;
}

// MATH-500 has no other split, so examples from it would contain its own answers.
TaskDefinition of_math500(TaskDefinition task, bool has_shots) {
  task.help = "500 problems of MATH" + std::string(has_shots ? ", four fixed examples; answers compared as texts" : "");
  task.dataset = "math500";
  if (!has_shots) task.shot_split = "";
  return task;
}

TaskDefinition piqa() {
  return {.name = "piqa",
          .help = "which of two ways reaches a physical goal",
          .dataset = "piqa",
          .split = "validation",
          .shot_split = "train",
          .context = "Question: {goal}\nAnswer:",
          .choices = {"{sol1}", "{sol2}"},
          .gold = "{label}",
          .draw = ShotDraw::apart,
          .metrics = {kAccuracy, kAccuracyPerLength}};
}

TaskDefinition boolq() {
  return {.name = "boolq",
          .version = 2,
          .help = "yes or no to a question about a passage",
          .dataset = "boolq",
          .split = "validation",
          .shot_split = "train",
          .context = "{passage}\nQuestion: {question}?\nAnswer:",
          .choices = {"no", "yes"},
          .gold = "{label}",
          .draw = ShotDraw::apart,
          .metrics = {kAccuracy}};
}

TaskDefinition openbookqa() {
  return {.name = "openbookqa",
          .help = "elementary science, how a sentence continues",
          .dataset = "openbookqa",
          .shot_split = "train",
          .context = "{question_stem}",
          .choices_from = "choices.text",
          .gold = "{answerKey|strip_left}",
          .labels_from = "choices.label",
          .metrics = {kAccuracy, kAccuracyPerLength}};
}

TaskDefinition social_iqa() {
  return {.name = "social_iqa",
          .version = 0,
          .help = "Social IQa (SIQA): what people do, want and feel",
          .dataset = "social_iqa",
          .split = "validation",
          .shot_split = "train",
          .context = "Q: {context} {question}\nA:",
          .choices = {"{answerA}", "{answerB}", "{answerC}"},
          .gold = "{label|strip}",
          .labels = {"1", "2", "3"},
          .draw = ShotDraw::apart,
          .metrics = {kAccuracy}};
}

TaskDefinition sciq() {
  return {.name = "sciq",
          .help = "science questions after a supporting text",
          .dataset = "sciq",
          .shot_split = "train",
          .context = "{support|strip_left}\nQuestion: {question}\nAnswer:",
          .choices = {"{distractor1}", "{distractor2}", "{distractor3}", "{correct_answer}"},
          .gold = "3",
          .metrics = {kAccuracy, kAccuracyPerLength}};
}

TaskDefinition copa() {
  return {.name = "copa",
          .help = "which of two sentences is the cause or the effect",
          .dataset = "copa",
          .split = "validation",
          .shot_split = "train",
          .context = "{premise|strip|without_last} {question|one_of:cause=because,effect=therefore}",
          .choices = {" {choice1|lower_first}", " {choice2|lower_first}"},
          .gold = "{label}",
          .target_is_choice = true,
          .draw = ShotDraw::apart,
          .metrics = {kAccuracy}};
}

TaskDefinition triviaqa() {
  return {.name = "triviaqa",
          .version = 3,
          .help = "trivia questions without documents, a generated answer",
          .kind = TaskKind::generate,
          .dataset = "triviaqa",
          .split = "validation",
          .shot_split = "train",
          .context = "Question: {question}?\nAnswer:",
          .targets_from = "answer.aliases",
          .draw = ShotDraw::apart,
          .generation = {.until = {"\n", ".", ","}},
          .metrics = {exact_match({.name = "remove_whitespace", .strip = Side::both},
                                  {.ignore_ends = false, .ignore_case = true, .ignore_punctuation = true})}};
}

TaskDefinition gsm8k() {
  const AnswerComparison comparison{
      .ignore_ends = false, .ignored = {",", "\\$", "(?s).*#### ", "\\.$"}, .ignore_case = true};
  return {.name = "gsm8k",
          .version = 3,
          .help = "grade school arithmetic, a generated solution",
          .kind = TaskKind::generate,
          .dataset = "gsm8k",
          .shot_split = "train",
          .context = "Question: {question}\nAnswer:",
          .target = "{answer}",
          .default_shots = 5,
          .generation = {.until = {"Question:", "</s>", "<|im_end|>"}},
          .metrics = {exact_match({.name = "strict-match", .extract = "#### (\\-?[0-9\\.\\,]+)"}, comparison),
                      exact_match({.name = "flexible-extract", .extract = "(-?[$0-9.,]{2,})|(-?[0-9]+)", .last = true},
                                  comparison)}};
}

TaskDefinition wikitext() {
  return {.name = "wikitext",
          .version = 2,
          .help = "WikiText-2, one item per page",
          .kind = TaskKind::rolling,
          .dataset = "wikitext",
          .target = "{page|detokenized}",
          .measured = "{page}",
          .metrics = {kWordPerplexity, kBytePerplexity, kBitsPerByte}};
}

struct MathPart {
  const char* part;
  const char* name;  // follows hendrycks_math_ and minerva_math_
};
constexpr MathPart kMathParts[] = {{"algebra", "algebra"},          {"counting_and_probability", "counting_and_prob"},
                                   {"geometry", "geometry"},        {"intermediate_algebra", "intermediate_algebra"},
                                   {"number_theory", "num_theory"}, {"prealgebra", "prealgebra"},
                                   {"precalculus", "precalc"}};

}  // namespace

std::vector<TaskDefinition> built_in_tasks() {
  std::vector<TaskDefinition> all = {
      lambada("openai", "the last word of a passage, as OpenAI cut the texts"),
      lambada("standard", "the last word of a passage, as first released"),
      winogrande(),
      hellaswag(),
      arc("arc_easy", "ARC-Easy"),
      arc("arc_challenge", "ARC-Challenge"),
      arc_letters("arc_easy_mcq", "ARC-Easy"),
      arc_letters("arc_challenge_mcq", "ARC-Challenge"),
      piqa(),
      boolq(),
      openbookqa(),
      social_iqa(),
      sciq(),
      copa(),
      triviaqa(),
      gsm8k(),
  };
  for (const SubjectArea& area : mmlu_areas()) {
    for (const std::string& subject : area.subjects) {
      all.push_back(mmlu(subject));
      all.push_back(mmlu_continuation(subject));
    }
  }
  for (const ChineseSubject& subject : cmmlu_subjects()) all.push_back(cmmlu(subject));
  for (const auto& [part, name] : kMathParts) {
    all.push_back(hendrycks_math(std::string("hendrycks_math_") + name, part));
    all.push_back(minerva_math(std::string("minerva_math_") + name, part));
  }
  all.push_back(of_math500(hendrycks_math("hendrycks_math500", ""), false));
  all.push_back(of_math500(minerva_math("minerva_math500", ""), true));
  all.push_back(wikitext());
  return all;
}

std::vector<GroupDefinition> built_in_groups() {
  std::vector<GroupDefinition> all;
  GroupDefinition letters{"mmlu", "mmlu", "2", {}, {"acc"}, false, "57 subjects, scored by the letter"};
  GroupDefinition cloze{
      "mmlu_continuation", "mmlu (continuation)", "2", {}, {"acc"}, false, "57 subjects, scored by the answer's text"};
  std::vector<GroupDefinition> areas;
  for (const SubjectArea& area : mmlu_areas()) {
    GroupDefinition of_letters{"mmlu_" + area.name, area.alias, "2", {}, {"acc"}, false, area.alias + " of MMLU"};
    const std::string name = "mmlu_continuation::" + area.alias;
    GroupDefinition of_cloze{
        name, name, "N/A", {}, {"acc"}, false, area.alias + " of MMLU, scored by the answer's text"};
    for (const std::string& subject : area.subjects) {
      of_letters.members.push_back("mmlu_" + subject);
      of_cloze.members.push_back("mmlu_" + subject + "_continuation");
    }
    letters.members.push_back(of_letters.name);
    cloze.members.push_back(of_cloze.name);
    areas.push_back(of_letters);
    areas.push_back(of_cloze);
  }
  all.push_back(letters);
  all.push_back(cloze);
  all.insert(all.end(), areas.begin(), areas.end());
  GroupDefinition chinese{
      "cmmlu", "cmmlu", "1.0", {}, {"acc", "acc_norm"}, false, "67 subjects in Chinese, scored by the letter"};
  for (const ChineseSubject& subject : cmmlu_subjects()) chinese.members.push_back("cmmlu_" + subject.name);
  all.push_back(chinese);
  GroupDefinition math{"hendrycks_math", "hendrycks_math", "1.0", {}, {"exact_match"}, false, "seven subjects of MATH"};
  GroupDefinition minerva{"minerva_math",
                          "minerva_math",
                          "N/A",
                          {},
                          {"exact_match_str"},
                          true,
                          "seven subjects of MATH, four fixed examples"};
  for (const MathPart& part : kMathParts) {
    math.members.push_back(std::string("hendrycks_math_") + part.name);
    minerva.members.push_back(std::string("minerva_math_") + part.name);
  }
  all.push_back(math);
  all.push_back(minerva);
  all.push_back({"lambada", "lambada", "", {"lambada_openai", "lambada_standard"}, {}, false, "both texts of LAMBADA"});
  all.push_back({"ai2_arc", "ai2_arc", "", {"arc_easy", "arc_challenge"}, {}, false, "both parts of ARC"});
  return all;
}

}  // namespace shiftron
