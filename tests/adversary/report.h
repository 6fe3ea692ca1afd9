// The findings, as text and as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace troupe::adversary {

// An invariant that did not hold.
struct Finding {
  std::string invariant;
  std::string attack;  // as --attack takes it
  std::uint64_t seed = 0;
  std::string measured;
  std::string bound;
  std::string detail{};  // the first of what there is to see
};

class Report {
 public:
  // Prints a line about what happens.
  void say(const std::string& line) const;
  // Prints it at once, and again at the end.
  void add(Finding finding);
  // A row of figures of one attack, for the file.
  void measured(const std::string& attack, std::uint64_t seed, std::map<std::string, double> figures);

  bool ok() const { return findings_.empty(); }
  std::size_t num_findings() const { return findings_.size(); }
  // The list of findings, or that there is none.
  void conclude() const;
  bool write_json(const std::string& path) const;

 private:
  struct Row {
    std::string attack;
    std::uint64_t seed;
    std::map<std::string, double> figures;
  };
  std::vector<Finding> findings_;
  std::vector<Row> rows_;
};

std::string mebibytes(std::uint64_t bytes);
std::string one_decimal(double value);

}  // namespace troupe::adversary
