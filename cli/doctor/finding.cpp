#include "cli/doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/terminal/color.h"
#include "config/printable.h"

namespace troupe::cli {
namespace {

std::string_view word_of(Grade grade) {
  switch (grade) {
    case Grade::fine:
      return "ok";
    case Grade::advice:
      return "advice";
    case Grade::broken:
      break;
  }
  return "broken";
}

Color tone_of(Grade grade) {
  return grade == Grade::fine ? Color::green : grade == Grade::advice ? Color::yellow : Color::red;
}

Grade worst(std::span<const Finding> findings) {
  Grade grade = Grade::fine;
  for (const Finding& each : findings) grade = std::max(grade, each.grade);
  return grade;
}

std::size_t count(std::span<const Finding> findings, Grade grade) {
  return static_cast<std::size_t>(std::ranges::count(findings, grade, &Finding::grade));
}

constexpr std::size_t kGradeWidth = 8, kTopicWidth = 15;

}  // namespace

std::string findings_text(std::span<const Finding> findings, bool is_colored) {
  std::string text;
  for (const Finding& each : findings) {
    const std::string_view grade = word_of(each.grade);
    text += colored(grade, tone_of(each.grade), is_colored);
    text += fmt::format("{:{}}{:{}}{}\n", "", kGradeWidth - grade.size(), each.topic, kTopicWidth,
                        Printable(each.found, kMaxMessageBytes).text());
    if (!each.remedy.empty())
      text +=
          fmt::format("{:{}}-> {}\n", "", kGradeWidth + kTopicWidth, Printable(each.remedy, kMaxMessageBytes).text());
  }
  const std::size_t broken = count(findings, Grade::broken), advice = count(findings, Grade::advice);
  if (broken + advice == 0) return text + "nothing to complain of\n";
  return text + fmt::format("{} broken, {} could be better\n", broken, advice);
}

nlohmann::ordered_json findings_json(std::span<const Finding> findings) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Finding& each : findings)
    all.push_back({{"topic", each.topic},
                   {"grade", word_of(each.grade)},
                   {"found", each.found},
                   {"remedy", each.remedy.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(each.remedy)}});
  return {{"grade", word_of(worst(findings))}, {"findings", all}};
}

int exit_code(std::span<const Finding> findings) { return static_cast<int>(worst(findings)); }

}  // namespace troupe::cli
