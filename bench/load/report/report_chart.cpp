#include "bench/load/report/report_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/load/report/report_format.h"
#include "config/assert.h"
#include "config/utf8.h"

namespace troupe::load {
namespace {

constexpr double kLeft = 58, kRight = 14, kTop = 30, kBottom = 40;
constexpr double kCharWidth = 6.4;  // of the 12 px face, on average
constexpr const char* kReplacement = "\xef\xbf\xbd";

std::string number(double value) {
  std::string text = fixed(value, 1);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

// Three digits without trailing zeros: "1.5", "0.02".
std::string digits(double value) { return fmt::format("{:.3g}", value); }

// Maps values to coordinates in the drawing.
class Frame {
 public:
  explicit Frame(const Chart& chart) : chart_(chart) {}
  double left() const { return kLeft; }
  double right() const { return chart_.width - kRight; }
  double top() const { return kTop; }
  double bottom() const { return chart_.height - kBottom; }
  double x(double value) const { return left() + share(value, chart_.x) * (right() - left()); }
  double y(double value) const { return bottom() - share(value, chart_.y) * (bottom() - top()); }

 private:
  static double share(double value, const Axis& axis) {
    const double part = axis.logarithmic
                            ? std::log(std::max(value, axis.min) / axis.min) / std::log(axis.max / axis.min)
                            : (value - axis.min) / (axis.max - axis.min);
    return std::clamp(part, 0.0, 1.0);
  }
  const Chart& chart_;
};

std::string text_at(double x, double y, const char* classes, const std::string& text) {
  return fmt::format("<text x=\"{}\" y=\"{}\" class=\"{}\">{}</text>\n", number(x), number(y), classes, escaped(text));
}

std::string line_between(double x1, double y1, double x2, double y2, const std::string& classes) {
  return fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{}\"/>\n", number(x1), number(y1),
                     number(x2), number(y2), classes);
}

std::string draw_axes(const Chart& chart, const Frame& frame) {
  std::string out;
  for (const double tick : ticks(chart.y, static_cast<int>(chart.height / 45))) {
    out += line_between(frame.left(), frame.y(tick), frame.right(), frame.y(tick), "grid");
    out += text_at(frame.left() - 7, frame.y(tick) + 4, "tick end", tick_label(tick, chart.y.unit));
  }
  for (const double tick : ticks(chart.x, static_cast<int>(chart.width / 90))) {
    out += line_between(frame.x(tick), frame.top(), frame.x(tick), frame.bottom(), "grid");
    out += text_at(frame.x(tick), frame.bottom() + 16, "tick mid", tick_label(tick, chart.x.unit));
  }
  out += line_between(frame.left(), frame.bottom(), frame.right(), frame.bottom(), "axis");
  out += text_at((frame.left() + frame.right()) / 2, chart.height - 5, "name mid", chart.x.title);
  out += text_at(frame.left(), 12, "name", chart.y.title);
  return out;
}

std::string classes_of(const Line& line) {
  return fmt::format("line c{}{}", line.color, line.dash > 0 ? fmt::format(" d{}", line.dash) : "");
}

// Draws the legend along the top, aligned to the right: from the last entry to the first, from right to left.
std::string draw_legend(const Chart& chart, const Frame& frame) {
  struct Entry {
    std::string label;
    std::string classes;
    bool bar;
  };
  std::vector<Entry> entries;
  for (const Line& line : chart.lines)
    if (!line.label.empty()) entries.push_back({line.label, classes_of(line), false});
  for (const Bars& bars : chart.bars) entries.push_back({bars.label, fmt::format("bar f{}", bars.color), true});
  std::string out;
  double x = frame.right();
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    x -= kCharWidth * static_cast<double>(entry->label.size());
    out += text_at(x, 12, "key", entry->label);
    x -= 26;
    if (entry->bar)
      out += fmt::format("<rect x=\"{}\" y=\"2\" width=\"12\" height=\"12\" class=\"{}\"/>\n", number(x + 8),
                         entry->classes);
    else
      out += line_between(x, 8, x + 20, 8, entry->classes);
    x -= 16;
  }
  return out;
}

// The path of one line; the area below it is appended to `areas`.
std::string path_of(const Line& line, const Frame& frame, std::string& areas) {
  std::string path, run;
  double first_x = 0, last_x = 0, last_y = 0;
  const auto close = [&] {
    if (!run.empty() && line.filled)
      areas += fmt::format("{0}L{1} {3}L{2} {3}Z", run, number(last_x), number(first_x), number(frame.bottom()));
    path += run;
    run.clear();
  };
  for (const Point& point : line.points) {
    if (std::isnan(point.y)) {
      close();
      continue;
    }
    const double x = frame.x(point.x), y = frame.y(point.y);
    if (run.empty()) first_x = x;
    if (!run.empty() && line.steps) run += fmt::format("L{} {}", number(x), number(last_y));
    run += fmt::format("{}{} {}", run.empty() ? 'M' : 'L', number(x), number(y));
    last_x = x;
    last_y = y;
  }
  close();
  return path;
}

std::string draw_lines(const Chart& chart, const Frame& frame) {
  std::string out;
  for (const Line& line : chart.lines) {
    std::string areas;
    const std::string path = path_of(line, frame, areas);
    if (!areas.empty()) out += fmt::format("<path d=\"{}\" class=\"area f{}\"/>\n", areas, line.color);
    if (!path.empty()) out += fmt::format("<path d=\"{}\" class=\"{}\"/>\n", path, classes_of(line));
  }
  return out;
}

std::string draw_bars(const Chart& chart, const Frame& frame) {
  std::string out;
  std::map<double, double> height;  // so far, by x
  for (const Bars& bars : chart.bars)
    for (const Point& point : bars.points) {
      if (point.y <= 0) continue;
      double& below = height[point.x];
      const double x = frame.x(point.x), width = std::max(1.0, frame.x(point.x + chart.bar_width) - x - 1);
      const double top = frame.y(below + point.y);
      out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"bar f{}\"/>\n", number(x),
                         number(top), number(width), number(frame.y(below) - top), bars.color);
      below += point.y;
    }
  return out;
}

