// Coordinates are pixels, with one decimal.
#include "plan/schedule_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "core/check.h"
#include "core/enum_names.h"
#include "core/foreign_text.h"
#include "parallel/stage_memory.h"

namespace shiftron {
namespace {

constexpr double kLeft = 74, kTop = 98, kBottom = 58, kRow = 30, kBox = 24, kDigit = 0.62;  // times the font's size
// Of the drawn part of the time axis: what a screen shows at once, and what is drawn if boxes would be too thin there.
constexpr double kUsual = 1500, kWidest = 2400, kNarrowest = 640;
constexpr double kTicks = 44;                     // pixels between ticks of the time axis, at least
constexpr int kMarked = 8;                        // every eighth microbatch is darker where numbers do not fit
constexpr double kBoxes = 26, kThinnest = 4;      // average box if all is drawn, at most and at least
constexpr double kBoxesOfParts = 16, kGap = 150;  // average box if two parts are drawn, and the gap between them

constexpr std::array kColours = {std::array{110, 168, 230}, std::array{244, 165, 80}, std::array{118, 190, 130}};
constexpr std::array kNames = {"forward", "backward", "weight gradients"};

// 0 forward, 1 backward, 2 weight gradients; −1: a message.
int colour_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return 0;
    case ActionKind::backward:
      return 1;
    case ActionKind::weight_gradients:
      return 2;
    default:
      return -1;
  }
}

// Later chunks are lighter, marked microbatches darker.
std::string fill(int colour, int chunk, int chunks, bool marked = false) {
  const double white = chunks == 1 ? 0 : 0.62 * chunk / (chunks - 1), light = marked ? 0.75 : 1;
  std::string text = "#";
  for (const int part : kColours[static_cast<size_t>(colour)]) {
    text += fmt::format("{:02x}", static_cast<int>(std::lround(light * (part + white * (255 - part)))));
  }
  return text;
}

std::string label(double x, double y, const std::string& text, const std::string& attributes = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, attributes.empty() ? "" : " " + attributes,
                     xml_text(text));
}

std::string rectangle(double x, double y, double width, double height, const std::string& attributes) {
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" {}", x, y, width, height,
                     attributes);
}

// A part of the time and where it is drawn.
struct DrawnPart {
  double from, to, x;
};

class Drawing {
 public:
  Drawing(const Schedule& schedule, int stages, int microbatches, const ScheduleCosts& costs)
      : schedule_(schedule),
        stages_(stages),
        microbatches_(microbatches),
        chunks_(chunks_of(schedule)),
        times_(simulate(schedule, stages, microbatches, costs)) {
    CHECK(times_.hang.empty(), "the schedule hangs: ", times_.hang);
    double work = 0, shortest = times_.total;
    int boxes = 0;
    first_backward_ = times_.total;
    for (const auto& stage : times_.stages) {
      for (const TimedAction& timed : stage) {
        const int colour = colour_of(timed.action.kind);
        if (colour < 0) continue;
        work += timed.duration();
        boxes += 1;
        shortest = std::min(shortest, timed.duration());
        if (colour == 0) last_forward_ = std::max(last_forward_, timed.end);
        if (colour == 1) first_backward_ = std::min(first_backward_, timed.start);
      }
    }
    const double average = work / boxes;
    const bool fits = times_.total * kThinnest <= kWidest * average;
    const double least = std::max(kUsual / times_.total, kThinnest / average);
    scale_ = fits ? std::min(least, kBoxes / average) : kBoxesOfParts / average;
    const double digits = static_cast<double>(std::to_string(microbatches - 1).size());
    font_ = std::clamp((average * scale_ - 1) / (kDigit * digits), 7.0, 10.0);
    marks_ = shortest * scale_ < needed(digits) && microbatches > kMarked;
    const double shown = kUsual / scale_ / 2;
    if (fits) {
      parts_ = {{0, times_.total, kLeft}};
    } else {
      parts_ = {{0, shown, kLeft}, {times_.total - shown, times_.total, kLeft + shown * scale_ + kGap}};
    }
  }

