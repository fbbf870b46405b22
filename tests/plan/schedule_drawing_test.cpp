// Pictures of schedules: well-formed, a box for each action, and their texts.
#include "plan/schedule_drawing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace shiftron {
namespace {

using enum PipelineKind;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// "" or what is wrong: elements nest, attributes are quoted and named once, & stands in entities alone.
std::string fault_of_xml(const std::string& text) {
  std::vector<std::string> open;
  size_t at = 0, elements = 0;
  while (at < text.size()) {
    if (text[at] == '&') {
      const std::string entity = text.substr(at, text.find(';', at) + 1 - at);
      if (entity != "&lt;" && entity != "&gt;" && entity != "&amp;") return "entity " + entity;
    }
    if (text[at] != '<') {
      if (open.empty() && text[at] != '\n') return "text outside of elements";
      ++at;
      continue;
    }
    const size_t end = text.find('>', at);
    if (end == std::string::npos) return "no end of a tag";
    std::string tag = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag.find('<') != std::string::npos) return "< in a tag: " + tag;
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return "closed without being open: " + tag;
      open.pop_back();
      continue;
    }
    if (open.empty() && elements++ > 0) return "a second root";
    const bool empty = tag.ends_with('/');
    if (empty) tag.pop_back();
    const size_t name = std::min(tag.find(' '), tag.size());
    std::vector<std::string> attributes;
    for (size_t from = tag.find_first_not_of(' ', name); from < tag.size(); from = tag.find_first_not_of(' ', from)) {
      const size_t equals = tag.find("=\"", from),
                   close = equals == std::string::npos ? equals : tag.find('"', equals + 2);
      if (close == std::string::npos) return "attribute of " + tag;
      attributes.push_back(tag.substr(from, equals - from));
      if (std::ranges::count(attributes, attributes.back()) > 1) return "twice: " + tag;
      from = close + 1;
      if (from < tag.size() && tag[from] != ' ') return "attributes of " + tag;
    }
    if (!empty) open.push_back(tag.substr(0, name));
  }
  return open.empty() ? "" : "left open: " + open.back();
}

TEST(ScheduleDrawing, XmlFaultsAreFound) {
  EXPECT_EQ(fault_of_xml("<a x=\"1\"><b/>&lt;</a>\n"), "");
  for (const char* text :
       {"<a>", "<a></b>", "<a/><a/>", "<a x=1/>", "<a x=\"1\" x=\"2\"/>", "<a>&</a>", "<a <b/></a>", "a"}) {
    EXPECT_NE(fault_of_xml(text), "") << text;
  }
}

TEST(ScheduleDrawing, HasABoxForEachActionAndIsWellFormed) {
  const std::vector<Schedule> schedules = {{one_forward_one_backward}, {gpipe},         {zb_h1}, {zb_v},
                                           {interleaved, 2},           {interleaved, 4}};
  for (const Schedule& schedule : schedules) {
    const size_t kinds = defers_weight_gradients(schedule) ? 3 : 2, chunks = static_cast<size_t>(chunks_of(schedule));
    for (const int stages : {1, 3, 16}) {
      for (const int microbatches : {1, 7, 64}) {
        const std::string svg = draw_schedule(schedule, stages, microbatches, {}, "a");
        EXPECT_EQ(fault_of_xml(svg), "");
        EXPECT_EQ(count_of(svg, "class=\"action\""), kinds * chunks * static_cast<size_t>(stages * microbatches));
        EXPECT_EQ(count_of(svg, ">forward, microbatch "), chunks * static_cast<size_t>(stages * microbatches));
        EXPECT_EQ(count_of(svg, "not drawn"), 0u);
      }
    }
  }
}

TEST(ScheduleDrawing, SaysWhatItShows) {
  const ScheduleCosts costs{.virtual_stages = {{1, 1.5, 1}, {1, 1, 1}, {1, 1, 1}, {2, 1, 1}}, .message = 0.25};
  const std::string svg = draw_schedule({interleaved, 2}, 2, 4, costs, "x < y & \"z\"\x01");
  EXPECT_EQ(fault_of_xml(svg), "");
  EXPECT_EQ(count_of(svg, ">x &lt; y &amp; \"z\"<"), 1u);
  EXPECT_EQ(count_of(svg, "interleaved, 2 stages of 2 chunks, 4 microbatches: bubble "), 1u);
  EXPECT_EQ(count_of(svg, "<title>forward, microbatch 0, chunk 0: 1.25 to 2.25</title>"), 1u);  // of stage 1
  // Forward and backward of microbatch 3 in two chunks on two stages; in flight on stage 1.
  EXPECT_EQ(count_of(svg, ">3<"), 9u);
  EXPECT_EQ(count_of(draw_schedule({one_forward_one_backward}, 4, 8, {}, ""), "bubble 37.5 %"), 1u);
  EXPECT_EQ(count_of(draw_schedule({zb_v}, 4, 8, {}, ""), ".0\">8<"), 4u);  // in flight on every stage
}

// As a screen shows it: numbers only where they fit, and phases and every eighth microbatch in their place.
TEST(ScheduleDrawing, OfManyMicrobatchesIsReadable) {
  const auto width_of = [](const std::string& svg) { return std::stod(svg.substr(svg.find("width=\"") + 7)); };
  const std::string many = draw_schedule({one_forward_one_backward}, 16, 64, {}, "");
  EXPECT_LT(width_of(many), 1700);
  EXPECT_EQ(count_of(many, "every eighth microbatch is darker"), 1u);
  EXPECT_EQ(count_of(many, ">63<"), 16u) << "only backward boxes, twice as wide, have room for it";
  for (const char* phase : {">warm-up<", ">steady state<", ">cool-down<"}) EXPECT_EQ(count_of(many, phase), 1u);
  const size_t dark = count_of(many, "fill=\"#537ead\""), light = count_of(many, "class=\"action\" fill=\"#6ea8e6\"");
  EXPECT_EQ(dark, 16u * 8);  // forward of microbatches 0, 8, …, 56
  EXPECT_EQ(light, 16u * 56);
  const std::string few = draw_schedule({one_forward_one_backward}, 4, 8, {}, "");
  EXPECT_EQ(count_of(few, "darker") + count_of(few, "#537ead"), 0u);
  EXPECT_EQ(count_of(few, ">7<"), 8u);
  for (const char* phase : {">warm-up<", ">steady state<", ">cool-down<"}) EXPECT_EQ(count_of(few, phase), 1u);
  EXPECT_EQ(count_of(draw_schedule({gpipe}, 4, 8, {}, ""), "steady state"), 0u) << "all forward, then all backward";
  EXPECT_LT(width_of(draw_schedule({interleaved, 4}, 16, 64, {}, "")), 2700);
}

TEST(ScheduleDrawing, OfALongScheduleHasItsEndsAndSaysSo) {
  const std::string svg = draw_schedule({zb_h1}, 4, 4096, {}, "long");
  EXPECT_EQ(fault_of_xml(svg), "");
  EXPECT_EQ(count_of(svg, "not drawn"), 1u);
  EXPECT_EQ(count_of(svg, ">forward, microbatch 0,"), 4u);
  EXPECT_EQ(count_of(svg, ">weight gradients, microbatch 4095,"), 4u);
  EXPECT_EQ(count_of(svg, "microbatch 2000,"), 0u);
  EXPECT_LT(svg.size(), 1000000u);
}

}  // namespace
}  // namespace shiftron
