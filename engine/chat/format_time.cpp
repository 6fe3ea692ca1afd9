#include <fmt/format.h>

#include <array>

#include "engine/chat/template.h"

namespace troupe::engine::chat {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};
constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};

struct CalendarTime {
  int year, hour, minute, second, day_of_year;
  unsigned month, day, weekday;
};

CalendarTime calendar(std::chrono::sys_seconds time) {
  using namespace std::chrono;
  const sys_days day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  const int first = static_cast<int>((day - sys_days(date.year() / January / 1)).count());
  return {static_cast<int>(date.year()),
          static_cast<int>(clock.hours().count()),
          static_cast<int>(clock.minutes().count()),
          static_cast<int>(clock.seconds().count()),
          first + 1,
          static_cast<unsigned>(date.month()),
          static_cast<unsigned>(date.day()),
          weekday(day).c_encoding()};
}

std::string conversion(char letter, bool is_padded, const CalendarTime& at) {
  const auto number = [&](auto value, int width, char fill = '0') {
    if (!is_padded) return fmt::format("{}", value);
    return fill == '0' ? fmt::format("{:0{}}", value, width) : fmt::format("{:{}}", value, width);
  };
  const int hour12 = at.hour % 12 == 0 ? 12 : at.hour % 12;
  switch (letter) {
    case 'Y':
      return fmt::format("{}", at.year);
    case 'y':
      return number(at.year % 100, 2);
    case 'm':
      return number(at.month, 2);
    case 'd':
      return number(at.day, 2);
    case 'e':
      return number(at.day, 2, ' ');
    case 'B':
      return std::string(kMonths[at.month - 1]);
    case 'b':
    case 'h':
      return std::string(kMonths[at.month - 1].substr(0, 3));
    case 'A':
      return std::string(kDays[at.weekday]);
    case 'a':
      return std::string(kDays[at.weekday].substr(0, 3));
    case 'H':
      return number(at.hour, 2);
    case 'I':
      return number(hour12, 2);
    case 'M':
      return number(at.minute, 2);
    case 'S':
      return number(at.second, 2);
    case 'p':
      return at.hour < 12 ? "AM" : "PM";
    case 'j':
      return number(at.day_of_year, 3);
    case 'Z':
      return "UTC";
    case 'z':
      return "+0000";
    case 'F':
      return fmt::format("{}-{:02}-{:02}", at.year, at.month, at.day);
    case 'T':
      return fmt::format("{:02}:{:02}:{:02}", at.hour, at.minute, at.second);
    case 'D':
      return fmt::format("{:02}/{:02}/{:02}", at.month, at.day, at.year % 100);
    case '%':
      return "%";
    default:
      return "";
  }
}

}  // namespace

std::string format_time(std::string_view format, std::chrono::sys_seconds time) {
  const CalendarTime at = calendar(time);
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const bool is_plain = format[i] == '%' && i + 2 < format.size() && format[i + 1] == '-';
    const std::size_t letter = i + (is_plain ? 2 : 1);
    const std::string text =
        format[i] == '%' && letter < format.size() ? conversion(format[letter], !is_plain, at) : "";
    if (text.empty()) {
      out += format[i];
      continue;
    }
    out += text;
    i = letter;
  }
  return out;
}

}  // namespace troupe::engine::chat
