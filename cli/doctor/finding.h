// What `troupe doctor` found out: a line of its report.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

enum class Grade : std::uint8_t {
  fine,
  advice,  // it works, and would work better
  broken,  // something does not work that was asked for
};

struct Finding {
  std::string_view topic;  // "memory"
  Grade grade = Grade::fine;
  std::string found;
  std::string remedy{};  // what to do: a sentence, with the command; empty where there is nothing to do
};

// Lines "ok  TOPIC  FOUND", below each with a remedy "-> REMEDY", and one that counts them. Colours where `is_colored`.
// Found and remedies are made Printable.
[[nodiscard]] std::string findings_text(std::span<const Finding> findings, bool is_colored);
[[nodiscard]] nlohmann::ordered_json findings_json(std::span<const Finding> findings);

// 0: all is fine; 1: there is advice; 2: something is broken.
[[nodiscard]] int exit_code(std::span<const Finding> findings);

}  // namespace troupe::cli
