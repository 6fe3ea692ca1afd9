// A strict reader of Prometheus text, format 0.0.4: fails the test at anything a scraper could stumble over.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace troupe::test {

using Labels = std::map<std::string, std::string>;

struct PrometheusText {
  struct Family {
    std::string type, help;
    std::map<std::string, std::map<Labels, double>> samples;  // by the sample's name
  };
  std::map<std::string, Family> families;

  explicit PrometheusText(const std::string& text) {
    REQUIRE((!text.empty() && text.back() == '\n'));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      if (line.starts_with("# ")) {
        comment(line);
      } else {
        sample(line);
      }
    }
    for (const auto& [name, family] : families) {
      INFO(name);
      REQUIRE(!family.samples.empty());
      if (family.type == "counter") REQUIRE(name.ends_with("_total"));
      if (family.type == "histogram") check_histogram(name, family);
    }
  }

  double value(const std::string& name, const Labels& labels) const {
    return families.at(name).samples.at(name).at(labels);
  }

 private:
  static std::string take_name(const std::string& line, std::size_t& at) {
    const std::size_t begin = at;
    const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == ':'; };
    REQUIRE((at < line.size() && letter(line[at])));
    while (at < line.size() && (letter(line[at]) || std::isdigit(static_cast<unsigned char>(line[at])))) ++at;
    return line.substr(begin, at - begin);
  }
  static void take(const std::string& line, std::size_t& at, char c) {
    REQUIRE((at < line.size() && line[at] == c));
    ++at;
  }

  void comment(const std::string& line) {
    const bool is_help = line.starts_with("# HELP ");
    REQUIRE((is_help || line.starts_with("# TYPE ")));
    std::size_t at = 7;
    const std::string name = take_name(line, at);
    take(line, at, ' ');
    const std::string rest = line.substr(at);
    if (is_help) {
      REQUIRE(families.emplace(name, Family{}).second);  // one block per family, help first
      families[name].help = rest;
    } else {
      REQUIRE(name == current_);
      REQUIRE((families[name].type.empty() && families[name].samples.empty()));
      REQUIRE(std::set<std::string>{"counter", "gauge", "histogram"}.count(rest) == 1);
      families[name].type = rest;
    }
    current_ = name;
  }

  void sample(const std::string& line) {
    std::size_t at = 0;
    const std::string name = take_name(line, at);
    Labels labels;
    if (at < line.size() && line[at] == '{') {
      do {
        ++at;
        const std::string label = take_name(line, at);
        REQUIRE(label.find(':') == std::string::npos);
        take(line, at, '=');
        take(line, at, '"');
        std::string text;
        for (; at < line.size() && line[at] != '"'; ++at) {
          if (line[at] == '\\')
            REQUIRE((++at < line.size() && std::string("\\\"n").find(line[at]) != std::string::npos));
          text += line[at];
        }
        take(line, at, '"');
        REQUIRE(labels.emplace(label, text).second);
      } while (at < line.size() && line[at] == ',');
      take(line, at, '}');
    }
    take(line, at, ' ');
    char* end = nullptr;
    const double number = std::strtod(line.c_str() + at, &end);  // takes +Inf too
    REQUIRE((end != line.c_str() + at && *end == '\0'));
    Family& family = families.at(current_);
    REQUIRE(!family.type.empty());
    const std::string suffix = name.substr(std::min(name.size(), current_.size()));
    REQUIRE(name.starts_with(current_));
    if (family.type == "histogram") {
      REQUIRE(std::set<std::string>{"_bucket", "_sum", "_count"}.count(suffix) == 1);
    } else {
      REQUIRE(suffix.empty());
    }
    if (family.type == "counter") REQUIRE((number >= 0 && std::isfinite(number)));
    REQUIRE(family.samples[name].emplace(labels, number).second);
  }

  // Buckets rise, end with +Inf, and that is the count.
  static void check_histogram(const std::string& name, const Family& family) {
    std::map<double, double> buckets;
    for (const auto& [labels, count] : family.samples.at(name + "_bucket"))
      buckets[std::strtod(labels.at("le").c_str(), nullptr)] = count;
    double before = 0;
    for (const auto& [bound, count] : buckets) {
      REQUIRE(count >= before);
      before = count;
    }
    REQUIRE(std::isinf(buckets.rbegin()->first));
    REQUIRE(family.samples.at(name + "_count").begin()->second == before);
    REQUIRE(family.samples.at(name + "_sum").begin()->second >= 0);
  }

  std::string current_;
};

}  // namespace troupe::test
