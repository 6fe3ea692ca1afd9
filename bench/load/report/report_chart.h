// Charts as inline SVG for the page of a load run: lines, steps, stacked bars, linear and logarithmic axes. Colours and
// fonts are the page's classes (kPageStyle); the SVG has no script and no external references.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::load {

// The style sheet of the page, with the classes that the charts use.
extern const std::string_view kPageStyle;

// Escapes `text` for HTML and SVG, in text and in quoted attributes: markup is escaped, control characters and bytes
// that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string escaped(std::string_view text);

enum class Unit : std::uint8_t { plain, milliseconds, percent };

// "250 us", "1.5 s", "40 %", "12,000"
[[nodiscard]] std::string tick_label(double value, Unit unit);

struct Axis {
  std::string title{};
  Unit unit = Unit::plain;
  double min = 0;
  double max = 1;
  bool logarithmic = false;  // needs min > 0
};

// Round values within the axis, ascending: about `wanted` on a linear one, 1-2-5 or decades on a logarithmic one.
[[nodiscard]] std::vector<double> ticks(const Axis& axis, int wanted);

struct Point {
  double x = 0;
  double y = 0;  // not a number: the line is interrupted
};

struct Line {
  std::string label{};          // in the legend; empty: no entry
  int color = 1;                // 1 to 6
  int dash = 0;                 // 0: solid; 1, 2: dashed and dotted, so that lines differ without colour
  std::vector<Point> points{};  // ascending by x
  bool steps = false;           // drawn as steps: a value holds until the next
  bool filled = false;
};

// Bars from x to x + width, stacked by the order of the series.
struct Bars {
  std::string label{};
  int color = 1;
  std::vector<Point> points{};
};

struct Mark {
  Point at{};
  std::string label{};
};

struct Chart {
  std::string id{};     // unique on the page; letters, digits and dashes
  std::string title{};  // with `summary`, for screen readers
  std::string summary{};
  double width = 520, height = 260;
  Axis x{}, y{};
  std::vector<Line> lines{};
  std::vector<Bars> bars{};
  double bar_width = 0;  // in units of x
  std::vector<Mark> marks{};
  std::vector<Mark> limits{};  // vertical lines at at.x
};

[[nodiscard]] std::string svg(const Chart& chart);

}  // namespace troupe::load