  std::string svg(const std::string& title) const {
    const double right = end_of(parts_.back()), bottom = kTop + stages_ * kRow;
    const double width = std::max(right, kLeft + kNarrowest) + 60 + 26 * chunks_, height = bottom + kBottom;
    std::string text = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n",
        width, height);
    text += rectangle(0, 0, width, height, "fill=\"#fff\"/>\n");
    text += label(12, 24, title, "font-size=\"17\"") + label(12, 45, summary(), "fill=\"#444\"") + legend();
    text += label(right + 12, kTop - 8, "in flight", "fill=\"#444\"");
    for (int stage = 0; stage < stages_; ++stage) text += row(stage, right);
    if (parts_.size() > 1) text += gap(bottom);
    for (const DrawnPart& part : parts_) text += axis(part, bottom) + phases(part);
    return text + "</svg>\n";
  }

 private:
  // Width of a box into which a number of so many digits fits.
  double needed(double digits) const { return kDigit * font_ * digits + 0.9; }
  double end_of(const DrawnPart& part) const { return part.x + (part.to - part.from) * scale_; }

  std::string summary() const {
    const std::string chunks = chunks_ > 1 ? fmt::format(" of {} chunks", chunks_) : "";
    return fmt::format(
        "{}, {} {}{}, {} {}: bubble {:.1f} % of the work, until the last stage has finished {:.1f} % idle",
        to_string(schedule_.kind), stages_, stages_ == 1 ? "stage" : "stages", chunks, microbatches_,
        microbatches_ == 1 ? "microbatch" : "microbatches", 100 * times_.bubble, 100 * times_.idle);
  }

  std::string legend() const {
    std::string text;
    double x = 12;
    const int colours = defers_weight_gradients(schedule_) ? 3 : 2;
    for (int colour = 0; colour < colours; ++colour) {
      for (int chunk = 0; chunk < chunks_; ++chunk, x += 16) {
        text += rectangle(x, 57, 14, 14, "fill=\"" + fill(colour, chunk, chunks_) + "\"/>\n");
      }
      const std::string name = std::string(kNames[static_cast<size_t>(colour)]) +
                               (colour == 1 ? colours == 3 ? " of inputs" : " with weight gradients" : "");
      text += label(x + 4, 68.5, name);
      x += 22 + kDigit * 10 * static_cast<double>(name.size());
    }
    std::string more = chunks_ > 1 ? "later chunks are lighter" : "";
    if (marks_) more += std::string(more.empty() ? "" : "; ") + "every eighth microbatch is darker";
    if (!more.empty()) text += label(x, 68.5, more, "fill=\"#444\"");
    return text;
  }

  std::string row(int stage, double right) const {
    const double y = kTop + stage * kRow;
    std::string text = label(12, y + 17, fmt::format("stage {}", stage)), numbers;
    for (const DrawnPart& part : parts_)
      text += rectangle(part.x, y, end_of(part) - part.x, kBox, "fill=\"#ececec\"/>\n");
    for (const TimedAction& timed : times_.stages[static_cast<size_t>(stage)]) {
      for (const DrawnPart& part : parts_) text += box(timed, part, y, numbers);
    }
    if (!numbers.empty()) {
      text += fmt::format("<g font-size=\"{:.1f}\" text-anchor=\"middle\">\n", font_) + numbers + "</g>\n";
    }
    const size_t in_flight = stage_memory(schedule_, stages_, stage, microbatches_).arenas.size();
    return text + label(right + 12, y + 17, std::to_string(in_flight));
  }

  // The part of an action that lies in a drawn part; its number goes to `numbers`, above all boxes.
  std::string box(const TimedAction& timed, const DrawnPart& part, double y, std::string& numbers) const {
    const auto& [action, start, end] = timed;
    const int colour = colour_of(action.kind);
    const double from = std::max(start, part.from), to = std::min(end, part.to);
    if (colour < 0 || from >= to) return "";
    const double x = part.x + (from - part.from) * scale_, width = (to - from) * scale_;
    const std::string number = std::to_string(action.microbatch);
    if (width >= needed(static_cast<double>(number.size()))) numbers += label(x + width / 2, y + 16, number);
    const std::string stroke = width >= 6 ? " stroke=\"#fff\" stroke-width=\"1\"" : "";
    const std::string shade = fill(colour, action.chunk, chunks_, marks_ && action.microbatch % kMarked == 0);
    return rectangle(x, y, width, kBox, "class=\"action\" fill=\"" + shade + "\"" + stroke + ">") +
           fmt::format("<title>{}, microbatch {}, chunk {}: {:g} to {:g}</title></rect>\n",
                       kNames[static_cast<size_t>(colour)], action.microbatch, action.chunk, start, end);
  }

  std::string gap(double bottom) const {
    const double x = end_of(parts_[0]) + kGap / 2, middle = (kTop + bottom) / 2;
    const std::string centred = "text-anchor=\"middle\" fill=\"#444\"";
    return label(x, middle - 8, "not drawn:", centred) +
           label(x, middle + 8, fmt::format("time {:.4g} to {:.4g}", parts_[0].to, parts_[1].from), centred);
  }

  // Lines above the stages: until the first backward, then until the last forward, then the rest.
  std::string phases(const DrawnPart& part) const {
    struct Phase {
      const char* name;
      double from, to;
    };
    std::string text;
    for (const Phase& phase :
         {Phase{"warm-up", 0, first_backward_}, Phase{"steady state", first_backward_, last_forward_},
          Phase{"cool-down", std::max(first_backward_, last_forward_), times_.total}}) {
      const double from = std::max(phase.from, part.from), to = std::min(phase.to, part.to);
      if (from >= to) continue;
      const double x = part.x + (from - part.from) * scale_, width = (to - from) * scale_;
      text += rectangle(x + 0.5, kTop - 7, std::max(width - 1, 0.5), 3, "fill=\"#888\"/>\n");
      if (width >= kDigit * 12 * static_cast<double>(std::string_view(phase.name).size()))
        text += label(x + width / 2, kTop - 11, phase.name, "text-anchor=\"middle\" fill=\"#444\"");
    }
    return text;
  }

  std::string axis(const DrawnPart& part, double bottom) const {
    double step = std::pow(10, std::floor(std::log10(3 * kTicks / scale_)));  // a round number
    for (const double factor : {2.0, 2.5, 2.0}) {
      if (step * scale_ < kTicks) step *= factor;
    }
    std::string text;
    for (double at = std::ceil(part.from / step) * step; at <= part.to * (1 + 1e-9); at += step) {
      const double x = part.x + (at - part.from) * scale_;
      text += rectangle(x, bottom, 1, 5, "fill=\"#888\"/>\n");
      text += label(x, bottom + 18, fmt::format("{:g}", at), "text-anchor=\"middle\" fill=\"#444\"");
    }
    return text + label(part.x, bottom + 40, "time; grey: idle", "fill=\"#444\"");
  }

  Schedule schedule_;
  int stages_, microbatches_, chunks_;
  ScheduleTimes times_;
  double scale_ = 1;                              // pixels of a unit of time
  double font_ = 10;                              // of numbers in boxes
  bool marks_ = false;                            // every eighth microbatch is darker
  double first_backward_ = 0, last_forward_ = 0;  // when the first one begins, when the last one ends
  std::vector<DrawnPart> parts_;
};

}  // namespace

std::string draw_schedule(const Schedule& schedule, int stages, int microbatches, const ScheduleCosts& costs,
                          const std::string& title) {
  return Drawing(schedule, stages, microbatches, costs).svg(title);
}

}  // namespace shiftron