// Labels are to the right of a mark and below the rising curve; near the right border, to the left and above.
std::string draw_marks(const Chart& chart, const Frame& frame) {
  std::string out;
  for (const Mark& limit : chart.limits) {
    const double x = frame.x(limit.at.x);
    const double half = kCharWidth * static_cast<double>(limit.label.size()) / 2;
    out += line_between(x, frame.top(), x, frame.bottom(), "limit");
    out += text_at(std::clamp(x, frame.left() + half, frame.right() - half), frame.top() - 5, "bound mid", limit.label);
  }
  for (const Mark& mark : chart.marks) {
    const double x = frame.x(mark.at.x), y = frame.y(mark.at.y);
    const bool left = x + 10 + kCharWidth * static_cast<double>(mark.label.size()) > frame.right();
    out += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"3.5\" class=\"dot\"/>\n", number(x), number(y));
    out += text_at(x + (left ? -9 : 9), y + (left ? 4 : 13), left ? "note end" : "note", mark.label);
  }
  return out;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f)
      out += kReplacement;
    else
      out += c;
  }
  return out;
}

std::string tick_label(double value, Unit unit) {
  const double size = std::abs(value);
  if (unit == Unit::percent) return digits(value) + " %";
  if (unit == Unit::milliseconds) {
    if (size == 0) return "0";
    if (size < 0.9995) return digits(1e3 * value) + " \xc2\xb5s";
    return size < 999.5 ? digits(value) + " ms" : digits(value / 1e3) + " s";
  }
  return size >= 1000 ? grouped(static_cast<std::uint64_t>(std::llround(size))) : digits(value);
}

std::vector<double> ticks(const Axis& axis, int wanted) {
  TROUPE_ASSERT(axis.max > axis.min && (!axis.logarithmic || axis.min > 0));
  std::vector<double> values;
  const double slack = 1e-9 * (axis.max - axis.min);
  if (axis.logarithmic) {
    const bool fine = axis.max / axis.min < 300;
    const int first = static_cast<int>(std::floor(std::log10(axis.min)));
    const int last = static_cast<int>(std::floor(std::log10(axis.max)));
    for (int exponent = first; exponent <= last; ++exponent) {
      const double decade = std::pow(10, exponent);
      for (const double factor : {1.0, 2.0, 5.0})
        if ((fine || factor == 1) && decade * factor >= axis.min - slack && decade * factor <= axis.max + slack)
          values.push_back(decade * factor);
    }
    return values;
  }
  const double rough = (axis.max - axis.min) / std::max(wanted, 1);
  const double decade = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * decade;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * decade >= rough - slack) step = factor * decade;
  for (double i = std::ceil(axis.min / step - 1e-9); i * step <= axis.max + slack; ++i)
    values.push_back(i * step + 0.0);  // never -0
  return values;
}

std::string svg(const Chart& chart) {
  const Frame frame(chart);
  return fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{id}-title {id}-desc\">\n<title "
      "id=\"{id}-title\">{title}</title>\n<desc id=\"{id}-desc\">{summary}</desc>\n{axes}{bars}{lines}{marks}"
      "{legend}</svg>\n",
      number(chart.width), number(chart.height), fmt::arg("id", chart.id), fmt::arg("title", escaped(chart.title)),
      fmt::arg("summary", escaped(chart.summary)), fmt::arg("axes", draw_axes(chart, frame)),
      fmt::arg("bars", draw_bars(chart, frame)), fmt::arg("lines", draw_lines(chart, frame)),
      fmt::arg("marks", draw_marks(chart, frame)), fmt::arg("legend", draw_legend(chart, frame)));
}

}  // namespace troupe::load
